"""A slow-down of a known size, put into a step on purpose: what an interleaved session must find."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Any

from benchmarks.harness.timing.device import Device
from benchmarks.harness.timing.marks import Marks, NoMarks

CALIBRATION_STEPS = 15
PRODUCT_SIDE = 1024
"""Of the matrices multiplied to spend time: some four microseconds each, the grain of what can be spent."""


class Slowed:
    """A workload whose every step costs a fraction more; in all else it is the one it wraps.

    On an accelerator the step and what slows it are timed on `queue`, by default the current device's.
    """

    def __init__(self, workload: Any, fraction: float, device: str, queue: Device | None = None) -> None:
        if fraction <= 0:
            raise ValueError(f"a slow-down of {fraction} is none; it is a fraction above 0, e.g. 0.02")
        self._workload, self._device, self._queue = workload, device, queue
        seconds = self._seconds_of_a_step() * fraction
        if device == "cpu":
            self._spend = lambda: _spin(seconds)
            return
        import torch

        from benchmarks.harness.timing import events

        # Work, not sleep: a device at its power limit cools while it sleeps, and makes up for it in the step.
        left, right = (torch.randn(PRODUCT_SIDE, PRODUCT_SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        into = torch.empty_like(left)
        each = median(events.seconds_under_load([lambda: torch.mm(left, right, out=into)], queue))
        self._spend = partial(_multiply, left, right, into, max(1, round(seconds / each)))

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
        from benchmarks.harness.timing import events

        flush = getattr(self._workload, "flushes", False)
        budget = events.StepBudget.smoke()
        return median(events.measure_steps(self._workload.step, budget, self._queue, flush=flush).step_s)


def _spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _multiply(left: Any, right: Any, into: Any, times: int) -> None:
    import torch

    for _ in range(times):
        torch.mm(left, right, out=into)
