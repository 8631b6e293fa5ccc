"""Timing on an accelerator: an event per step boundary, kernels with a flushed cache, and no host in the way.

Nothing here reads a result while the device works: events are recorded, and read after one synchronisation.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch

from benchmarks.harness.marks import EventMarks, Marks, NoMarks

FLUSH_BYTES = 256 * 1024 * 1024
LEAST_KERNEL_SAMPLES = 50
SHORT_KERNEL_S = 50e-6
CALLS_IN_GRAPH = 20
SLEEP_CYCLES_PER_CALL = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBudget:
    """Points 6 and 7 of the protocol: how long to warm up, when it has settled, how many steps to time."""

    warm_up_steps: int = 10
    warm_up_s: float = 3.0
    settle_within: float = 0.005
    longest_warm_up_s: float = 60.0
    steps: int = 100
    measure_s: float = 10.0

    @classmethod
    def smoke(cls) -> StepBudget:
        """Scaled down; results of this preset are never judged."""
        return cls(warm_up_s=0.5, settle_within=0.02, longest_warm_up_s=10.0, steps=20, measure_s=1.0)


@dataclass(slots=True)
class StepTimes:
    """Seconds of each step by events, phases of each, and how well events and the wall clock agree."""

    step_s: list[float] = field(default_factory=list)
    phases_s: list[dict[str, float]] = field(default_factory=list)
    warm_up_steps: int = 0
    settled: bool = False
    events_over_wall: float = 0.0
    host_s: float = 0.0


def measure_steps(step: Callable[[Marks], None], budget: StepBudget) -> StepTimes:
    """Warms up until steady, then times steps back to back; the device never waits for a reading."""
    times = StepTimes()
    _warm_up(step, budget, times)
    gc.collect()
    gc.disable()
    try:
        _timed_steps(step, budget, times)
    finally:
        gc.enable()
    return times


def settled(durations: list[float], within: float) -> bool:
    """Whether the medians of the last two windows of five agree within this fraction."""
    if len(durations) < 10:
        return False
    earlier, later = median(durations[-10:-5]), median(durations[-5:])
    return abs(later / earlier - 1) <= within


def _warm_up(step: Callable[[Marks], None], budget: StepBudget, times: StepTimes) -> None:
    began, durations = time.perf_counter(), []
    while True:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step(NoMarks())
        end.record()
        end.synchronize()
        durations.append(start.elapsed_time(end))
        passed = time.perf_counter() - began
        times.warm_up_steps, times.settled = len(durations), settled(durations, budget.settle_within)
        enough = len(durations) >= budget.warm_up_steps and passed >= budget.warm_up_s
        if (enough and times.settled) or passed >= budget.longest_warm_up_s:
            return


def _timed_steps(step: Callable[[Marks], None], budget: StepBudget, times: StepTimes) -> None:
    boundaries = [torch.cuda.Event(enable_timing=True)]
    marks: list[EventMarks] = []
    torch.cuda.synchronize()
    began = time.perf_counter()
    boundaries[0].record()
    while len(marks) < budget.steps or time.perf_counter() - began < budget.measure_s:
        marks.append(EventMarks())
        step(marks[-1])
        boundary = torch.cuda.Event(enable_timing=True)
        boundary.record()
        boundaries.append(boundary)
        if len(marks) >= 100 * budget.steps:
            break
    times.host_s = time.perf_counter() - began
    boundaries[-1].synchronize()
    wall = time.perf_counter() - began
    for number, mark in enumerate(marks):
        whole = boundaries[number].elapsed_time(boundaries[number + 1]) / 1000
        phases = mark.seconds(boundaries[number + 1])
        times.step_s.append(whole)
        times.phases_s.append({"other": max(0.0, whole - sum(phases.values())), **phases})
    times.events_over_wall = sum(times.step_s) / wall


def kernel_seconds(work: Callable[[], object], *, flush: bool, samples: int = LEAST_KERNEL_SAMPLES) -> list[float]:
    """Point 8: seconds of single calls, the cache flushed before each; short ones as a graph of many calls.

    Below about 50 µs the gap between two launches would be timed instead of the kernel, so calls are captured in one
    graph, and replayed behind a sleeping kernel that keeps the device busy while the host queues them.
    """
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    seconds = _single_calls(work, flush=flush, samples=samples)
    if median(seconds) >= SHORT_KERNEL_S:
        return seconds
    return _graph_of_calls(work, samples)


def _single_calls(work: Callable[[], object], *, flush: bool, samples: int) -> list[float]:
    cache = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda") if flush else None
    pairs = []
    torch.cuda._sleep(SLEEP_CYCLES_PER_CALL * samples)
    for _ in range(samples):
        if cache is not None:
            cache.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1000 for start, end in pairs]


def _graph_of_calls(work: Callable[[], object], samples: int) -> list[float]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_IN_GRAPH):
            work()
    pairs = []
    for _ in range(samples):
        torch.cuda._sleep(SLEEP_CYCLES_PER_CALL)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1000 / CALLS_IN_GRAPH for start, end in pairs]
