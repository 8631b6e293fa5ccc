"""Figures beside the step: rates of phases, a busy device, links, the harness's own cost, known slow-downs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from benchmarks.analysis import measurements
from benchmarks.analysis.diagnose import explain
from benchmarks.analysis.kernels import busy_share
from benchmarks.analysis.peaks import link_gb_per_s
from benchmarks.registry import BY_ID, Selected
from benchmarks.running.experiments import job_of
from benchmarks.running.launch import Launcher
from benchmarks.running.session import Request, SuiteSession
from benchmarks.spec import Preset, Status


def test_a_device_is_busy_while_any_kernel_runs_and_two_at_once_count_once():
    steps = [(0.0, 10.0), (10.0, 20.0)]
    assert busy_share([(0.0, 4.0), (2.0, 6.0), (10.0, 20.0)], steps) == pytest.approx(0.8)
    assert busy_share([(0.0, 10.0), (10.0, 25.0)], steps) == pytest.approx(1.0), "the last kernel ends after the host"
    assert busy_share([], steps) is None, "a CPU has no kernels to be busy with"


def test_the_rate_of_a_phase_is_its_own_arithmetic_over_its_own_time():
    work = {"phase_flop": {"forward": 2e12, "backward": 5e12, "nothing": 1.0}}
    found = measurements.rates_of_phases(
        work, [{"metric": "forward_ms", "value": 4.0}, {"metric": "backward_ms", "value": 10.0}]
    )
    assert [(m["metric"], m["value"]) for m in found] == [("forward_tflops", 500.0), ("backward_tflops", 500.0)]
    assert {(m["role"], m["direction"]) for m in found} == {("derived", "higher")}


@pytest.mark.parametrize(
    ("name", "limit"),
    [("NVIDIA H200", 450.0), ("NVIDIA H100 80GB HBM3", 450.0), ("NVIDIA H100 PCIe", None), ("AMD EPYC", None)],
)
def test_the_limit_of_a_link_is_one_direction_and_unknown_links_have_none(name, limit):
    assert link_gb_per_s(name) == limit


def result(step, busy=None):
    levels = {"step_ms": step, "forward_ms": 0.4 * step, "backward_ms": 0.6 * step}
    made = [
        {"metric": name, "unit": "ms", "role": "gate" if name == "step_ms" else "phase", "value": level}
        | {"processes": [level * noise for noise in (0.999, 1.0, 1.001)]}
        for name, level in levels.items()
    ]
    made += [{"metric": "device_busy", "unit": "ratio", "role": "derived", "value": busy}] if busy else []
    return {"measurements": made}


def kernels(micro):
    return {"phase": ["forward"], "name": ["gemm"], "shape": [""], "calls_per_step": [10.0], "us_per_step": [micro]}


@pytest.mark.parametrize(
    ("busy", "micro", "said"),
    [
        ((0.95, 0.70), (9000.0, 9010.0), "the host cannot keep up"),
        ((0.95, 0.94), (9000.0, 9010.0), "gemm in forward"),
        ((0.95, 0.70), (9000.0, 12500.0), "gemm in forward"),
    ],
)
def test_a_device_that_waits_more_while_its_kernels_are_flat_waits_for_the_host(busy, micro, said):
    found = explain(
        result(10.0, busy[0]),
        result(14.0, busy[1]),
        base_kernels=kernels(micro[0]),
        head_kernels=kernels(micro[1]),
    )
    assert found.cause == "code"
    assert said in found.reason


def test_ranks_without_gpus_are_not_applicable_as_soon_as_one_process_has_counted_them():
    case = BY_ID["coll.all_reduce"].cases(Preset.FULL)[0]
    selected = Selected(BY_ID["coll.all_reduce"], replace(case, world_size=8))
    request = Request(selection=(selected,), preset=Preset.FULL, implementation=None, processes=1, seed=1)
    session = SuiteSession(request, Launcher())
    state = next(iter(session.states.values()))
    state.reports.append({"environment": {"accelerator_count": 1}})
    session.run()
    assert state.status is Status.NOT_APPLICABLE
    assert state.error == "8 ranks need 8 GPUs and 1 is here; nothing crosses a link"
    assert session.order == [], "no process was started to say so"


class Counted:
    """A step of ten milliseconds, so that a fraction more can be told from the clock's grain."""

    def __init__(self):
        self.steps = 0

    def step(self, marks):
        self.steps += 1
        marks.enter("forward")
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass


@pytest.mark.torch
def test_an_injected_slow_down_costs_the_fraction_it_says():
    pytest.importorskip("torch")
    from benchmarks.harness.timing.injection import Slowed
    from benchmarks.harness.timing.marks import NoMarks

    slowed = Slowed(inner := Counted(), 0.5, "cpu")
    before = inner.steps
    began = time.thread_time()
    for _ in range(20):
        slowed.step(NoMarks())
    spent = time.thread_time() - began
    assert inner.steps == before + 20
    assert spent > 20 * 0.0145, "the step and half of it again; neighbours can only add"
    with pytest.raises(ValueError, match="a slow-down of 0 is none"):
        Slowed(inner, 0, "cpu")


@pytest.mark.torch
def test_the_harness_is_measured_around_a_step_that_does_nothing():
    pytest.importorskip("torch")
    from benchmarks.harness.timing.overhead import measure_overhead

    found = measure_overhead(Counted().step, "cpu")
    assert found["step_ms"] >= 10.0
    assert found["overhead"] == pytest.approx(found["harness_ms"] / found["step_ms"])
    assert 0 < found["overhead"] < 0.005


def test_a_process_outside_of_any_run_is_asked_for_what_the_caller_says():
    benchmark = BY_ID["gpt.train"]
    selected = Selected(benchmark, benchmark.cases(Preset.CPU)[0])
    job = job_of(selected, selected.case.config, ["time"], extra={"slow_down": 0.02})
    assert (job["tasks"], job["extra"], job["process"], job["preset"]) == (["time"], {"slow_down": 0.02}, 0, "cpu")
