"""Constant offsets between workers of one testbed, learnt per series: boxes of one kind differ by up to a tenth.

The first worker of a series defines the level. A worker that joins later calibrates: its first runs are compared with
the level of the others, and not judged. Its offset is then frozen, so that what changes on it later stays visible.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class WorkerOffset:
    """What is known of one worker in one series."""

    name: str
    offset: float = 0.0
    """Log cost of this worker above the level of the series."""
    residuals: tuple[float, ...] = ()
    """While calibrating: its runs against the level."""
    ready: bool = False


def find(workers: tuple[WorkerOffset, ...], name: str) -> WorkerOffset | None:
    """The worker of this name, if the series has seen it."""
    return next((w for w in workers if w.name == name), None)


def calibrate(worker: WorkerOffset, residual: float, runs: int) -> WorkerOffset:
    """One more calibration run: its distance from the level of the series."""
    residuals = (*worker.residuals, residual)
    if len(residuals) < runs:
        return replace(worker, residuals=residuals)
    return WorkerOffset(worker.name, statistics.median(residuals), (), True)


def put(workers: tuple[WorkerOffset, ...], worker: WorkerOffset) -> tuple[WorkerOffset, ...]:
    """The workers with this one replaced or added."""
    return (*(w for w in workers if w.name != worker.name), worker)
