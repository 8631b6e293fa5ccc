"""The noise of one series: its level, spread, autocorrelation, and how likely it makes a residual of any size.

The density of residuals is learnt, not assumed: a kernel estimate over everything the series has shown, mixed with a
few pseudo-observations of a heavy-tailed law. How much an outlier may say follows from this series' own tail.
Log densities are whole numbers (1/256 nat), so that sums of them do not depend on the order of adding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS_PER_SD = 8
REACH = 128
"""Cells each side: residuals beyond 16 standard deviations count as 16."""
NAT = 256
TAIL_WEIGHT = 15.0
"""Pseudo-observations of the heavy-tailed law."""
FLOOR = 3e-4
"""No series is believed to be quieter than 0.03 %."""
SETTLED = 8.0
SMALL = 1.0
RECENT = 0
LATE = 0.8
RHO = 0.25
PRIOR = 12.0
"""Runs after which the assumed noise has faded to 1/e."""

_GRID = np.arange(-REACH, REACH + 1) / CELLS_PER_SD
_TAIL = (3 / 8) / 0.9 * (1 + (_GRID / 0.9) ** 2 / 4) ** -2.5
_KERNELS: dict[int, Floats] = {}


@dataclass(frozen=True, slots=True, eq=False)
class NoiseModel:
    """What a run of this series looks like while nothing changes."""

    level: float
    scale: float
    correlation: float
    spread: float
    """Mean square of clipped residuals, in units of scale squared: above 1 for heavy tails."""
    density: Ints
    runs: int

    def cells(self, x: Floats) -> Ints:
        """Residuals of x in cells of 1/8 standard deviation."""
        return np.rint((x - self.level) * (CELLS_PER_SD / self.scale)).astype(np.int64)

    def surprise(self, cell: int) -> float:
        """How much less likely than the commonest residual this one is, in nats."""
        at = min(max(cell, -REACH), REACH) + REACH
        return float(self.density.max() - self.density[at]) / NAT


def inflation(correlation: float, runs: Floats) -> Floats:
    """By how much autocorrelation inflates the variance of a mean of so many runs (AR(1))."""
    if correlation <= 0:
        return np.ones_like(runs)
    left = 1 - correlation
    tail: Floats = 2 * correlation * (1 - correlation**runs) / (runs * left * left)
    return np.maximum((1 + correlation) / left - tail, 1.0)


def fit(y: Floats, carried: Floats, correlation_before: float, assumed_noise: float) -> NoiseModel:
    """The model of the runs y of one level, with residuals carried from earlier levels."""
    n = len(y)
    level = middle(y)
    residual = y - level
    size = np.abs(np.concatenate((residual * math.sqrt(n / (n - 1)) if 1 < n < 12 else residual, carried)))
    count = len(size)
    at68, at90 = min(count - 1, int(0.68 * count)), min(count - 1, int(0.90 * count))
    part = np.partition(size, (at68, at90))
    own = max(float(part[at68]), 0.35 * float(part[at90]) if count >= 12 else SMALL * math.sqrt(float(size @ size) / count))
    if RECENT and n > 2 * RECENT:
        late = np.abs(residual[-RECENT:])
        own = min(max(own, float(np.partition(late, int(0.68 * RECENT))[int(0.68 * RECENT)]) * LATE), 4 * own)
    weight = 6.0 * math.exp(-count / SETTLED)
    scale = max(math.sqrt((count * own * own + weight * assumed_noise**2) / (count + weight)), FLOOR)
    clipped = np.clip(residual / scale, -4, 4)
    clipped -= clipped.mean()
    square = float(clipped @ clipped)
    lag = float(clipped[1:] @ clipped[:-1]) if n > 2 else 0.0
    prior = PRIOR
    correlation = (lag + prior * max(correlation_before, RHO)) / (square + prior) + (1.0 / n if n > 8 else 0.0)
    correlation = min(max(correlation, 0.0), 0.85)
    return NoiseModel(level, scale, correlation, max(1.0, square / n), _log_density(residual, carried, scale), n)


def middle(y: Floats) -> float:
    """The median (faster than numpy's on short arrays)."""
    n = len(y)
    half = n >> 1
    if n & 1:
        return float(np.partition(y, half)[half])
    part = np.partition(y, (half - 1, half))
    return float(part[half - 1] + part[half]) / 2


def _log_density(residual: Floats, carried: Floats, scale: float) -> Ints:
    seen = np.concatenate((residual, carried))
    cell = np.clip(np.rint(seen * (CELLS_PER_SD / scale)), -REACH, REACH).astype(np.int64) + REACH
    counts = np.bincount(cell, minlength=2 * REACH + 1)
    width = max(2, round(CELLS_PER_SD * 1.0 * len(seen) ** -0.2))
    smooth = np.convolve(counts, _kernel(width), mode="same") * CELLS_PER_SD
    total = (smooth + TAIL_WEIGHT * _TAIL) / (len(seen) + TAIL_WEIGHT)
    cells: Ints = np.rint(NAT * np.log(total)).astype(np.int64)
    return cells


def _kernel(width: int) -> Floats:
    if width not in _KERNELS:
        reach = np.arange(-3 * width, 3 * width + 1) / width
        bell = np.exp(-0.5 * reach * reach)
        _KERNELS[width] = bell / bell.sum()
    return _KERNELS[width]
