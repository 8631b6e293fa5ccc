"""Measure the harness's own cost per step: its marks, clock readings and events around a step that does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.harness.timing import events, paired
from benchmarks.harness.timing.clock import HostClock
from benchmarks.harness.timing.device import CudaDevice, Device
from benchmarks.harness.timing.marks import EventMarks, Marks

Step = Callable[[Marks], None]

ROUNDS, EMPTY_STEPS, STEPS = 15, 200, 20


class _Names:
    """Writes down which phases a step enters."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def enter(self, phase: str) -> None:
        self.phases.append(phase)


def measure_overhead(step: Step, device: str) -> dict[str, float]:
    """Milliseconds of the harness in one step, of the step, and their quotient.

    The step that does nothing enters the same phases, so what it takes is the harness alone. Measured apart, because
    the difference of two whole steps would be lost in their noise. On an accelerator it is an upper bound: the host
    records events while the device works.
    """
    names = _Names()
    step(names)

    def nothing(marks: Marks) -> None:
        for phase in names.phases:
            marks.enter(phase)

    empty_s, step_s = _on_cpu(nothing, step) if device == "cpu" else _on_device(nothing, step, CudaDevice())
    return {"harness_ms": 1000 * empty_s, "step_ms": 1000 * step_s, "overhead": empty_s / step_s}


def _on_cpu(nothing: Step, step: Step) -> tuple[float, float]:
    clock = HostClock()

    def each(work: Step, count: int) -> float:
        began = time.thread_time()
        for _ in range(count):
            paired._timed_steps(work, clock, 1)
        return (time.thread_time() - began) / count

    for work in (nothing, step):
        each(work, 3)
    # Thread time, and the least of a few rounds: neighbours only ever add.
    return min(each(nothing, EMPTY_STEPS) for _ in range(ROUNDS)), median(each(step, 1) for _ in range(STEPS))


def _on_device(nothing: Step, step: Step, device: Device) -> tuple[float, float]:
    step_s = median(events.measure_steps(step, events.StepBudget.smoke(), device).step_s)
    found = []
    for _ in range(ROUNDS):
        device.synchronize()
        began = device.now()
        for _ in range(EMPTY_STEPS):
            nothing(EventMarks(device))
            device.record()
        found.append((device.now() - began) / EMPTY_STEPS)
        device.synchronize()
    return median(found), step_s
