"""A team's own benchmark: the walk-through of docs/write-a-benchmark.md, run as written, and what can go wrong."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backend.contract import parse_run
from tidemark.benchmark import _machine, benchmark

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "write-a-benchmark.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(folder: Path, text: str, *words: str, **variables: str):
    (folder / "bench_words.py").write_text(text)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
    environment |= {"PYTHONPATH": str(ROOT), "TIDEMARK_RUN_JSON": str(folder / "run.json"), **variables}
    command = [sys.executable, "bench_words.py", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def quick(text: str) -> str:
    """The same file, measuring for less time."""
    return "import tidemark.benchmark\ntidemark.benchmark.MEASURE_S = 0.05\n" + text


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walk")
    done = run(folder, quick(blocks("python")[0]), TIDEMARK_PROGRESS="1", TIDEMARK_COMMIT="a" * 40)
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / "run.json").read_text())


def test_the_walk_through_is_ten_lines():
    assert len([line for line in blocks("python")[0].splitlines() if line.strip()]) <= 10


def test_the_walk_through_writes_a_run_the_contract_accepts(walked):
    run_ = parse_run(walked[1])
    assert [dict(result.variant) for result in run_.results] == [{"words": 1000}, {"words": 20000}]
    assert {result.status for result in run_.results} == {"ok"}


def test_the_quotient_is_judged_and_milliseconds_are_watched(walked):
    roles = {m["metric"]: m["role"] for m in walked[1]["results"][0]["measurements"]}
    assert roles == {"latency_over_yardstick": "gate", "latency_ms": "watch"}
    gate = walked[1]["results"][0]["measurements"][0]
    assert len(gate["processes"]) == len(gate["samples"]) == 3


def test_more_work_costs_more(walked):
    small, large = (result["measurements"][0]["value"] for result in walked[1]["results"])
    assert large > 3 * small


def test_progress_is_told_for_every_process(walked):
    last = json.loads(walked[0].stdout.splitlines()[-1].removeprefix("::tidemark-progress "))
    assert (last["done"], last["total"]) == (6, 6)


def test_the_file_of_the_page_is_accepted_as_written():
    assert parse_run(blocks("json")[0]).results[0].benchmark == "words.split"


BAD = {
    "raises": ("return lambda: text.split()", "return lambda: text.nothing()", "failed", "AttributeError"),
    "wrong": ("text.split()", "text.split('x')", "check_failed", "refused"),
    "no_callable": ("return lambda: text.split()", "return 7", "failed", "must return the callable"),
    "dies": ("return lambda: text.split()", "import os; os._exit(4)", "failed", "ended with 4"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_benchmark_is_a_result_with_a_status_and_a_sentence(tmp_path, name):
    old, new, status, said = BAD[name]
    done = run(tmp_path, quick(blocks("python")[0]).replace(old, new))
    assert done.returncode == 1
    result = json.loads((tmp_path / "run.json").read_text())["results"][0]
    assert result["status"] == status
    assert said in result["error"]
    assert result["measurements"] == []


def test_an_unknown_benchmark_is_told_the_known_ones(tmp_path):
    done = run(tmp_path, blocks("python")[0], "words.spilt")
    assert "unknown benchmark 'words.spilt'; known: words.split" in done.stderr


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"id": "no spaces"}, "not a name"),
        ({"id": "twice", "variants": [{"a": 1}, {"a": 1}]}, "same variant twice"),
        ({"id": "none", "variants": []}, "no variants"),
    ],
)
def test_a_wrong_registration_is_refused_at_once(how, said):
    with pytest.raises(ValueError, match=said):
        benchmark(**how)


def test_importing_the_decorator_needs_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules); import tidemark.benchmark; "
        "new = {n.split('.')[0] for n in set(sys.modules) - before}; "
        "sys.exit(bool(new - set(sys.stdlib_module_names) - {'tidemark'}))"
    )
    assert subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(("runner", "worker"), [("github-hosted", "github-hosted"), ("self-hosted", platform.node())])
def test_machines_that_are_fresh_each_time_have_one_name(monkeypatch, runner, worker):
    monkeypatch.delenv("TIDEMARK_WORKER", raising=False)
    monkeypatch.setenv("RUNNER_ENVIRONMENT", runner)
    assert _machine() == worker
