"""A slow-down of a known size, put into a step on purpose: what an interleaved session must find."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks.harness.marks import Marks, NoMarks

CALIBRATION_STEPS = 15
SLEEP_CYCLES = 10_000_000


class Slowed:
    """A workload whose every step costs a fraction more; in all else it is the one it wraps."""

    def __init__(self, workload: Any, fraction: float, device: str) -> None:
        if fraction <= 0:
            raise ValueError(f"a slow-down of {fraction} is none; it is a fraction above 0, e.g. 0.02")
        self._workload, self._device = workload, device
        seconds = self._seconds_of_a_step() * fraction
        if device == "cpu":
            self._spend = lambda: _spin(seconds)
            return
        import torch

        cycles = int(seconds * _cycles_per_second())
        self._spend = lambda: torch.cuda._sleep(cycles)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def step(self, marks: Marks) -> None:
        """The step, and then the fraction more, in whichever phase came last."""
        self._workload.step(marks)
        self._spend()

    def _seconds_of_a_step(self) -> float:
        """By the thread's own time on a CPU, by events on an accelerator."""
        if self._device == "cpu":
            found = []
            for _ in range(CALIBRATION_STEPS):
                began = time.thread_time()
                self._workload.step(NoMarks())
                found.append(time.thread_time() - began)
            return median(found)
        from benchmarks.harness import events

        return median(events.measure_steps(self._workload.step, events.StepBudget.smoke()).step_s)


def _spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _cycles_per_second() -> float:
    """How many cycles of the sleeping kernel last a second on this device, at the clock of the moment."""
    import torch

    found = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.cuda._sleep(SLEEP_CYCLES)
        end.record()
        torch.cuda.synchronize()
        found.append(SLEEP_CYCLES / (start.elapsed_time(end) / 1000))
    return median(found)
