"""What `make scale` does, with as little as will do: whatever is killed, what was acknowledged is there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.servers import PGBOUNCER_MISSING
from tests.provide_pgbouncer import pgbouncer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Of a drill in a process of its own: at the end it ends everything below itself."""
    kept = tmp_path_factory.mktemp("cluster") / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.run", "--seconds", "0.5", "--apis", "2", "--json", str(kept)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: Mapping[str, Any] = json.loads(kept.read_text())
    return found


@pytest.mark.slow
def test_whatever_is_killed_nothing_acknowledged_is_lost(figures: Mapping[str, Any]) -> None:
    assert figures["wrong"] == [] and figures["lost"] == 0
    assert figures["stored"] >= figures["acknowledged"] > 20
    assert figures["struck"][-1]["what"] == "the primary killed, the replica promoted"
    assert figures["struck"][-1]["acknowledged"] > 0


@pytest.mark.slow
def test_a_replica_that_is_held_back_is_seen_to_lag_and_left(figures: Mapping[str, Any]) -> None:
    assert figures["lag_seen_s"] > 5
    lagging = next(each for each in figures["struck"] if each["what"] == "the replica lags")
    assert lagging["pages"] > lagging["pages_failed"]


@pytest.mark.slow
def test_the_drill_goes_through_pgbouncer(figures: Mapping[str, Any]) -> None:
    if pgbouncer() is None:
        pytest.skip(PGBOUNCER_MISSING)
    assert figures["pgbouncer"] and "PgBouncer killed" in [each["what"] for each in figures["struck"]]
