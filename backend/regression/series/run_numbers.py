"""The runs of many series as numbers: value, log cost and spread of each, computed together.

A run that arrives, a history that is judged and one that is replayed are entered by this same code, so that what a
detector sees of a run does not depend on the way it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np

from backend.regression.cost import log_costs
from backend.regression.detector.density import Floats, Ints
from backend.regression.terms import Direction, PointLike


@dataclass(frozen=True, slots=True, eq=False)
class RunNumbers:
    """Of each of N runs, in order."""

    medians: list[float]
    """The value of a run: the median of its processes, in the metric's unit (N)."""
    costs: list[float]
    """What is typical of the log costs of its processes (N)."""
    stored: list[float]
    """The same as a state holds it, in single precision (N)."""
    variances: list[float]
    """Of the log costs of its processes; 0 where there is one (N)."""
    processes: list[int]
    """How many it has (N)."""

    def split(self, sizes: Iterable[int]) -> list[RunNumbers]:
        """The first so many runs, the next so many, and so on."""
        return [
            RunNumbers(
                self.medians[start:end],
                self.costs[start:end],
                self.stored[start:end],
                self.variances[start:end],
                self.processes[start:end],
            )
            for start, end in pairwise((0, *accumulate(sizes)))
        ]


@dataclass(frozen=True, slots=True, eq=False)
class RunValues:
    """N runs, in order, without a record of each."""

    places: Ints
    """Their positions (N)."""
    processes: Ints
    """How many values each has, at least one (N)."""
    values: Floats
    """Of their processes, one run after another, in the metric's unit."""

    @classmethod
    def of(cls, points: Sequence[PointLike]) -> RunValues:
        """Raises ValueError where a point has no values."""
        processes = np.array([len(point.values) for point in points], dtype=np.int64)
        if not processes.all():
            raise ValueError(f"point at position {points[int(processes.argmin())].position} has no values")
        values = list(chain.from_iterable([point.values for point in points]))
        places = np.array([point.position for point in points], dtype=np.int64)
        return cls(places, processes, np.array(values, dtype=np.float64))

    def that_have_costs(self) -> RunValues:
        """Those of which every value is above 0: a change is a ratio of costs."""
        if not len(self.values) or self.values.min() > 0:
            return self
        firsts = self.processes.cumsum() - self.processes
        kept = np.minimum.reduceat(self.values, firsts) > 0
        return RunValues(self.places[kept], self.processes[kept], self.values[np.repeat(kept, self.processes)])

    def by_count(self) -> Iterator[tuple[Ints, Ints]]:
        """The runs that have as many processes as each other (n), and where their values are (n, count)."""
        firsts = self.processes.cumsum() - self.processes
        for count in set(self.processes.tolist()):
            runs = np.flatnonzero(self.processes == count)
            yield runs, firsts[runs][:, None] + np.arange(count)


def numbers_of_each(series: Sequence[tuple[Sequence[PointLike], Direction]]) -> list[RunNumbers]:
    """The numbers of the points of each series; raises ValueError where a value has no relative change, or a point
    has no values."""
    sizes = [len(points) for points, _ in series]
    signs = [1.0 if direction is Direction.LOWER else -1.0 for _, direction in series]
    return _numbers_of(
        [point for points, _ in series for point in points], np.repeat(signs, np.array(sizes, dtype=np.int64))
    ).split(sizes)


def _numbers_of(points: Sequence[PointLike], signs: Floats) -> RunNumbers:
    runs = RunValues.of(points)
    medians = np.empty(len(points))
    for these, cells in runs.by_count():
        medians[these] = _middle(np.sort(runs.values[cells]))
    costs, variances = costs_of(runs, signs)
    return RunNumbers(
        medians.tolist(), costs.tolist(), as_stored(costs).tolist(), variances.tolist(), runs.processes.tolist()
    )


def costs_of(runs: RunValues, signs: Floats) -> tuple[Floats, Floats]:
    """What is typical of the log costs of each run's processes, and their variance (N); `signs`: 1 where lower is
    better, else -1 (N). Raises ValueError where a value has no relative change."""
    values = runs.values.tolist()
    logs = np.array(log_costs(values, Direction.LOWER) if values else [])
    costs, variances = np.empty(len(signs)), np.zeros(len(signs))
    for these, cells in runs.by_count():
        count = cells.shape[1]
        raw = signs[these][:, None] * logs[cells]
        cut = max(1, count // 4) if count > 2 else 0
        costs[these] = _added(np.sort(raw)[:, cut : count - cut]) / (count - 2 * cut)
        if count > 1:
            away = raw - (_added(raw) / count)[:, None]
            variances[these] = _added(away * away) / (count - 1)
    return costs, variances


def as_stored(costs: Floats) -> Floats:
    """As a state holds them, in single precision."""
    return costs.astype(np.float32).astype(np.float64)


def _middle(rows: Floats) -> Floats:
    """The median of each row, which is sorted."""
    half = rows.shape[1] // 2
    middle: Floats = rows[:, half] if rows.shape[1] % 2 else rows[:, half - 1] / 2 + rows[:, half] / 2
    return middle


def _added(rows: Floats) -> Floats:
    """What `cost.added` is of each row."""
    sums: Floats = np.add.accumulate(rows, axis=1)[:, -1] + 0.0  # which `added` begins with: there is no -0.0
    return sums
