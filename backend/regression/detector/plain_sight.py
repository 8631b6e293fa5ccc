"""A step in plain sight: the newest runs and those just before them are two heaps with a gap far beyond the noise.

It needs no model of the series. Where the runs since the last change were of several levels after all, their model
takes the differences for noise and hides what anybody sees; here only the last few runs and the differences between
neighbours count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from backend.regression.detector.density import Floats, Ints, middle
from backend.regression.detector.evidence import local_noise
from backend.regression.detector.memory import Change
from backend.regression.policy import Policy

Bools = NDArray[np.bool_]

SIDE = 5
"""Runs on each side of a step, at least."""
LENGTHS = (5, 8)
"""Runs after a step at which it is seen."""
NEARLY, WIDTHS = 0.9, 1.5
"""Five runs are worth a thought where they are off by nearly what counts, and by so many times their middle half."""
NEEDED = SIDE + LENGTHS[-1]
"""Newest runs that tell whether a closer look is worth it."""
REFERENCES = ((20, 4.5), (10, 5.5), (5, 7.0))
"""Runs before a step, and how many standard deviations it must be: the fewer they are, the less they tell of noise."""
STRAYS_FROM = 7
"""With so many runs after a step, one of them may look as before."""
GAP = 8.0
"""Standard deviations between the runs of a second level and those of the first."""
LOOKED_AT_AGAIN = 20
"""So many runs of a new level, at most, may turn out to be of two."""
SHORT_EXCURSION = 20
EXCURSION_WITHIN = 40
"""A level of so few runs is an excursion where most of this many runs before them were at the level after it."""
_BEFORE = NEEDED - 1


def in_plain_sight(segments: Sequence[Floats], runs_ST: Floats, policies: Sequence[Policy]) -> Bools:
    """For each of the next T runs of S series, whether the newest may stand apart from those just before them."""
    if len(segments) == 1:
        return in_plain_sight_of(segments[0], runs_ST[0], policies[0])[None]
    apart_ST = np.zeros(runs_ST.shape, dtype=np.bool_)
    before = np.full((len(segments), _BEFORE), np.nan)
    for row, segment in zip(before, segments, strict=True):
        newest = segment[-_BEFORE:]
        row[_BEFORE - len(newest) :] = newest
    newest_ST = np.concatenate((before, runs_ST), axis=1)
    worth = {change: _worth(change) for change in {policy.min_change for policy in policies}}
    least_S = np.array([worth[policy.min_change] for policy in policies])
    reach_S = np.fmax.reduce(newest_ST, axis=1) - np.fmin.reduce(newest_ST, axis=1)
    wide = (reach_S > least_S).nonzero()[0]
    if len(wide):
        known_S = np.array([len(segments[row]) for row in wide.tolist()])
        apart_ST[wide] = _apart(newest_ST[wide], known_S, least_S[wide])
    return apart_ST


def in_plain_sight_of(segment: Floats, runs: Floats, policy: Policy) -> Bools:
    """The same for the next runs of a single series, which needs fewer steps."""
    least = _worth(policy.min_change)
    apart = np.zeros(len(runs), dtype=np.bool_)
    newest = np.concatenate((segment[-_BEFORE:], runs))
    if len(newest) < 2 * SIDE:
        return apart
    heaps = newest.take(_heaps(len(newest)))
    heaps.sort(axis=1)
    middles = heaps[:, 2]
    if np.maximum.reduce(middles) - np.minimum.reduce(middles) <= least:
        return apart
    first_late = len(heaps) - len(runs)
    for length in LENGTHS:
        if len(heaps) <= length:
            continue
        first = max(first_late, length)
        early, late = heaps[first - length : len(heaps) - length], heaps[first:]
        far = (np.abs(late[:, 2] - early[:, 2]) > least).nonzero()[0]
        if len(far):
            apart[far + (first - first_late)] |= stand_apart(early[far], late[far])
    return apart


@lru_cache(maxsize=256)
def _heaps(runs: int) -> Ints:
    """The places of every five runs in a row of so many."""
    places: Ints = np.arange(runs - SIDE + 1)[:, None] + np.arange(SIDE)
    return places


def _apart(newest_ST: Floats, known_S: Ints, least_S: Floats) -> Bools:
    """Which runs stand apart, where so many were known before them."""
    count = newest_ST.shape[1] - _BEFORE
    heaps = newest_ST[:, np.arange(newest_ST.shape[1] - SIDE + 1)[:, None] + np.arange(SIDE)]
    heaps.sort(axis=2)
    length_ST = known_S[:, None] + np.arange(1, count + 1)
    apart_ST = np.zeros((len(newest_ST), count), dtype=np.bool_)
    for length in LENGTHS:
        first = LENGTHS[-1] - length
        early, late = heaps[:, first : first + count], heaps[:, -count:]
        is_far = np.abs(late[:, :, 2] - early[:, :, 2]) > least_S[:, None]
        rows, runs = (is_far & (length_ST >= SIDE + length)).nonzero()
        if len(rows):
            apart_ST[rows, runs] |= stand_apart(early[rows, runs], late[rows, runs])
    return apart_ST


def _worth(min_change: float) -> float:
    return NEARLY * math.log1p(min_change)


def stand_apart(early_H5: Floats, late_H5: Floats) -> Bools:
    """Which pairs of sorted heaps of five runs hardly overlap, and lie apart by more than their middle halves."""
    early_5H, late_5H = early_H5.T, late_H5.T
    size = np.abs(late_5H[2] - early_5H[2])
    width = np.maximum(late_5H[3] - late_5H[1], early_5H[3] - early_5H[1])
    apart: Bools = (size > WIDTHS * width) & ((late_5H[1] > early_5H[3]) | (late_5H[3] < early_5H[1]))
    return apart


def plain_step(y: Floats, where: Ints, policy: Policy, *, opened: bool = False) -> Change | None:
    """The step between the newest runs and those just before them, if anybody would see it. `opened`: a regression
    is, which a step down may end."""
    usual, smallest = local_noise(y), math.log1p(policy.min_change)
    away = y[-REFERENCES[0][0] - LENGTHS[-1] :] - middle(y[-SIDE:])
    if np.maximum.reduce(np.abs(away, out=away)) < REFERENCES[0][1] * usual:
        return None
    for length in LENGTHS:
        onset = len(y) - length
        if length < policy.sustained_runs:
            continue
        after = middle(y[onset:])
        for runs, deviations in REFERENCES:
            if onset < runs:
                continue
            before = middle(y[onset - runs : onset])
            if abs(after - before) < max(smallest, deviations * usual):
                continue
            if after < before and opened and length < policy.fixed_runs:
                continue
            if not _separate(y[onset - runs : onset], y[onset:], before, after, deviations):
                continue
            if runs < SHORT_EXCURSION and _ends_an_excursion(y[: onset - runs], before, after):
                continue
            return Change.at(where, onset, before, after, 2 * policy.evidence_regression)
    return None


def second_level(y: Floats, policy: Policy) -> int | None:
    """Where a second level begins among the runs since a change; None where they are of one level.

    A second step may come before the first is accepted. The runs since the first are then of two levels, and a model
    of them takes the difference for noise.
    """
    if not policy.sustained_runs < len(y) <= LOOKED_AT_AGAIN or 2 * policy.sustained_runs > LOOKED_AT_AGAIN:
        return None
    least = math.log1p(policy.min_change)
    ordered = np.sort(y)
    if ordered[-1] - ordered[0] < least:
        return None
    gaps = ordered[1:] - ordered[:-1]
    widest = int(gaps.argmax())
    if gaps[widest] < max(least, GAP * local_noise(y)):
        return None
    above = y > 0.5 * (ordered[widest] + ordered[widest + 1])
    onset = int((above != above[0]).argmax())
    is_one_step = bool((above[onset:] != above[0]).all())
    return onset if is_one_step and onset >= policy.sustained_runs else None


def second_step(y: Floats, where: Ints, policy: Policy, *, opened: bool) -> Change | None:
    """The step to that second level, once it has runs enough: to end what is `opened`, as many as that takes."""
    onset = second_level(y, policy)
    if onset is None:
        return None
    before, after, runs = middle(y[:onset]), middle(y[onset:]), len(y) - onset
    ends = policy.fixed_runs if after < before and opened else 0
    if runs < max(SIDE, policy.sustained_runs, ends):
        return None
    return Change.at(where, onset, before, after, 2 * policy.evidence_regression)


def _separate(reference: Floats, block: Floats, before: float, after: float, deviations: float) -> bool:
    """Whether a gap far beyond the noise lies between runs and the block after them."""
    size = after - before
    sign = 1 if size > 0 else -1
    early, late = np.sort(sign * (reference - before)), np.sort(sign * (block - before))
    spread = np.sort(np.abs(np.concatenate((reference - before, block - after))))
    noise = float(spread[int(0.68 * len(spread))])
    strays = 1 if len(block) >= STRAYS_FROM else 0
    odd = max(1, len(reference) // 10)
    is_apart = late[strays] > max(0.5 * abs(size), early[-1 - odd])
    return bool(is_apart) and abs(size) >= deviations * noise


def _ends_an_excursion(earlier: Floats, before: float, after: float) -> bool:
    """The few runs at the level before were a dip or a hump: most runs ahead of them lay where those after it do."""
    earlier = earlier[-EXCURSION_WITHIN:]
    middle_way = 0.5 * (before + after)
    there = earlier > middle_way if after > before else earlier < middle_way
    return len(earlier) >= SIDE and bool(there.mean() > 0.5)
