"""Points 5 to 8 of the protocol on an accelerator, whose queue, cache and events are simulated."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.analysis import measurements  # noqa: E402
from benchmarks.harness.timing import events  # noqa: E402
from benchmarks.harness.timing.device import FLUSH_BYTES  # noqa: E402

_spec = importlib.util.spec_from_file_location("simulated_device", Path(__file__).with_name("simulated_device.py"))
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
SimulatedDevice = _module.SimulatedDevice


def training_step(device, seconds=0.02):
    """A step of three phases; `seconds` may be a function of the step's number."""
    count = iter(range(10**9))

    def step(marks):
        number = next(count)
        whole = seconds(number) if callable(seconds) else seconds
        for phase, share in (("forward", 0.3), ("backward", 0.6), ("optimizer", 0.1)):
            marks.enter(phase)
            device.work(whole * share)

    return step


def test_a_full_measurement_lasts_ten_seconds_and_twenty_steps_at_least():
    device = SimulatedDevice()
    slow = events.measure_steps(training_step(device, 3.0), events.StepBudget(), device)
    assert len(slow.step_s) == 20, "a hundred steps of a slow variant would outlast its process"
    quick = events.measure_steps(training_step(device, 0.02), events.StepBudget(), device)
    assert sum(quick.step_s) == pytest.approx(10.0, rel=0.01), "a host that runs ahead of the queue queues no more"


def test_the_device_is_never_waited_for_between_timed_steps():
    device, waits = SimulatedDevice(), []
    step = training_step(device)

    def watched(marks):
        waits.append(device.synchronized)
        step(marks)

    times = events.measure_steps(watched, events.StepBudget.smoke(), device)
    timed = waits[times.warm_up_steps :]
    assert len(set(timed)) == 1
    assert device.synchronized == timed[0] + 1, "one wait, after the last step"


def test_steps_and_their_phases_are_what_the_device_spent():
    device = SimulatedDevice()
    times = events.measure_steps(training_step(device), events.StepBudget(), device)
    assert times.step_s == pytest.approx([0.02] * len(times.step_s), rel=1e-3)
    for whole, phases in zip(times.step_s, times.phases_s, strict=True):
        assert sum(phases.values()) == pytest.approx(whole)
        assert phases["backward"] == pytest.approx(0.012, rel=1e-3)
        assert phases["other"] <= 0.02 * whole


def test_a_step_bound_by_the_host_is_timed_as_the_host_spends_it():
    device = SimulatedDevice()

    def step(marks):
        marks.enter("forward")
        for _ in range(500):
            device.work(1e-7)

    times = events.measure_steps(step, events.StepBudget.smoke(), device)
    assert times.step_s[5] == pytest.approx(500 * _module.LAUNCH_S, rel=0.01)
    assert times.events_over_wall == pytest.approx(1.0, abs=0.01)


def device_report(times):
    return {
        "times": {"clock": "device_events", **{name: getattr(times, name) for name in times.__slots__}},
        "work": {"units": 1.0, "unit_metric": "steps_per_s", "unit_unit": "1/s", "flop": 0.0, "formula": ""},
        "memory": dict.fromkeys(measurements.MEMORY_ROLES, 0.0),
    }


@pytest.mark.parametrize(("clock_error", "role"), [(0.0, "gate"), (0.005, "gate"), (0.03, "watch"), (-0.03, "watch")])
def test_events_that_disagree_with_the_wall_clock_by_a_percent_are_not_judged(clock_error, role):
    device = SimulatedDevice(clock_error=clock_error)
    times = events.measure_steps(training_step(device), events.StepBudget(), device)
    assert times.events_over_wall == pytest.approx(1 + clock_error, abs=2e-3)
    found = {m["metric"]: m for m in measurements.of_reports([device_report(times)])}
    assert found["step_ms"]["role"] == role
    assert found["events_over_wall"]["value"] == times.events_over_wall


def test_warm_up_lasts_ten_steps_and_three_seconds_and_until_windows_agree():
    device = SimulatedDevice()
    steady = events.measure_steps(training_step(device, 1.0), events.StepBudget(measure_s=0.1, least_steps=1), device)
    assert (steady.warm_up_steps, steady.settled) == (10, True)
    quick = events.measure_steps(training_step(device, 0.1), events.StepBudget(measure_s=0.1, least_steps=1), device)
    assert quick.warm_up_steps >= 30
    cooling = training_step(device, lambda n: 0.5 + max(0.0, 1.0 - n / 30))
    slow = events.measure_steps(cooling, events.StepBudget(measure_s=0.1, least_steps=1), device)
    assert slow.warm_up_steps >= 30
    assert slow.settled


def test_a_device_that_never_settles_is_measured_and_said_not_to_have_converged():
    device = SimulatedDevice()
    restless = training_step(device, lambda n: 0.5 * 1.02**n)
    times = events.measure_steps(restless, events.StepBudget(measure_s=0.1, least_steps=1), device)
    assert not times.settled
    gate = measurements.of_reports([device_report(times)])[0]
    assert gate["converged"] is False


def test_a_flushed_step_reads_from_memory_and_the_flush_is_no_part_of_its_time():
    def found(*, flush):
        device = SimulatedDevice()
        read = functools.partial(device.work, 3e-4, buffer="cache of keys", size=2**25)

        def step(marks):
            marks.enter("forward")
            read()

        return events.measure_steps(step, events.StepBudget.smoke(), device, flush=flush)

    flushed, warm = found(flush=True), found(flush=False)
    assert flushed.step_s == pytest.approx([3e-4] * len(flushed.step_s), rel=0.01)
    assert warm.step_s[1:] == pytest.approx([1e-4] * len(warm.step_s[1:]), rel=0.02), "33 MB stay in the cache"
    assert flushed.events_over_wall == pytest.approx(1.0, abs=0.01), "the clocks are compared with the flushes in"


def test_what_queued_calls_take_has_nothing_of_the_host_in_it():
    device = SimulatedDevice()
    each, refills = 1e-6, []

    def alone():
        start = device.record()
        device.work(each)
        return device.seconds(start, device.record())

    assert alone() > 4e-6, "asking for it takes the host longer than the call"
    queued = events.queued_seconds(lambda: device.work(each), lambda: refills.append(1), samples=10, device=device)
    assert queued == pytest.approx([each] * 10, rel=0.1)
    assert len(refills) == 10


def test_steady_state_begins_only_when_nothing_is_compiled_any_more():
    device, compiled_at = SimulatedDevice(), 14
    add_one = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    count = iter(range(10**9))

    def step(marks):
        number = next(count)
        add_one(torch.ones(3 if number < compiled_at else 4))
        device.work(1.0)

    times = events.measure_steps(step, events.StepBudget(warm_up_s=14.5, measure_s=0.1, least_steps=1), device)
    torch._dynamo.reset()
    assert times.warm_up_steps == compiled_at + 1 + 15, "the whole warm-up after the one that compiled"


def test_what_the_compiler_takes_is_no_part_of_the_warm_up():
    """A minute of compiling used up the longest warm-up: the second step was measured."""
    device, count = SimulatedDevice(), iter(range(10**9))
    add_one = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)

    def step(marks):
        add_one(torch.ones(5))
        device.work(90.0 if next(count) == 0 else 1.0)

    times = events.measure_steps(step, events.StepBudget(measure_s=0.1, least_steps=1), device)
    torch._dynamo.reset()
    assert (times.warm_up_steps, times.settled) == (1 + 10, True)


@pytest.mark.parametrize("size", [2**20, 2**24, 2**27, 2**30])
def test_buffers_in_turn_outweigh_the_cache(size):
    count = events.rotations(size)
    assert count == 1 or count * size >= FLUSH_BYTES
    assert (count == 1) == (size >= FLUSH_BYTES)


def test_a_ceiling_is_read_under_load_after_the_device_has_warmed():
    """At its boost clock a cool device makes a product in half the time that it can keep up."""
    device, spent = SimulatedDevice(), [0.0]

    def product():
        seconds = 1e-3 if spent[0] < 0.8 else 2e-3
        spent[0] += seconds
        device.work(seconds)

    seconds = events.seconds_under_load([product], device)
    assert min(seconds) > 1.9e-3
    assert sum(seconds) >= 2.0, "and a second before them that is dropped"


def test_the_product_ceiling_takes_turns_with_matrices_of_its_own():
    from benchmarks.harness.workload import Job
    from benchmarks.workloads.ceilings import Gemm

    config = {"side": 2048, "dtype": "fp32", "device": "cpu"}
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1, "tasks": ()}
    gemm = Gemm(Job(benchmark="ceiling.gemm", workload="", variant={}, config=config, preset="cpu", **fields))
    calls = gemm.rotated(gemm.product)
    assert len(calls) == events.rotations(2 * gemm.left.nbytes) == 8
    matrices = {call.args[0].data_ptr() for call in calls[1:]} | {gemm.left.data_ptr()}
    assert len(matrices) == len(calls)
    assert torch.equal(calls[1].args[0], gemm.left)


def test_the_worked_example_of_24_ms_adds_up_and_its_shares_are_as_published():
    device = SimulatedDevice()
    example = {"forward": 10.5, "backward": 9.0, "exposed_communication": 4.0}

    def step(marks):
        device.work(0.5e-3)
        for phase, milliseconds in example.items():
            marks.enter(phase)
            device.work(milliseconds / 1000)

    times = events.measure_steps(step, events.StepBudget(measure_s=0.1, least_steps=20), device)
    found = {m["metric"]: m["value"] for m in measurements.of_reports([device_report(times)])}
    assert found["step_ms"] == pytest.approx(24.0, rel=1e-3)
    parts = [found[f"{name}_ms"] for name in (*example, "other")]
    assert parts == pytest.approx([10.5, 9.0, 4.0, 0.5], abs=0.02)
    assert sum(parts) == pytest.approx(found["step_ms"])
    shares = [100 * part / found["step_ms"] for part in parts]
    assert shares == pytest.approx([43.8, 37.5, 16.7, 2.1], abs=0.1)
