"""The command that measures a suite again by hand."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from backend.services.runs.reproducing import Subject, run_command

RUN_ID = r"[0-9A-Za-z][0-9A-Za-z._-]{7,63}"
SUBJECT = Subject(name="base", project="north sea/loom", sha="ab" * 20, suite="own", testbed="cpu", benchmarks=["a.b"])
WRITE = """python3 -c 'import os, json; e = os.environ; json.dump(dict(e), open(e["TIDEMARK_RUN_JSON"], "w"))'"""


@pytest.mark.parametrize("command", [f"{WRITE}", f"cd bench && A=1 {WRITE}"])
def test_an_own_command_is_told_all_that_a_worker_tells_it_wherever_it_goes(tmp_path: Path, command: str) -> None:
    (tmp_path / "repro/bench").mkdir(parents=True)
    line = run_command({"command": command, "env": {"B": "c d"}}, SUBJECT)
    subprocess.run(["sh", "-c", line], cwd=tmp_path / "repro", check=True, timeout=20)
    told = json.loads((tmp_path / "base.json").read_text())
    assert told["B"] == "c d"
    assert told["TIDEMARK_PROJECT"] == "north sea/loom" and told["TIDEMARK_COMMIT"] == "ab" * 20
    assert re.fullmatch(RUN_ID, told["TIDEMARK_RUN_ID"]) and told["TIDEMARK_RUN_ID"].startswith("base-")
    assert told["TIDEMARK_SUITE"] == "own" and told["TIDEMARK_TESTBED"] == "cpu"


def test_registered_benchmarks_are_named_with_their_options() -> None:
    spec = {"benchmarks": ["a.b"], "preset": "cpu", "implementation": "loom.model:build"}
    assert run_command(spec, SUBJECT) == (
        "python -P -m benchmarks run a.b --out ../base.json --preset cpu --implementation loom.model:build"
    )
