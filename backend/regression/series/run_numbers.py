"""The runs of many series as numbers: value, log cost and spread of each, computed together.

A run that arrives, a history that is judged and one that is replayed are entered by this same code, so that what a
detector sees of a run does not depend on the way it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np

from backend.regression.cost import log_costs
from backend.regression.detector.density import Floats
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


def numbers_of_each(series: Sequence[tuple[Sequence[PointLike], Direction]]) -> list[RunNumbers]:
    """The numbers of the points of each series; raises ValueError where a value has no relative change, or a point
    has no values."""
    sizes = [len(points) for points, _ in series]
    signs = [1.0 if direction is Direction.LOWER else -1.0 for _, direction in series]
    return _numbers_of(
        [point for points, _ in series for point in points], np.repeat(signs, np.array(sizes, dtype=np.int64))
    ).split(sizes)


def numbers_of(points: Sequence[PointLike], direction: Direction) -> RunNumbers:
    """The same of one series."""
    (numbers,) = numbers_of_each([(points, direction)])
    return numbers


def _numbers_of(points: Sequence[PointLike], signs: Floats) -> RunNumbers:
    processes = np.array([len(point.values) for point in points], dtype=np.int64)
    if not processes.all():
        raise ValueError(f"point at position {points[int(processes.argmin())].position} has no values")
    values = list(chain.from_iterable([point.values for point in points]))
    logs = np.array(log_costs(values, Direction.LOWER) if values else [])
    measured, firsts = np.array(values, dtype=np.float64), processes.cumsum() - processes
    medians, costs, variances = np.empty(len(points)), np.empty(len(points)), np.zeros(len(points))
    for count in set(processes.tolist()):
        runs = np.flatnonzero(processes == count)
        cells = firsts[runs][:, None] + np.arange(count)
        raw = signs[runs][:, None] * logs[cells]
        cut = max(1, count // 4) if count > 2 else 0
        medians[runs] = _middle(np.sort(measured[cells]))
        costs[runs] = _added(np.sort(raw)[:, cut : count - cut]) / (count - 2 * cut)
        if count > 1:
            away = raw - (_added(raw) / count)[:, None]
            variances[runs] = _added(away * away) / (count - 1)
    stored = costs.astype(np.float32).astype(np.float64)
    return RunNumbers(medians.tolist(), costs.tolist(), stored.tolist(), variances.tolist(), processes.tolist())


def _middle(rows: Floats) -> Floats:
    """The median of each row, which is sorted."""
    half = rows.shape[1] // 2
    middle: Floats = rows[:, half] if rows.shape[1] % 2 else rows[:, half - 1] / 2 + rows[:, half] / 2
    return middle


def _added(rows: Floats) -> Floats:
    """What `cost.added` is of each row."""
    sums: Floats = np.add.accumulate(rows, axis=1)[:, -1] + 0.0  # which `added` begins with: there is no -0.0
    return sums
