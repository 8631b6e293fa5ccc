"""Runs as the joint rules take them in: what a machine says of itself counts only where it is no work of the run."""

from typing import Any

import numpy as np
import pytest

from backend.regression.joint.terms import JointRun
from backend.services.regressions.joint_input import joint_run, witness_of
from backend.services.triage.views import RegressionFilter, list_regressions

BUSY = {"load_1m": 64.0, "foreign_processes": 3, "throttle": ["hw_slowdown", "gpu_idle"], "sm_clock_mhz": {"p50": 990}}
CANARY = [{"name": "gemm_tflops", "before": 4.0, "after": 4.0}, {"name": "copy_ms", "before": 4.0, "after": 4.0}]
ACCELERATED = {"torch": "2.13.0", "hash": "sha256:one", "accelerator": "H100"}


def _read(environment: dict[str, Any], telemetry: dict[str, Any]) -> JointRun:
    witness = witness_of({"telemetry": telemetry, "canary": CANARY}, "RUN-1", 7, "box-01", None, environment)
    return joint_run(
        witness,
        testbed="h100",
        timestamp=1.0,
        cost=np.zeros(1),
        spread=np.zeros(1),
        suite_version={"gpt": "1"},
        docs_only=False,
    )


@pytest.mark.parametrize(
    ("environment", "load", "foreign"), [({}, None, 0), ({"accelerator": None}, None, 0), (ACCELERATED, 64.0, 3)]
)
def test_load_and_foreign_processes_are_evidence_beside_an_accelerator_only(
    environment: dict[str, Any], load: float | None, foreign: int
) -> None:
    run = _read(environment, BUSY)
    assert (run.load, run.foreign_processes) == (load, foreign)
    assert run.clock_mhz == 990.0 and run.throttle == {"hw_slowdown"}


def test_a_slower_canary_costs_more_whatever_its_unit() -> None:
    assert _read(ACCELERATED, {}).canary == {"gemm_tflops": -np.log(4.0), "copy_ms": np.log(4.0)}


def test_a_run_without_telemetry_says_nothing_of_its_machine() -> None:
    run = _read(ACCELERATED, {})
    assert (run.load, run.foreign_processes, run.clock_mhz, run.throttle) == (None, 0, None, frozenset())


@pytest.mark.parametrize(
    ("environment", "telemetry", "cause"),
    [
        ({"torch": "2.13.0", "hash": "sha256:one"}, [{"load_1m": 2.0}, {"load_1m": 40.0}], "code"),
        (ACCELERATED, [{"load_1m": 2.0}, {"load_1m": 40.0}], "hardware"),
        (ACCELERATED, [{"sm_clock_mhz": 1980}, {"sm_clock_mhz": 1410}], "hardware"),
    ],
    ids=["a processor's load is the benchmark's own", "the load beside an accelerator", "a lower clock"],
)
def test_the_machine_is_the_cause_of_an_onset_where_its_signals_are_not_the_benchmarks_own(
    loom: Any, environment: dict[str, str], telemetry: list[dict[str, float]], cause: str
) -> None:
    for position in range(36):
        slow = position >= 28
        loom.run(position, 54.0 if slow else 50.0, environment=environment, telemetry=telemetry[slow])
    (alarm,) = list_regressions(loom.connection, RegressionFilter()).items
    assert alarm.cause == cause
