"""Evidence of a block of runs: its log-likelihood ratios, how far to trust them, and where a change began."""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from backend.regression.detector.density import (
    CELLS_PER_SD,
    NAT,
    REACH,
    Floats,
    Ints,
    NoiseModel,
    fit,
    inflation,
    inflation_of,
    middle,
    middle_of_own,
)
from backend.regression.detector.student import quantile
from backend.regression.policy import Policy

SHIFTS: Floats = 0.0125 * 1.32 ** np.arange(14, dtype=np.float64)[:, None]
"""Sizes of shifts that are watched for: 1.25 % to 46 %."""
EXCURSION = 1.2
"""A block must be this much higher than any earlier stretch of its length."""
FAR = 5.0
"""A change of so many standard deviations needs no more proof after a short reference than after a long one."""
SEEN = 3
"""A level left this often before may be a mode of the series; the worsenings until then were all reported."""
LONG_HELD = 80
"""A level that has held for this many runs is not a mode that comes and goes: leaving it is always reported."""
FEW, MANY = 8, 32
LEAST_SHARE, MOST_SHARE = 0.8, 1.1
"""A worsening that shows within few runs must bring the first share of the evidence, one that takes many the other:
what is faint may be the misfit of the model, added up, and is hard to place."""
CORRELATED = 0.3
"""Autocorrelation of which excursions of a few runs are made."""
WILD = 1.6
"""A series whose noise is beyond so many times the smallest regression must show more: it has states that are rare."""
MOST_MORE = 2.0
NEAR_MODE = 1.3
"""Levels within so many standard deviations are one mode."""
LATE_RUNS = 30
BEHIND = 150
"""Runs before an onset that are looked at from behind it."""
ALMOST = 0.005
"""Neighbourhoods that differ by no more than this hold equally much of the posterior: the likeliest start counts."""
CALM = 1.5
"""Evidence is worth less when the last 30 runs before the block were this much wilder than the series usually is."""
_NEIGHBOURS = np.ones(7)
_THREE, _MINUS_THREE = np.array(3.0), np.array(-3.0)


def without_best(gains: Floats, weighed: float, policy: Policy) -> bool:
    """Enough evidence remains when the two clearest runs are ignored."""
    raw = float(gains.sum())
    rest = float(np.sort(gains)[: max(1, len(gains) - 2)].sum())
    return rest * min(1.0, 1.5 * weighed / max(raw, 1e-9)) >= policy.evidence_without_best


def gains(model: NoiseModel, y: Floats, shifts: Floats) -> Ints:
    """Log-likelihood ratios of every run for every shift (a column of shifts).

    A run beyond the reach of the density speaks for the two sizes just short of it: none falls between two sizes.
    """
    cell = model.cells(y).astype(np.int64)
    shift = np.rint(shifts * (CELLS_PER_SD / model.scale)).astype(np.int64)
    at = cell + REACH
    moved = at - shift
    if len(at) and np.maximum.reduce(at.view(np.uint64)) > 2 * REACH:  # what is below 0 becomes a huge number, too
        _hold_short(moved, cell, shift, shifts)
    gain: Ints = model.density.take(moved, mode="clip")
    gain -= model.density.take(at, mode="clip")
    return gain


def _hold_short(moved: Ints, cell: Ints, shift: Ints, shifts: Floats) -> None:
    """Let each run beyond the reach of the density fall into the last cell for the two sizes just short of it. The
    sizes grow from row to row, one way or first one and then the other."""
    sizes = np.abs(shift[: len(SHIFTS), 0]).tolist()
    upward = [(first, shifts[first, 0] > 0) for first in range(0, len(shifts), len(SHIFTS))]
    for run in (np.abs(cell) > REACH).nonzero()[0].tolist():
        away = int(cell[run])
        short = bisect_right(sizes, abs(away))
        for first, up in upward:
            if up == (away > 0):
                for row in range(max(0, short - 2), short):
                    if sizes[row]:
                        moved[first + row, run] = REACH


def far_beyond(y: Floats, onset: int, sign: int, model: NoiseModel, unruly: float, policy: Policy) -> bool:
    """Even the lower confidence limit of the change is past the threshold: enough for a series with a short history."""
    m = len(y) - onset
    block, before = y[onset:], middle(y[:onset])
    size = sign * (middle(block) - before)
    variance = inflation(model.correlation, np.array([float(m), float(onset)])) / np.array([m, onset])
    error = model.scale * math.sqrt(max(1.0, unruly) * float(variance.sum()))
    limit = quantile(onset + 2, 1 - policy.alpha)
    return size - limit * error >= math.log1p(policy.min_change) and size >= 3 * math.log1p(policy.min_change)


def unruly(block: Floats, model: NoiseModel) -> float:
    """How much more the block is spread than the reference: evidence from an unruly block is worth less."""
    inside = (block - middle(block)) / model.scale
    np.minimum(inside, _THREE, out=inside)
    np.maximum(inside, _MINUS_THREE, out=inside)
    return (float(inside.dot(inside)) + 4 * model.spread) / (len(block) + 4) / model.spread


def calm(before: Floats, model: NoiseModel) -> float:
    """Evidence is worth less when the newest runs before the block were already wilder than the series usually is."""
    late = before[-LATE_RUNS:]
    if len(late) < LATE_RUNS // 2:
        return 1.0
    away = late - middle(late)
    np.abs(away, out=away)
    away.sort()
    ratio = float(away[int(0.68 * len(late))]) / (CALM * model.scale)
    return min(1.0, 1.0 / ratio**2) if ratio > 0 else 1.0


def seen_before(y: Floats, onset: int, size: float, model: NoiseModel) -> bool:
    """The series made excursions of this length and nearly this size before: this may be another."""
    m = len(y) - onset
    if onset < m:
        return False
    residual = (y[:onset] - model.level) * (math.copysign(1.0, size) / model.scale)
    total = np.concatenate(([0.0], np.cumsum(np.maximum(np.minimum(residual, 5.0), -5.0))))
    highest = float((total[m:] - total[:-m]).max()) / m
    return abs(size) < EXCURSION * highest * model.scale


def little_known(onset: int, size: float, evidence: float, model: NoiseModel, policy: Policy) -> bool:
    """Of a short reference neither level nor spread is well known: what is not far off needs twice the proof."""
    return onset < LATE_RUNS and 0 < size < FAR * model.scale and evidence < 2 * policy.evidence_regression


def backwards(y: Floats, onset: int, sign: int, carried: Floats, model: NoiseModel) -> float:
    """The evidence the other way round: how little the runs before the onset look like those from it on.

    A short reference that happened to be low, or quiet, makes a long block look like a change; seen from the block the
    few runs are just a few runs.
    """
    block, before = y[onset:], y[max(0, onset - BEHIND) : onset]
    after = fit(block, carried, model.correlation, model.scale)
    gain = gains(after, before, -sign * SHIFTS).sum(axis=1)
    n, m = float(len(before)), float(min(len(block), 200))
    temper = inflation_of(after.correlation, n) + n * inflation_of(after.correlation, m) / m
    return float(gain.max()) / NAT / temper


def demanded(sign: int, length: int, model: NoiseModel, policy: Policy) -> float:
    """Nats of evidence to be shown by so many runs of a series of this noise."""
    wild = min(MOST_MORE, max(1.0, model.scale / (WILD * math.log1p(policy.min_change))))
    if sign < 0:
        return policy.evidence_improvement * wild
    faint = min(1.0, max(0.0, (length - FEW) / (MANY - FEW), 0.5 * model.correlation / CORRELATED))
    return policy.evidence_regression * wild * (LEAST_SHARE + faint * (MOST_SHARE - LEAST_SHARE))


def known_modes(
    levels: tuple[float, ...], before: float, after: float, held: int, noise: float, policy: Policy
) -> bool:
    """Both levels of a worsening were left often before and the first was not held for long: a going to and fro."""
    if held >= LONG_HELD:
        return False
    near = min(0.4 * (after - before), max(0.3 * math.log1p(policy.min_change), NEAR_MODE * noise))
    return all(sum(abs(level - earlier) < near for earlier in levels) >= SEEN for level in (before, after))


def locate(weighed: Floats, low: int) -> tuple[int, int, int]:
    """Onset and its range: the start whose neighbourhood, three runs to either side, holds most of the posterior."""
    away = weighed - weighed.max()
    mass = np.exp(away, out=away).sum(axis=0)
    mass /= mass.sum()
    near = np.correlate(mass, _NEIGHBOURS, mode="same") if len(mass) >= 7 else np.full(len(mass), 1.0)
    likely = near >= near.max() - ALMOST
    onset = int(np.where(likely, mass, -1.0).argmax())
    below = mass.cumsum()
    first, last = below.searchsorted((0.025, 0.975)).tolist()
    return low + onset, low + min(first, onset), low + max(min(last, len(mass) - 1), onset)


def local_noise(y: Floats) -> float:
    """Spread between neighbouring runs, which a drift does not inflate."""
    step = y[1:] - y[:-1]
    return max(middle_of_own(np.abs(step, out=step)) / 0.954, 3e-4)


def low_quarter(y: Floats) -> float:
    """A quarter of the runs are below this."""
    return float(np.sort(y)[len(y) // 4])
