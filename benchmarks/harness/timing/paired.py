"""Timing on a CPU: the step and the yardstick in random order, pair by pair, in one process.

Neighbours on the machine move absolute medians by tens of percent; they move the quotient of two neighbours in time
by little. The value of a process is the median of its paired quotients.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from benchmarks.harness.timing.clock import HostClock
from benchmarks.harness.timing.marks import HostMarks, Marks, NoMarks
from benchmarks.harness.timing.start_up import graphs_compiled
from benchmarks.harness.timing.yardstick import Yardstick

Step = Callable[[Marks], None]

LEAST_PAIRS = 9
SAMPLE_S = 4e-3
"""A shorter step is repeated until a sample lasts so long: the yardstick's order, and far over the clock's grain."""
MOST_STEPS_PER_SAMPLE = 200
LONGEST_COMPILING_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long to warm up and to measure, in seconds of wall time, scaled to the preset."""

    warm_up_s: float
    measure_s: float
    settle_within: float = 0.02
    """Warm-up ends when the medians of its last two windows agree this closely (a fraction), or when its time is
    spent.
    """


@dataclass(slots=True)
class PairedTimes:
    """Seconds of each pair, the phases of each step, and whether warm-up had settled."""

    step_s: list[float] = field(default_factory=list)
    yardstick_s: list[float] = field(default_factory=list)
    phases_s: list[dict[str, float]] = field(default_factory=list)
    warm_up_steps: int = 0
    settled: bool = False
    steps_per_sample: int = 1

    @property
    def ratios(self) -> list[float]:
        """Step over yardstick, pair by pair."""
        return [step / yard for step, yard in zip(self.step_s, self.yardstick_s, strict=True)]


def measure(step: Step, clock: HostClock, budget: Budget, rng: random.Random) -> PairedTimes:
    """Warms up, then times pairs until the budget is spent, the collector switched off so that no step pays for
    another's garbage.
    """
    yardstick = Yardstick()
    times = PairedTimes()
    _warm_up(step, yardstick, clock, budget, times)
    gc.collect()
    gc.disable()
    try:
        deadline = time.perf_counter() + budget.measure_s
        while time.perf_counter() < deadline or len(times.step_s) < LEAST_PAIRS:
            step_first = rng.random() < 0.5
            if not step_first:
                times.yardstick_s.append(_timed_yardstick(yardstick, clock))
            phases = _timed_steps(step, clock, times.steps_per_sample)
            times.phases_s.append(phases)
            times.step_s.append(sum(phases.values()))
            if step_first:
                times.yardstick_s.append(_timed_yardstick(yardstick, clock))
    finally:
        gc.enable()
    return times


def _warm_up(step: Step, yardstick: Yardstick, clock: HostClock, budget: Budget, times: PairedTimes) -> None:
    first = time.perf_counter()
    deadline, graphs = first + budget.warm_up_s, graphs_compiled()
    window: list[float] = []
    while True:
        before = clock.now()
        step(NoMarks())
        window.append(before.until(clock.now()))
        if graphs_compiled() != graphs and time.perf_counter() - first < LONGEST_COMPILING_S:
            # What was compiled is not warm yet, and what the compiler took is no part of the warm-up.
            deadline, graphs, window = time.perf_counter() + budget.warm_up_s, graphs_compiled(), []
        yardstick.step()
        times.warm_up_steps += 1
        half = len(window) // 2
        if len(window) >= 6 and half:
            times.settled = abs(median(window[-half:]) / median(window[-2 * half : -half]) - 1) <= budget.settle_within
        spent = time.perf_counter() >= deadline
        if len(window) >= 3 and (spent or (times.settled and len(window) >= 10)):
            break
    times.steps_per_sample = max(1, min(MOST_STEPS_PER_SAMPLE, round(SAMPLE_S / max(min(window), 1e-9))))


def _timed_steps(step: Step, clock: HostClock, count: int) -> dict[str, float]:
    """Seconds per phase of one step, over `count` of them in a row."""
    marks = HostMarks(clock)
    marks.start()
    for _ in range(count):
        step(marks)
    return {phase: seconds / count for phase, seconds in marks.stop().items()}


def _timed_yardstick(yardstick: Yardstick, clock: HostClock) -> float:
    before = clock.now()
    yardstick.step()
    return before.until(clock.now())


def phases_of_typical_steps(times: PairedTimes) -> dict[str, float]:
    """Share of each phase in a step, over the middle half of the steps by quotient: additive, and no straggler decides.

    The same steps serve every phase, so the shares sum to one exactly.
    """
    order = sorted(range(len(times.step_s)), key=lambda i: times.ratios[i])
    quarter = len(order) // 4
    middle = order[quarter : len(order) - quarter] or order
    total = sum(times.step_s[i] for i in middle)
    names = dict.fromkeys(name for phases in times.phases_s for name in phases)
    return {name: sum(times.phases_s[i].get(name, 0.0) for i in middle) / total for name in names}
