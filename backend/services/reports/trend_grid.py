"""Series side by side over time, as one array: how fast each is relative to its value at a base, and the mean of all.

Everything here is performance: 1 is the base, more is faster, whichever way a metric points. A series that was not
measured at a moment keeps its last value; one without a value at the base or at the head is not counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.store.reports.trends import TrendSeries

CONFIDENCE_99 = 2.576
BAND = 0.1, 0.9
"""The middle 80 %."""
USUAL_NOISE = 0.01  # of a series that has not shown yet how noisy it is
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grid:
    """`value[s, t]`: what series s measured last up to moment t, not a number before its first point."""

    series: Sequence[TrendSeries]
    at: NDArray[np.int64]  # microseconds since 1970, ascending
    position: NDArray[np.int64]  # newest position of each moment
    value: Floats
    base: int
    head: int

    def only(self, rows: Sequence[int]) -> "Grid":
        chosen = [self.series[row] for row in rows]
        return Grid(chosen, self.at, self.position, self.value[list(rows)], self.base, self.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The geometric mean of `compared` of `series` series. Fractions of performance: -0.05 is 5 % slower."""

    series: int
    compared: int
    change: float | None
    low: float | None
    high: float | None
    slower: int
    faster: int
    line: tuple[float | None, ...]
    band_low: tuple[float | None, ...]
    band_high: tuple[float | None, ...]


def grid_of(series: Sequence[TrendSeries], points: NDArray[np.void], base_at: int, head_at: int) -> Grid | None:
    """The grid of these points; None where there are none. The base is the last moment up to `base_at`."""
    if not points.size:
        return None
    row_of = {each.id: row for row, each in enumerate(series)}
    at = np.unique(points["at"].astype(np.int64))
    columns = np.searchsorted(at, points["at"].astype(np.int64))
    rows = np.array([row_of[number] for number in points["series"].tolist()])
    value = np.full((len(series), at.size), np.nan)
    value[rows, columns] = points["value"]
    position = np.zeros(at.size, dtype=np.int64)
    np.maximum.at(position, columns, points["position"].astype(np.int64))
    base = max(0, int(np.searchsorted(at, base_at, side="right")) - 1)
    head = max(0, int(np.searchsorted(at, head_at, side="right")) - 1)
    return Grid(series, at, position, _carried_on(value), base, max(base, head))


def _carried_on(value: Floats) -> Floats:
    """Each row with its last known value in every gap."""
    last = np.where(np.isnan(value), 0, np.arange(value.shape[1]))
    np.maximum.accumulate(last, axis=1, out=last)
    return np.asarray(np.take_along_axis(value, last, axis=1))


def performance(grid: Grid) -> Floats:
    """Against the value at the base; not a number where there is none."""
    base = grid.value[:, grid.base : grid.base + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = grid.value / base
        higher = np.array([each.direction == "higher" for each in grid.series])[:, None]
        found = np.where(higher, ratio, 1 / ratio)
    return np.asarray(np.where(np.isfinite(found) & (found > 0), found, np.nan))


def changes(grid: Grid) -> Floats:
    """Of each series from base to head: -0.05 is 5 % slower."""
    return np.asarray(performance(grid)[:, grid.head] - 1)


def noise_of(grid: Grid) -> Floats:
    return np.array([USUAL_NOISE if each.noise is None else each.noise for each in grid.series])


def moved(grid: Grid, least: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(slower, faster): series that changed by at least `least` of cost, and more than their own noise explains."""
    change, noise = changes(grid), noise_of(grid)
    with np.errstate(invalid="ignore"):
        cost = 1 / (1 + change) - 1
        sure = np.abs(change) > CONFIDENCE_99 * noise * math.sqrt(2)
        return sure & (cost >= least), sure & (change >= least)


def mean_of(grid: Grid, least: float) -> Mean:
    """The mean line of a grid with the middle 80 % of its series, and its value at the head."""
    relative = performance(grid)
    both = np.isfinite(relative[:, grid.head])
    compared = int(both.sum())
    slower, faster = moved(grid, least)
    change = low = high = None
    if compared:
        mean = float(np.log(relative[both, grid.head]).mean())
        spread = CONFIDENCE_99 * math.sqrt(2 * float((noise_of(grid)[both] ** 2).sum())) / compared
        change, low, high = (math.expm1(each) for each in (mean, mean - spread, mean + spread))
    logs = np.log(relative[both]) if compared else np.full((1, grid.at.size), np.nan)
    known = np.isfinite(logs).any(axis=0)
    line, band_low, band_high = (np.full(grid.at.size, np.nan) for _ in range(3))
    if known.any():
        line[known] = np.exp(np.nanmean(logs[:, known], axis=0))
        band_low[known], band_high[known] = (np.exp(_quantile(logs[:, known], share)) for share in BAND)
    return Mean(
        series=len(grid.series),
        compared=compared,
        change=change,
        low=low,
        high=high,
        slower=int(slower.sum()),
        faster=int(faster.sum()),
        line=numbers(line),
        band_low=numbers(band_low),
        band_high=numbers(band_high),
    )


def _quantile(rows: Floats, share: float) -> Floats:
    """Of the numbers of each column, of which each has one; between two of them in proportion. (What numpy offers for
    columns with gaps takes them one by one.)"""
    ordered = np.sort(rows, axis=0)  # what is no number comes last
    place = share * (np.isfinite(rows).sum(axis=0) - 1)
    below, above = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
    columns = np.arange(rows.shape[1])
    found: Floats = ordered[below, columns] * (1 - place + below) + ordered[above, columns] * (place - below)
    return found


def numbers(values: Floats) -> tuple[float | None, ...]:
    """Numbers for a chart; None where there is none."""
    return tuple(None if math.isnan(each) else round(each, 5) for each in values.tolist())


def level(grid: Grid, rows: Sequence[int]) -> float | None:
    """The geometric mean of values at the head."""
    values = grid.value[list(rows), grid.head]
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(values).mean())) if values.size else None


def is_compile(each: TrendSeries) -> bool:
    return each.role == "gate" and "compile" in each.metric and not each.exact


def is_memory(each: TrendSeries) -> bool:
    return each.role == "gate" and each.unit == "B"


def is_speed(each: TrendSeries) -> bool:
    return each.role == "gate" and not each.exact and each.unit != "B" and not is_compile(each)


def is_utilisation(each: TrendSeries) -> bool:
    return each.metric == "mfu"
