"""Residuals of one testbed, row by row, against a level per worker and every explained change.

A row is a run. Its residual is its log cost minus the level of its worker and minus the shifts that apply to it: code
from a commit on, an environment from its first run on, a machine while it was slow. What is left over wants a cause.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.regression.joint.terms import Bools, Floats, Ints, JointRun, JointSeries

KEPT = 420
"""Rows held; older ones say nothing of today's level."""
CALIBRATION = 4
"""Runs of a new worker before it is judged."""
REMEMBERED = 60
"""Runs of a worker that make its level."""
YOUNG = 6
"""The newest runs of a testbed are not part of the level: they may be the change."""
NOISE_FLOOR = 0.0025
SIZE_FLOOR = 0.002
EXACT_FLOOR = 0.0002
FEW = 10
"""Runs of a worker from which its own noise is known."""
UNSTEADY = 4.0
"""Variance over that of the steadiest worker from which a worker says nothing of the others' noise."""
MEDIAN_OF_VARIANCES = 0.78
"""Median of a variance of three to five processes, over its mean."""


@dataclass(frozen=True, slots=True)
class Shift:
    """An explained change: where it applies, and by how much (log cost per series)."""

    delta: Floats
    from_position: int | None = None
    from_level: int | None = None
    """Of the environment."""
    worker: int | None = None
    from_stamp: float = 0.0
    until_stamp: float = float("inf")


@dataclass(frozen=True, slots=True)
class RecentRows:
    """Some rows with their residuals: the newest last. Missing values are 0 and not in the mask."""

    rows: Ints
    residual: Floats
    mask: Bools
    variance: Floats
    level_variance: Floats
    """Of the levels themselves, which are learnt from a few rows."""

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, keep: Bools) -> RecentRows:
        return replace(
            self,
            rows=self.rows[keep],
            residual=self.residual[keep],
            mask=self.mask[keep],
            variance=self.variance[keep],
        )


class RowsOfTestbed:
    """The rows of one testbed and the levels learnt from them."""

    def __init__(self, name: str, series: Sequence[JointSeries]) -> None:
        self.name = name
        self.size = len(series)
        self.floor: Floats = np.array(
            [EXACT_FLOOR if s.exact else NOISE_FLOOR if s.machine_bound else SIZE_FLOOR for s in series]
        )
        self.n = 0
        capacity = KEPT
        self.raw = np.full((capacity, self.size), np.nan)
        self.clean = np.full((capacity, self.size), np.nan)
        self.position = np.zeros(capacity, dtype=np.int64)
        self.worker = np.zeros(capacity, dtype=np.int64)
        self.level = np.zeros(capacity, dtype=np.int64)
        self.stamp = np.zeros(capacity)
        self.usable = np.zeros(capacity, dtype=bool)
        self.docs = np.zeros(capacity, dtype=bool)
        self.excused = np.zeros((capacity, self.size), dtype=bool)
        self.workers: list[str] = []
        self.base = np.zeros((0, self.size))
        """Level per worker and series; NaN until a worker has measured a series often enough."""
        self.ready: list[bool] = []
        self.learnt = np.zeros(0)
        """Rows that each worker's level was learnt from."""
        self.sigma = np.maximum(self.floor, 0.02)
        self.sigma_of = np.zeros((0, self.size))
        self.spread = np.full((capacity, self.size), np.nan)
        self.process_variance = np.zeros(self.size)
        """Of the log cost between processes of a run, as it usually is."""
        self.order: list[tuple[int, int]] = []
        self.shifts: dict[tuple[str, int], Shift] = {}

    # --- rows

    def add(self, run: JointRun, level: int) -> int:
        """Store a run; returns its row."""
        if self.n == len(self.position):
            self._grow()
        row, w = self.n, self.worker_number(run.worker)
        self.n += 1
        self.raw[row] = run.cost
        self.position[row], self.worker[row], self.level[row] = run.position, w, level
        self.stamp[row], self.docs[row], self.usable[row] = run.timestamp, run.docs_only, True
        insort(self.order, (run.position, row))
        clean = run.cost.copy()
        for shift in self.shifts.values():
            if self._applies(shift, slice(row, row + 1))[0]:
                clean -= shift.delta
        self.clean[row] = clean
        self.spread[row] = run.spread
        return row

    def worker_number(self, name: str) -> int:
        if name not in self.workers:
            self.workers.append(name)
            self.base = np.vstack([self.base, np.full(self.size, np.nan)])
            self.sigma_of = np.vstack([self.sigma_of, self.sigma])
            self.ready.append(False)
            self.learnt = np.append(self.learnt, 1.0)
        return self.workers.index(name)

    def _grow(self) -> None:
        for name in ("raw", "clean", "spread", "position", "worker", "level", "stamp", "usable", "docs", "excused"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))

    # --- shifts

    def _applies(self, shift: Shift, rows: slice) -> Bools:
        hit: Bools = np.ones(len(self.position[rows]), dtype=bool)
        if shift.from_position is not None:
            hit &= self.position[rows] >= shift.from_position
        if shift.from_level is not None:
            hit &= self.level[rows] >= shift.from_level
        if shift.worker is not None:
            stamps = self.stamp[rows]
            hit &= (self.worker[rows] == shift.worker) & (stamps >= shift.from_stamp) & (stamps <= shift.until_stamp)
        return hit

    def put(self, key: tuple[str, int], shift: Shift | None) -> None:
        """Explain (or no longer explain) rows by a shift; an earlier one of the same key is replaced."""
        rows = slice(0, self.n)
        old = self.shifts.pop(key, None)
        if old is not None:
            self.clean[rows][self._applies(old, rows)] += old.delta
        if shift is not None:
            self.clean[rows][self._applies(shift, rows)] -= shift.delta
            self.shifts[key] = shift
        self.learn()

    # --- levels

    def learn(self) -> None:
        for w in range(len(self.workers)):
            self.learn_level(w)

    def learn_level(self, w: int, young: int = YOUNG) -> None:
        """The level of a worker: the mean of its settled rows, far ones pulled in."""
        rows = np.flatnonzero(self.usable[: self.n] & (self.worker[: self.n] == w))
        settled = rows[rows < self.n - young]
        if len(settled) < CALIBRATION:
            self.ready[w] = False
            return
        values = self.clean[settled[-REMEMBERED:]]
        reach = 3 * self.sigma
        centre = middle(values)
        mean = mean_of(np.clip(values, centre - reach, centre + reach))
        known = np.isfinite(values).sum(axis=0) >= CALIBRATION
        self.base[w] = np.where(known, mean, self.base[w])
        self.ready[w] = True
        self.learnt[w] = min(len(settled), REMEMBERED)

    def learn_noise(self, young: int = YOUNG) -> None:
        """Noise between runs: of the testbed's steady workers, and of a worker that is less steady than they are."""
        usual = middle(self.spread[max(0, self.n - 120) : self.n]) / MEDIAN_OF_VARIANCES
        self.process_variance = np.where(np.isfinite(usual), usual, self.process_variance)
        rows = np.flatnonzero(self.usable[: self.n])
        rows = rows[: len(rows) - young]
        rows = rows[np.array([self.ready[w] for w in self.worker[rows]], dtype=bool)][-120:]
        if len(rows) < 12:
            return
        residual = self.clean[rows] - self.base[self.worker[rows]]
        scale = np.maximum(1.4826 * np.nan_to_num(middle(np.abs(residual))), self.floor)
        squares = np.clip(residual, -4 * scale, 4 * scale) ** 2
        dof = len(rows) / max(1, len(rows) - len(self.workers))
        steady = np.sqrt(self._steady(squares, self.worker[rows]) * dof)
        self.sigma = np.maximum(np.where(np.isfinite(steady), steady, self.sigma), self.floor)
        for w in range(len(self.workers)):
            own = residual[self.worker[rows] == w]
            if len(own) >= 6:
                seen = np.isfinite(own)
                total = np.where(seen, np.clip(own, -0.2, 0.2) ** 2, 0).sum(axis=0)
                mixed = np.sqrt((total + 10 * self.sigma**2) / (seen.sum(axis=0) + 10))
                self.sigma_of[w] = np.maximum(mixed, self.sigma)
            else:
                self.sigma_of[w] = self.sigma

    def _steady(self, squares: Floats, workers: Ints) -> Floats:
        """Mean square per series, of the workers that are not far less steady in it than the steadiest."""
        means, counts = [], []
        for w in np.unique(workers):
            own = squares[workers == w]
            if len(own) >= FEW:
                means.append(mean_of(own))
                counts.append(np.isfinite(own).sum(axis=0))
        if len(means) < 2:
            return mean_of(squares)
        mean, count = np.array(means), np.array(counts)
        known = (count >= FEW) & np.isfinite(mean)
        steadiest = np.where(known, mean, np.inf).min(axis=0)
        weight = count * (known & (mean <= UNSTEADY * np.maximum(steadiest, self.floor**2)))
        total = weight.sum(axis=0)
        pooled = (np.where(weight > 0, mean, 0.0) * weight).sum(axis=0) / np.maximum(total, 1)
        return np.where(total > 0, pooled, mean_of(squares))

    # --- views

    def by_position(self, most: int) -> Ints:
        """The newest usable rows of calibrated workers, in the order of the branch."""
        found: list[int] = []
        for _, row in reversed(self.order):
            if self.usable[row] and self.ready[self.worker[row]]:
                found.append(row)
                if len(found) == most:
                    break
        return np.array(found[::-1], dtype=np.int64)

    def judged(
        self,
        newest: int | None = None,
        *,
        first: int | None = None,
        before: int | None = None,
        level: int | None = None,
        below: int | None = None,
    ) -> Ints:
        """Usable rows of calibrated workers in the order of the branch, of positions and environments as named."""
        order = self.order if newest is None else self.order[-newest:]
        rows = np.array([row for _, row in order], dtype=np.int64)
        keep = self.usable[rows] & np.array(self.ready, dtype=bool)[self.worker[rows]]
        if first is not None:
            keep &= self.position[rows] >= first
        if before is not None:
            keep &= self.position[rows] < before
        if level is not None:
            keep &= self.level[rows] >= level
        if below is not None:
            keep &= self.level[rows] < below
        kept: Ints = rows[keep]
        return kept

    def of_worker(self, w: int, most: int) -> Ints:
        """The newest rows of one worker, in the order of time."""
        rows = np.flatnonzero(self.worker[: self.n] == w)
        rows = rows[self.usable[rows]][-2 * most :]
        kept: Ints = rows[np.argsort(self.stamp[rows], kind="stable")][-most:]
        return kept

    def tail(self, rows: Ints, *, whole: bool = False) -> RecentRows:
        """Rows with their residuals; those excused are masked, unless the whole is wanted."""
        workers = self.worker[rows]
        residual = self.clean[rows] - self.base[workers]
        mask = np.isfinite(residual)
        if not whole:
            mask &= ~self.excused[rows]
        variance = self.sigma_of[workers] ** 2
        known = float(np.mean(1 / np.minimum(self.learnt[workers], 20))) if len(rows) else 1.0
        return RecentRows(rows, np.where(mask, residual, 0.0), mask, variance, self.sigma**2 * known)

    def mean(self, rows: Ints, *, whole: bool = False, against_level: bool = True) -> tuple[Floats, Floats]:
        """Mean residual of rows and its standard error, per series; the level's own error cancels between two means."""
        t = self.tail(rows, whole=whole)
        count = np.maximum(t.mask.sum(axis=0), 1)
        error = np.sqrt((t.variance * t.mask).sum(axis=0) / count**2 + (t.level_variance if against_level else 0.0))
        return t.residual.sum(axis=0) / count, np.where(t.mask.any(axis=0), error, np.inf)


def middle(values: Floats) -> Floats:
    """Median of every column, of what is there; NaN where nothing is."""
    ordered = np.sort(values, axis=0)  # NaN last
    count = np.isfinite(values).sum(axis=0)
    pair = np.stack([np.maximum(count - 1, 0) // 2, np.minimum(count // 2, len(values) - 1)])
    median: Floats = np.take_along_axis(ordered, pair, axis=0).mean(axis=0)
    return median


def mean_of(values: Floats) -> Floats:
    """Mean of every column, of what is there; NaN where nothing is."""
    seen = np.isfinite(values)
    count = seen.sum(axis=0)
    total = np.where(seen, values, 0.0).sum(axis=0)
    mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean
