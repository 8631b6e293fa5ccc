"""`tidemark import` as a person uses it: many files, a dry run without a service, started twice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers_tidemark import ROOT, tidemark

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
