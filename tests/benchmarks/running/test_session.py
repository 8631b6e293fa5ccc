"""What a session decides by rule: repeats, the canary and quarantine; peaks, fingerprint and telemetry beside it."""

from __future__ import annotations

import json
import os

import pytest

from benchmarks.analysis.peaks import bf16_flop_per_s
from benchmarks.analysis.trust import canary, why_not
from benchmarks.cli import _write_logs
from benchmarks.environment import fingerprint
from benchmarks.registry import find, select
from benchmarks.running.launch import Launcher
from benchmarks.running.plan import MOST_PROCESSES, needs_more, tasks_of
from benchmarks.running.session import Request, SuiteSession
from benchmarks.spec import Preset
from benchmarks.telemetry.nvml import NvmlProbe
from benchmarks.telemetry.readings import CpuProbe


def judged(*values):
    return [{"metric": "step_over_yardstick", "role": "gate", "processes": list(values)}]


def test_a_quiet_series_stops_and_a_noisy_one_goes_on_to_its_precision():
    assert not needs_more(judged(2.0, 2.001, 1.999), 0.02, 3)
    assert needs_more(judged(2.0, 2.1, 1.9), 0.02, 3)
    assert not needs_more(judged(2.0, 2.1, 1.9), 0.5, 3)


def test_repeats_end_at_the_limit_when_the_spread_never_allows_the_precision():
    assert needs_more(judged(*[2.0, 3.0] * 5), 0.001, MOST_PROCESSES - 1)
    assert not needs_more(judged(*[2.0, 3.0] * 6), 0.001, MOST_PROCESSES)


def test_exact_counters_ask_for_no_repeats():
    assert not needs_more([{"metric": "graph_breaks", "role": "gate", "value": 0}], 0.001, 3)


def test_checks_and_counters_come_with_the_first_process_and_canaries_with_first_and_last():
    tasks = [set(tasks_of(number, first=number == 0, last=number == 2)) for number in range(3)]
    assert tasks == [{"time", "check", "count", "canary_before"}, {"time"}, {"time", "canary_after"}]


def reading(*rounds):
    return {"ceilings": {}, "canary": {"gemm_over_yardstick": list(rounds)}}


QUIET = reading(0.2, 0.21, 0.19, 0.2)


def test_a_canary_that_moved_far_beyond_its_noise_names_itself():
    still = canary(QUIET, QUIET, Preset.CPU)
    assert why_not(still, {}) is None
    moved = canary(QUIET, reading(0.4, 0.41, 0.39, 0.4), Preset.CPU)
    assert why_not(moved, {}) == "the canary gemm_over_yardstick moved from 0.2 to 0.4"


def test_a_canary_is_never_believed_to_be_without_noise():
    assert canary(reading(0.2, 0.2, 0.2), None, Preset.CPU)[0]["own_noise"] == 0.02
    assert canary(reading(0.2, 0.2, 0.2), None, Preset.FULL)[0]["own_noise"] == 0.003


def test_an_interrupted_session_has_a_canary_of_one_reading():
    found = canary(QUIET, None, Preset.CPU)[0]
    assert (found["before"], found["after"]) == (0.2, None)
    assert why_not([found], {}) is None


def test_a_strangers_process_on_the_accelerator_is_a_reason():
    assert "2 foreign processes" in why_not([], {"foreign_processes": 2})
    assert why_not([], {"foreign_processes": 0}) is None


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989.5e12),
        ("NVIDIA H200 NVL", 836e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("Some Future Device", None),
    ],
)
def test_peaks_are_dense_and_an_unknown_device_has_none(name, peak):
    assert bf16_flop_per_s(name) == peak


def test_the_fingerprint_ignores_git_and_sees_versions():
    one, other = fingerprint({"threads": 1}), fingerprint({"threads": 2})
    assert one["hash"] != other["hash"]
    assert one["hash"] == fingerprint({"threads": 1})["hash"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux says which cores one may use")
def test_a_core_that_is_taken_away_changes_the_environment():
    before, allowed = fingerprint({}), os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        after = fingerprint({})
    finally:
        os.sched_setaffinity(0, allowed)
    assert (before["cpu_count"], after["cpu_count"]) == (len(allowed), 1)
    assert len(allowed) == 1 or before["hash"] != after["hash"]


def test_cpu_telemetry_counts_cpus_that_are_busy_beside_ours():
    readings = [{"busy": 1.0, "load_1m": 3.0, "stolen": 0.1}] * 5
    found = CpuProbe().summary(readings)
    assert found["foreign_cpus"] == found["cpu_count"] - 1.0
    assert found["load_1m"] == 3.0


def test_gpu_telemetry_names_what_throttles_and_leaves_idling_out():
    probe = NvmlProbe.__new__(NvmlProbe)
    readings = [{"throttle_bits": 0x4 | 0x1, "sm_clock_mhz": 1755, "power_mw": 690_000, "foreign_processes": 0}] * 3
    found = probe.summary(readings)
    assert found["throttle"] == ["sw_power_cap"]
    assert found["sm_clock_mhz"]["p50"] == 1755
    assert found["power_w"] == {"p50": 690.0}
    assert found["foreign_processes"] == 0


def test_the_log_of_a_result_ends_when_that_result_was_measured(tmp_path):
    """It ended with the session: one result's log claimed the hours of all that were measured after it."""
    selection = select(find("ceiling.launch") + find("ceiling.gemm"), Preset.CPU, {})
    request = Request(selection=selection, preset=Preset.CPU, implementation=None, processes=1, seed=1)
    session = SuiteSession(request, Launcher())
    for number, state in enumerate(session.states.values()):
        window = {"measured_from_ms": 1000 * number + 100, "measured_to_ms": 1000 * number + 900}
        state.reports = [{"status": "ok", **window}, {"status": "ok", **window, "measured_to_ms": 1000 * number + 950}]
    results = [
        {"benchmark": s.benchmark.id, "variant": dict(s.case.variant), "preset": "cpu", "status": "ok"}
        for s in selection
    ]
    head = {"project": "p", "testbed": "cpu", "commit": "c" * 40, "protocol": {"seed": 1}, "environment": {}}
    _write_logs(tmp_path / "run.json", {**head, "results": results}, session, began_ms=0)
    for number, result in enumerate(results):
        lines = (tmp_path / result["artifacts"]["mllog"]).read_text().splitlines()
        last = json.loads(lines[-1].removeprefix(":::MLLOG "))
        assert (last["key"], last["time_ms"]) == ("run_stop", 1000 * number + 950)
