"""Constant offsets between workers of one testbed, learnt per series: boxes of one kind differ by up to a tenth.

The first worker of a series defines the level. A worker that joins later calibrates: its first runs are compared with
the level of the others, and not judged. Its offset is then frozen, so that what changes on it later stays visible; only
the first runs after an accepted change may correct it, because a change need not be of one size on every machine.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

RELEARN_RUNS = 6
"""So many runs of a worker after an accepted change may correct its offset."""
OTHERS_RUNS = 4
"""A worker is compared with at least so many runs of the others."""
LEAST_SPREAD = 3e-4
CLEAR = 5.0
"""A correction is made when it is so many standard errors."""
SEEN_ONCE = 12
"""So many workers that came once: these are machines of a pool, a fresh one each time, of which nothing is learnt."""
LEFT_EARLY = 24
"""So many workers of which not enough came to learn from: these are machines of a pool as well."""


@dataclass(frozen=True, slots=True)
class WorkerOffset:
    """The estimates for one worker in one series."""

    name: str
    offset: float = 0.0
    """Log cost of this worker above the level of the series."""
    residuals: tuple[float, ...] = ()
    """Its first runs against the level: while it is calibrated, and after an accepted change."""
    ready: bool = False


def find(workers: tuple[WorkerOffset, ...], name: str) -> WorkerOffset | None:
    """The worker of this name, if the series has seen it."""
    for worker in workers:
        if worker.name == name:
            return worker
    return None


def seldom_return(workers: tuple[WorkerOffset, ...]) -> bool:
    """Whether the workers of this series are machines that come once or a few times: a new one is then judged as it
    comes."""
    seen = [len(worker.residuals) for worker in workers if not worker.ready]
    return seen.count(1) >= SEEN_ONCE or len(seen) >= LEFT_EARLY


def calibrate(worker: WorkerOffset, residual: float, runs: int) -> WorkerOffset:
    """One more calibration run: its distance from the level of the series."""
    residuals = (*worker.residuals, residual)
    if len(residuals) < runs:
        return replace(worker, residuals=residuals)
    return WorkerOffset(worker.name, statistics.median(residuals), (), True)


def put(workers: tuple[WorkerOffset, ...], worker: WorkerOffset) -> tuple[WorkerOffset, ...]:
    """The workers with this one replaced or added."""
    return (*(w for w in workers if w.name != worker.name), worker)


def relearn(workers: tuple[WorkerOffset, ...], name: str, residual: float) -> tuple[WorkerOffset, ...]:
    """One more run since the last accepted change: offsets that fit no longer are corrected."""
    worker = find(workers, name)
    if worker is None or len(workers) < 2 or len(worker.residuals) >= RELEARN_RUNS:
        return workers
    seen = replace(worker, residuals=(*worker.residuals, residual))
    known = tuple(seen if w.name == name else w for w in workers)
    return tuple(_corrected(w, known) for w in known)


def _corrected(worker: WorkerOffset, workers: tuple[WorkerOffset, ...]) -> WorkerOffset:
    others = [r for w in workers if w.name != worker.name and w.ready for r in w.residuals]
    own = worker.residuals
    # The first worker defines the level: what it differs by is the others' to correct.
    if not worker.ready or worker.offset == 0 or len(own) < RELEARN_RUNS or len(others) < OTHERS_RUNS:
        return worker
    centre, theirs = statistics.median(own), statistics.median(others)
    wrong = centre - theirs
    squares = sum((r - centre) ** 2 for r in own) + sum((r - theirs) ** 2 for r in others)
    spread = max(LEAST_SPREAD, math.sqrt(squares / (len(own) + len(others) - 2)))
    if abs(wrong) < CLEAR * spread * math.sqrt(1 / len(own) + 1 / len(others)):
        return worker
    return replace(worker, offset=worker.offset + wrong, residuals=tuple(r - wrong for r in own))


def after_change(workers: tuple[WorkerOffset, ...]) -> tuple[WorkerOffset, ...]:
    """A change was accepted: later runs are compared afresh."""
    return tuple(replace(w, residuals=()) if w.ready else w for w in workers)
