"""The noise of one series: its level, spread, autocorrelation, and how likely it makes a residual of any size.

The density of residuals is learnt, not assumed: a kernel estimate over everything the series has shown, mixed with a
few pseudo-observations of a heavy-tailed law. How much an outlier may say follows from this series' own tail.
Log densities are whole numbers (1/256 nat), so that sums of them do not depend on the order of adding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS_PER_SD = 8
REACH = 128
"""Cells each side: residuals beyond 16 standard deviations count as 16."""
NAT = 256
TAIL_WEIGHT = 25.0
"""Pseudo-observations of the heavy-tailed law."""
FLOOR = 3e-4
"""No series is believed to be quieter than 0.03 %."""
OWN_RUNS, BEYOND_OWN = 20, 3.0
"""From so many runs on a level's band ends so many standard deviations beyond the farthest of them."""
UNLIKE = 2.5
"""Earlier levels so many times wilder or calmer say nothing of this one's noise."""
SETTLED = 8.0
"""Runs after which the assumed noise has faded to 1/e."""
CORRELATION = 0.25
CORRELATION_RUNS = 12.0
"""Autocorrelation assumed at first, and how many runs it is worth."""
CAUTION = 0.4
"""Autocorrelation is taken this many standard errors high: what it inflates is worth less as evidence."""

# Limits as arrays: a ufunc takes them in half the time of a Python number.
_FOUR, _MINUS_FOUR = np.array(4.0), np.array(-4.0)
_BEYOND, _MINUS_BEYOND = np.array(REACH + 1.0), np.array(-REACH - 1.0)
_GRID = np.arange(-REACH, REACH + 1) / CELLS_PER_SD
_TAIL = TAIL_WEIGHT * ((3 / 8) / 0.9 * (1 + (_GRID / 0.9) ** 2 / 4) ** -2.5)
_KERNELS: dict[int, Floats] = {}


@dataclass(frozen=True, slots=True, eq=False)
class NoiseModel:
    """The distribution of the runs of a series while nothing changes."""

    level: float
    scale: float
    correlation: float
    spread: float
    """Mean square of clipped residuals, in units of scale squared: above 1 for heavy tails."""
    density: Ints
    runs: int
    reach: tuple[float, float] | None = None
    """The lowest and the highest residual of the level's own runs; None: not known."""
    bands: dict[float, tuple[int, int]] = field(default_factory=dict)
    """Cells within which all but a share of the runs lie, by that share; filled on demand."""

    def band(self, alpha: float) -> tuple[float, float]:
        """Distances from the level within which all but `alpha` of the harmless runs lie (low is negative).

        Residuals of earlier levels count, but not far beyond what the level's own runs show once there are enough.
        """
        if alpha not in self.bands:
            below = np.cumsum(np.exp(self.density / NAT))
            ends = below.searchsorted((0.5 * alpha * below[-1], (1 - 0.5 * alpha) * below[-1]))
            self.bands[alpha] = (int(ends[0]) - REACH, int(ends[1]) - REACH)
        low, high = self.bands[alpha]
        step = self.scale / CELLS_PER_SD * math.sqrt(1 + 1 / max(1, self.runs))
        lowest, highest = (low - 0.5) * step, (high + 0.5) * step
        if self.reach is None or self.runs < OWN_RUNS:
            return lowest, highest
        beyond = BEYOND_OWN * self.scale
        return max(lowest, self.reach[0] - beyond), min(highest, self.reach[1] + beyond)

    def cells(self, x: Floats) -> Floats:
        """Residuals of x in cells of 1/8 standard deviation: whole numbers."""
        cells: Floats = np.rint((x - self.level) * (CELLS_PER_SD / self.scale))
        return cells


def inflation(correlation: float, runs: Floats) -> Floats:
    """By how much autocorrelation inflates the variance of a mean of so many runs (AR(1))."""
    if correlation <= 0:
        return np.ones_like(runs)
    left = 1 - correlation
    tail: Floats = 2 * correlation * (1 - correlation**runs) / (runs * left * left)
    return np.maximum((1 + correlation) / left - tail, 1.0)


def inflation_of(correlation: float, runs: float) -> float:
    """The same for one number of runs."""
    if correlation <= 0:
        return 1.0
    left = 1 - correlation
    tail: float = 2 * correlation * (1 - correlation**runs) / (runs * left * left)
    return max(1.0, (1 + correlation) / left - tail)


class Noise(NamedTuple):
    """A few numbers that describe the noise of a series; see `NoiseModel`."""

    level: float
    scale: float
    correlation: float
    spread: float


def measure(y: Floats, carried: Floats, correlation_before: float, assumed_noise: float) -> tuple[Noise, Floats]:
    """The noise of the runs y of one level, and all residuals: theirs and those carried from earlier levels."""
    n = len(y)
    level = middle(y)
    residual = y - level
    seen = np.concatenate((residual, carried)) if len(carried) and _alike(residual, carried) else residual
    scale = _scale(seen, n, assumed_noise)
    clipped = residual * (1 / scale)
    np.minimum(clipped, _FOUR, out=clipped)
    np.maximum(clipped, _MINUS_FOUR, out=clipped)
    clipped -= float(np.add.reduce(clipped)) / n
    square = float(clipped.dot(clipped))
    lag = float(clipped[1:].dot(clipped[:-1])) if n > 2 else 0.0
    usual = CORRELATION_RUNS * max(correlation_before, CORRELATION)
    correlation = (lag + usual) / (square + CORRELATION_RUNS)
    if n > 8:
        correlation += 1.0 / n + CAUTION / math.sqrt(n)
    return Noise(level, scale, min(max(correlation, 0.0), 0.85), max(1.0, square / n)), seen


def _alike(own: Floats, carried: Floats) -> bool:
    """Whether residuals of earlier levels may stand for the noise of this one: once it has shown its own, not else."""
    if len(own) < OWN_RUNS:
        return True
    mine, theirs = _middle_size(own), _middle_size(carried)
    return theirs <= UNLIKE * max(mine, FLOOR) and mine <= UNLIKE * max(theirs, FLOOR)


def _middle_size(residual: Floats) -> float:
    size = np.abs(residual)
    size.sort()
    return float(size[int(0.68 * len(size))])


def fit(y: Floats, carried: Floats, correlation_before: float, assumed_noise: float) -> NoiseModel:
    """The model of the runs y of one level, with residuals carried from earlier levels."""
    noise, seen = measure(y, carried, correlation_before, assumed_noise)
    density = _log_density(seen, noise.scale)
    reach = float(np.minimum.reduce(y)) - noise.level, float(np.maximum.reduce(y)) - noise.level
    return NoiseModel(noise.level, noise.scale, noise.correlation, noise.spread, density, len(y), reach)


def fit_density(seen: Floats, n: int, assumed_noise: float) -> tuple[float, Ints]:
    """Scale and log density of residuals, of which the first n are of the present level."""
    scale = _scale(seen, n, assumed_noise)
    return scale, _log_density(seen, scale)


def _scale(seen: Floats, n: int, assumed_noise: float) -> float:
    """Spread of residuals: the middle 68 %, not far below the middle 90 % (quantised series), and what was assumed."""
    size = np.abs(seen)
    if 1 < n < 12:
        size[:n] *= math.sqrt(n / (n - 1))
    count = len(size)
    size.sort()  # of so few numbers faster than a partition
    least = 0.35 * float(size[int(0.90 * count)]) if count >= 12 else math.sqrt(float(size.dot(size)) / count)
    own = max(float(size[int(0.68 * count)]), least)
    weight = 6.0 * math.exp(-count / SETTLED)
    return max(math.sqrt((count * own * own + weight * assumed_noise**2) / (count + weight)), FLOOR)


def middle(y: Floats) -> float:
    """The median (faster than numpy's on short arrays)."""
    return middle_of_own(y.copy())


def middle_of_own(part: Floats) -> float:
    """The median of an array that may be sorted in place."""
    half = len(part) >> 1
    part.sort()
    return float(part[half]) if len(part) & 1 else (float(part[half - 1]) + float(part[half])) / 2


def _log_density(seen: Floats, scale: float) -> Ints:
    cell = seen * (CELLS_PER_SD / scale)
    np.rint(cell, out=cell)
    # What lies beyond the reach is left to the heavy tail: one spike of 70 sd does not make 20 sd likely.
    np.minimum(cell, _BEYOND, out=cell)
    np.maximum(cell, _MINUS_BEYOND, out=cell)
    cell += _BEYOND
    counts = np.bincount(cell.astype(np.int64), minlength=2 * REACH + 3)[1:-1]
    width = max(2, round(CELLS_PER_SD * len(seen) ** -0.2))
    density = np.correlate(counts, _kernel(width), mode="same")
    density += _TAIL
    density *= 1 / (len(seen) + TAIL_WEIGHT)
    np.log(density, out=density)
    density *= NAT
    cells: Ints = np.rint(density, out=density).astype(np.int64)
    return cells


def _kernel(width: int) -> Floats:
    """A bell of so many cells, in runs per standard deviation."""
    if width not in _KERNELS:
        reach = np.arange(-3 * width, 3 * width + 1) / width
        bell = np.exp(-0.5 * reach * reach)
        _KERNELS[width] = bell / bell.sum() * CELLS_PER_SD
    return _KERNELS[width]
