"""A minute of what `make soak` does for ten: whatever is killed, every run ends exactly once.

In a process of its own, as `make soak` is: it counts, and at the end kills, everything below its own process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_whatever_is_killed_every_run_ends_exactly_once(tmp_path: Path) -> None:
    told = tmp_path / "figures.json"
    options = ("--minutes", "0.6", "--drain-minutes", "3", "--seed", "11", "--json", str(told))
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.run", *options],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(told.read_text())
    assert figures["wrong"] == [] and figures["left_processes"] == 0
    assert figures["requested"] == 2 * (figures["commits"] - figures["skipped"]) > 0
    assert sum(figures["faults"].values()) >= 3
    answered = sum(number for status, number in figures["flooded"].items() if status != "none")
    assert figures["hostile"] and answered >= 10, figures["flooded"]
