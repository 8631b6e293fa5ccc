"""Timing on an accelerator: an event per step boundary, and no host in the way.

Nothing here reads a result while the device works: events are recorded, and read after one synchronisation. The
device itself is behind `Device`, so that the protocol can be tested where there is none.
"""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.harness.timing.device import FLUSH_BYTES, CudaDevice, Device
from benchmarks.harness.timing.marks import EventMarks, Marks, NoMarks
from benchmarks.harness.timing.start_up import graphs_compiled

LEAST_KERNEL_SAMPLES = 50
MOST_ROTATED = 256
CALLS_IN_QUEUE = 20
SLEEP_CYCLES_PER_QUEUED_CALL = 150_000
"""Some 80 µs: what the host may take to ask for one collective."""

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBudget:
    """Points 6 and 7 of the protocol: how long to warm up, when it has settled, how long to time.

    `measure_s` is filled with steps; with `least_steps` where they are so long that fewer would fill it.
    """

    warm_up_steps: int = 10
    warm_up_s: float = 3.0
    settle_within: float = 0.005
    longest_warm_up_s: float = 60.0
    longest_compiling_s: float = 600.0
    """Warm-up begins again when something was compiled; code that never stops compiling is measured after so long."""
    least_steps: int = 20
    most_steps: int = 10_000
    measure_s: float = 10.0

    @classmethod
    def smoke(cls) -> StepBudget:
        """Scaled down; results of this preset are never judged."""
        return cls(warm_up_s=0.5, settle_within=0.02, longest_warm_up_s=10.0, least_steps=5, measure_s=1.0)


@dataclass(slots=True)
class StepTimes:
    """Seconds of each step by events, phases of each, and how well events and the wall clock agree."""

    step_s: list[float] = field(default_factory=list)
    phases_s: list[dict[str, float]] = field(default_factory=list)
    warm_up_steps: int = 0
    settled: bool = False
    events_over_wall: float = 0.0
    host_s: float = 0.0


def measure_steps(
    step: Callable[[Marks], None], budget: StepBudget, device: Device | None = None, *, flush: bool = False
) -> StepTimes:
    """Warms up until steady, then times steps back to back; the device never waits for a reading.

    With `flush` the cache is emptied before each step, outside of its time.
    """
    device, times = device or CudaDevice(), StepTimes()
    typical_s = _warm_up(step, budget, times, device, flush=flush)
    gc.collect()
    gc.disable()
    try:
        _timed_steps(step, steps_to_time(budget, typical_s), times, device, flush=flush)
    finally:
        gc.enable()
    return times


def settled(durations: Sequence[float], within: float) -> bool:
    """Whether the medians of the last two windows of five agree within this fraction."""
    if len(durations) < 10:
        return False
    earlier, later = median(durations[-10:-5]), median(durations[-5:])
    return abs(later / earlier - 1) <= within


def steps_to_time(budget: StepBudget, typical_s: float) -> int:
    """How many steps last long enough; planned beforehand, because the host's clock runs ahead of a queue."""
    wanted = math.ceil(budget.measure_s / max(typical_s, 1e-9))
    return max(budget.least_steps, min(wanted, budget.most_steps))


def _warm_up(
    step: Callable[[Marks], None], budget: StepBudget, times: StepTimes, device: Device, *, flush: bool
) -> float:
    """Steps until enough of them agree; a step in which something was compiled starts the warm-up anew, its clock too.

    Returns what a step took in the end.
    """
    first = began = device.now()
    graphs = graphs_compiled()
    since_compiled: list[float] = []
    while True:
        if flush:
            device.flush()
        start = device.record()
        step(NoMarks())
        end = device.record()
        device.synchronize()
        since_compiled.append(device.seconds(start, end))
        times.warm_up_steps += 1
        if graphs_compiled() != graphs:
            graphs, since_compiled, began = graphs_compiled(), [], device.now()
        times.settled = settled(since_compiled, budget.settle_within)
        passed = device.now() - began
        enough = len(since_compiled) >= budget.warm_up_steps and passed >= budget.warm_up_s
        too_long = passed >= budget.longest_warm_up_s or device.now() - first >= budget.longest_compiling_s
        if (enough and times.settled) or too_long:
            return median(since_compiled[-5:]) if since_compiled else device.seconds(start, end)


def _timed_steps(step: Callable[[Marks], None], count: int, times: StepTimes, device: Device, *, flush: bool) -> None:
    steps: list[tuple[object, EventMarks, object]] = []
    device.synchronize()
    began = device.now()
    first = end = device.record()
    for _ in range(count):
        if flush:
            device.flush()
        start = device.record() if flush else end
        marks = EventMarks(device)
        step(marks)
        end = device.record()
        steps.append((start, marks, end))
    times.host_s = device.now() - began
    device.synchronize()
    wall = device.now() - began
    for start, marks, end in steps:
        whole, phases = device.seconds(start, end), marks.seconds(end)
        times.step_s.append(whole)
        times.phases_s.append({"other": max(0.0, whole - sum(phases.values())), **phases})
    times.events_over_wall = device.seconds(first, end) / wall


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBudget:
    """How long a kernel is repeated until its clock is that of steady load, and how long it is then timed."""

    dropped_s: float = 1.0
    measure_s: float = 2.0
    calls_per_wait: int = 25
    most_samples: int = 20_000


def seconds_under_load(
    calls: Sequence[Call], device: Device | None = None, budget: LoadBudget | None = None
) -> list[float]:
    """Seconds of single calls back to back, after a second of the same: a cool device runs faster than it can stay.

    `calls` take turns on buffers of their own. The host waits only once in `calls_per_wait` calls.
    """
    device, budget = device or CudaDevice(), budget or LoadBudget()
    found: list[float] = []
    for seconds, kept in ((budget.dropped_s, False), (budget.measure_s, True)):
        spent = 0.0
        while spent < seconds and len(found) < budget.most_samples:
            boundaries = [device.record()]
            for number in range(budget.calls_per_wait):
                calls[number % len(calls)]()
                boundaries.append(device.record())
            device.synchronize()
            each = [device.seconds(*pair) for pair in itertools.pairwise(boundaries)]
            spent += sum(each)
            found += each if kept else []
    return found


def rotations(bytes_per_call: float) -> int:
    """How many sets of buffers calls must take turns with, so that none finds its own still in the cache."""
    return max(1, min(MOST_ROTATED, -(-FLUSH_BYTES // max(1, int(bytes_per_call)))))


def queued_seconds(
    call: Call, before: Call, *, samples: int = LEAST_KERNEL_SAMPLES, device: Device | None = None
) -> list[float]:
    """Seconds of a call without what the host takes to ask for it: the mean of many that wait in the queue.

    A sleeping kernel holds the queue until the host has put all of them there. `before` is called before each sample.
    """
    device, found = device or CudaDevice(), []
    for _ in range(samples):
        before()
        device.sleep(SLEEP_CYCLES_PER_QUEUED_CALL * CALLS_IN_QUEUE)
        start = device.record()
        for _ in range(CALLS_IN_QUEUE):
            call()
        end = device.record()
        device.synchronize()
        found.append(device.seconds(start, end) / CALLS_IN_QUEUE)
    return found
