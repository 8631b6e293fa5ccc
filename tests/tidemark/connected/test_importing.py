"""`tidemark import` as a person uses it: many files, a dry run without a service, started twice."""

from __future__ import annotations

import codecs
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers_tidemark import ROOT, tidemark

from tests.backend.api.conftest import run_document

FIXTURES = ROOT / "tests" / "backend" / "importers" / "fixtures"
SHA = "9f3c2e1d0b5a4c7e8f90a1b2c3d4e5f60718293a"
STATED = ("--project", "northsea/loom", "--testbed", "ci", "--commit", SHA)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """An asv results directory, as asv lays it out."""
    machine = tmp_path / "results" / "ci"
    machine.mkdir(parents=True)
    (tmp_path / "results" / "benchmarks.json").write_text("{}")
    (machine / "machine.json").write_text("{}")
    for number in range(3):
        result = {
            "commit_hash": f"{number + 1:040x}", "date": 1758464000000 + 1000 * number, "params": {"machine": "ci"},
            "result_columns": ["result", "params"], "results": {"suite.time_route": [[0.002 + number], []]},
        }  # fmt: skip
        # Named so that the order of names is not the order of time.
        (machine / f"{9 - number}-env.json").write_text(json.dumps(result))
    return tmp_path / "results"


def run(*arguments: str | Path, live: Any = None, **variables: str) -> subprocess.CompletedProcess[str]:
    if live is not None:
        variables |= {"TIDEMARK_URL": live.url, "TIDEMARK_TOKEN": live.token("write")}
    return tidemark("import", *map(str, arguments), **variables)


def test_a_history_goes_in_oldest_first_and_again_without_a_change(history: Path, live_server: Any) -> None:
    first = run(history, *STATED[:4], "--json", live=live_server)
    report = json.loads(first.stdout)
    assert first.returncode == 0 and (report["files"], report["stored"], report["duplicates"]) == (3, 3, 0), first
    assert "delivered 3 of 3 runs" in first.stderr
    again = json.loads(run(history, *STATED[:4], "--json", live=live_server).stdout)
    assert (again["stored"], again["duplicates"]) == (0, 3)
    with live_server.client("read") as client:
        (series,) = client.get("/api/v1/series", params={"project": "northsea/loom"}).json()["items"]
        points = client.get(f"/api/v1/series/{series['id']}/points").json()
    assert points["value"] == sorted(points["value"]) and len(points["value"]) == 3


def test_a_project_that_is_new_is_named(history: Path, live_server: Any) -> None:
    warning = "  warning: the project northsea/loom is new: is its name right?"
    for more, expected in ((["--dry-run"], 1), ([], 1), ([], 0)):
        said = run(history, *STATED[:4], *more, live=live_server).stdout.splitlines()
        assert said.count(warning) == expected


def test_a_run_of_our_own_belongs_to_the_project_that_it_states(tmp_path: Path, live_server: Any) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(run_document(0)))
    said = run(file, "--project", "northsea/loom", live=live_server).stdout
    assert "assumed: runs belong to the project that they state (demo/tinygpt), not to northsea/loom" in said
    assert "assumed" not in run(file, "--project", "demo/tinygpt", live=live_server).stdout


def test_a_run_of_our_own_may_be_compressed_or_marked(tmp_path: Path, live_server: Any) -> None:
    body = json.dumps(run_document(0)).encode()
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(body))
    (tmp_path / "marked.json").write_bytes(codecs.BOM_UTF8 + body)
    (tmp_path / "wide.json").write_bytes(body.decode().encode("utf-16"))
    (tmp_path / "plain.json").write_bytes(body)
    outcomes = []
    for name in ("packed.json.gz", "marked.json", "wide.json", "plain.json"):
        done = run(tmp_path / name, "--project", "demo/tinygpt", "--json", live=live_server)
        outcomes.append((done.returncode, json.loads(done.stdout)["stored"], json.loads(done.stdout)["duplicates"]))
    assert outcomes == [(0, 1, 0), (0, 0, 1), (0, 0, 1), (0, 0, 1)]
    refused = tidemark("submit", str(tmp_path / "packed.json.gz"), TIDEMARK_URL=live_server.url)
    assert refused.returncode == 1 and "is compressed: unpack it, or let `tidemark import` read it" in refused.stderr


def test_a_dry_run_needs_no_service_and_names_every_run(history: Path, tmp_path: Path) -> None:
    done = run(history, *STATED[:4], "--dry-run", TIDEMARK_DATA_DIR=str(tmp_path / "none"))
    assert done.returncode == 0 and done.stdout.count("would deliver import-") == 3
    assert "no service was asked" in done.stdout


def test_a_dry_run_says_what_the_import_then_does(history: Path, live_server: Any) -> None:
    def told(*more: str) -> dict[str, Any]:
        done = run(history, *STATED[:4], "--json", *more, live=live_server)
        return dict(json.loads(done.stdout))

    (history / "ci" / "bad.json").write_text(f'{{"commit_hash": "{7:040x}", "results": {{"suite.time_route": "n/a"}}}}')
    first = next(history.glob("ci/9-env.json"))
    (history / "ci" / "twice.json").write_bytes(first.read_bytes())
    (foretold, done), again = (told("--dry-run"), told()), told("--dry-run")
    assert foretold["records"] == done["records"] == {"read": 5, "stored": 3, "duplicate": 1, "left_out": 1}
    assert foretold["stored"] == done["stored"] == 3 and foretold["problems"] == done["problems"]
    assert again["records"] == {"read": 5, "stored": 0, "duplicate": 4, "left_out": 1}


def test_an_import_ends_with_the_table_of_its_records(history: Path, live_server: Any) -> None:
    (history / "ci" / "bad.json").write_text(f'{{"commit_hash": "{7:040x}", "results": {{"suite.time_route": "n/a"}}}}')
    *_, names, counts, left, first = run(history, *STATED[:4], live=live_server).stdout.splitlines()
    assert names.split() == ["records", "read", "stored", "there", "already", "left", "out"]
    assert counts.split() == ["4", "3", "0", "1"]
    assert left.strip().startswith("left out 1: expected a list of columns") and "bad.json" in first


def test_a_file_that_cannot_be_read_does_not_keep_the_others_out(tmp_path: Path, live_server: Any) -> None:
    (tmp_path / "good.csv").write_bytes((FIXTURES / "table.csv").read_bytes())
    (tmp_path / "odd.json").write_text('{"what": "is this"}')
    done = run(tmp_path, *STATED, "--json", live=live_server)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["stored"] == 1
    (refused,) = report["refused"]
    assert "odd.json" in refused and "known:" in refused
    assert "oops" in report["problems"][0]


def test_an_import_of_which_nothing_could_be_taken_has_failed(tmp_path: Path, live_server: Any) -> None:
    (tmp_path / "one.json").write_text('{"results": [{"command": "sleep 1", "times": [1.0, 1.1]}]}')
    done = run(tmp_path, *STATED[:-1], SHA[:8], live=live_server)
    assert done.returncode == 1 and "a full commit id" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--direction", "step=down"), "accepted: step=lower, step=higher"),
        (("--column", "step"), "accepted: NAME=VALUE"),
        (("--format", "xml"), "unknown --format 'xml'; known: mllog"),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_is_accepted(arguments: tuple[str, str], said: str) -> None:
    done = run(FIXTURES / "table.csv", *STATED, "--dry-run", *arguments)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1


def test_a_directory_without_results_says_what_was_looked_for(tmp_path: Path) -> None:
    done = run(tmp_path, *STATED)
    assert done.returncode == 1 and "looked for .csv" in done.stderr
