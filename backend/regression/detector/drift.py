"""Drift: many small losses, each too small to be seen, that together are a regression.

The newest runs are compared with the first ones of the level. Where noise hides the difference, a straight line through
the means of a few runs at a time may still rise by more than chance.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from backend.regression.detector.density import Floats, Ints, NoiseModel, inflation_of, middle, middle_of_own
from backend.regression.detector.evidence import local_noise, low_quarter, unruly
from backend.regression.detector.memory import Change, Memory
from backend.regression.detector.student import quantile
from backend.regression.policy import Policy

NOISE = 0.4
"""The noise of a drifting series is that between neighbours, and at least this share of its spread."""
LOW_MOVES = 0.3
"""A drift takes the lower quarter of the runs along, by this share at least; a slow state met more often does not."""
LEAST_SHARE = 0.3
"""At least this share of what counts must lie between the newest runs and the first; what is missing is older."""
GRAIN, TRIM = 8, 1
"""Runs that become one mean, and how many of them are left out at either end."""
FEWEST, EVERY = 16, 20
"""A line needs so many means, and is drawn again after so many runs."""
TINY = 1e-300
CHANCE = 1e-5
"""A line may rise by chance so often, at the usual `drift_z`; more standard errors make it as much rarer."""


def worth_asking(y: Floats, lengths: Ints, level: float, policy: Policy) -> list[int]:
    """Which of these lengths of the history y the newest runs lie higher at than the first and than the level."""
    new, old = policy.drift_recent_runs, policy.drift_reference_runs
    lengths = lengths[lengths >= new + old]
    if not len(lengths):
        return []
    newest = y[lengths[:, None] + np.arange(-new, 0)]
    newest.sort(axis=1)
    now = (newest[:, (new - 1) // 2] + newest[:, new // 2]) / 2
    threshold = math.log1p(policy.min_change)
    is_higher = now >= level + 0.1 * threshold
    if not np.logical_or.reduce(is_higher):
        return []
    worth: list[int] = lengths[is_higher & (now >= middle(y[:old]) + LEAST_SHARE * threshold)].tolist()
    return worth


def is_worth_asking(known: Floats, runs: Floats, level: float, policy: Policy) -> bool:
    """The same for the newest of a few runs that follow the known ones."""
    new, old = policy.drift_recent_runs, policy.drift_reference_runs
    if len(known) + len(runs) < new + old:
        return False
    now = middle_of_own(np.concatenate((known[-new:], runs))[-new:])
    threshold = math.log1p(policy.min_change)
    if now < level + 0.1 * threshold:
        return False
    first = known[:old] if len(known) >= old else np.concatenate((known, runs))[:old]
    return now >= middle(first) + LEAST_SHARE * threshold


def drifted(d: Memory, y: Floats, where: Ints, policy: Policy) -> Change | None:
    """The drift that the runs y of a level show by now, if any; asked for only where it is worth asking."""
    model = d.model
    if model is None or len(y) < policy.drift_recent_runs + policy.drift_reference_runs:
        return None
    return _risen(d, model, y, where, policy) or _sloping(d, y, where, policy)


def _risen(d: Memory, model: NoiseModel, y: Floats, where: Ints, policy: Policy) -> Change | None:
    """The newest runs lie far above the first ones after the anchor."""
    new, old = policy.drift_recent_runs, policy.drift_reference_runs
    now, first = middle(y[-new:]), middle(y[:old])
    start = first if d.anchor is None else min(first, d.anchor)
    size = now - start
    if size < math.log1p(policy.min_change) or now - first < LEAST_SHARE * size:
        return None
    rho = model.correlation
    variance = inflation_of(rho, float(new)) / new + inflation_of(rho, float(old)) / old
    needed = policy.drift_z * math.sqrt(1.57 * variance)
    if size < needed * NOISE * model.scale:
        return None
    noise = max(NOISE * model.scale, min(model.scale, local_noise(y)))
    if low_quarter(y[-new:]) - low_quarter(y[:old]) < LOW_MOVES * (now - first):
        return None
    wild = max(1.0, unruly(y[-new:], model))
    if size < needed * noise * math.sqrt(wild):
        return None
    return _between(d, y, where, (start, first, now), size / noise, policy)


def _sloping(d: Memory, y: Floats, where: Ints, policy: Policy) -> Change | None:
    """A straight line through the means of all runs rises by more than chance."""
    if len(y) < FEWEST * GRAIN or len(y) % EVERY:
        return None
    count, threshold = len(y) // GRAIN, math.log1p(policy.min_change)
    coarse = np.sort(y[-count * GRAIN :].reshape(count, GRAIN), axis=1)[:, TRIM:-TRIM].mean(axis=1)
    quarter = count // 4
    first, now = float(coarse[:quarter].mean()), float(coarse[-quarter:].mean())
    time = np.arange(count) - 0.5 * (count - 1)
    square = float(time.dot(time))
    slope = float(time.dot(coarse)) / square
    if now - first < threshold or slope * count < threshold:
        return None
    left = coarse - coarse.mean() - slope * time
    spread = max(float(left.dot(left)), TINY)  # an exact line has none
    correlation = max(0.0, float(left[1:].dot(left[:-1])) / spread)
    error = math.sqrt(spread / (count - 2) * inflation_of(correlation, count) / square)
    if slope < _beyond_chance(count - 2, policy.drift_z) * error:
        return None
    return _between(d, y, where, (first, first, now), slope / error, policy)


@lru_cache(maxsize=256)
def _beyond_chance(freedom: int, drift_z: float) -> float:
    """Standard errors that a slope exceeds by chance no more often than is allowed."""
    rarer = math.exp(0.5 * (Policy().drift_z ** 2 - drift_z**2))
    return -quantile(freedom, min(0.5, CHANCE * rarer))


def _between(
    d: Memory, y: Floats, where: Ints, levels: tuple[float, float, float], evidence: float, policy: Policy
) -> Change:
    """The drift from a start, past the first runs, to where the level is now; its onset is where half had come."""
    start, first, now = levels
    new, old, n = policy.drift_recent_runs, policy.drift_reference_runs, len(y)
    above = y - (first + 0.5 * (now - first))
    onset = int(np.argmin(np.cumsum(above))) + 1
    onset = min(max(onset, d.least(policy)), n - new)
    return Change(
        onset=int(where[onset]),
        first=int(where[min(old // 2, onset)]),
        last=int(where[max(onset, n - new)]),
        last_good=int(where[onset - 1]),
        detected=int(where[n - 1]),
        size=now - start,
        before=start,
        after=now,
        evidence=evidence,
        drift=True,
    )
