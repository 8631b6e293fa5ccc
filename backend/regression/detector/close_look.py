"""The close look at what the CUSUMs notice: is it a change, where did it begin, how large is it, is it reported?

It also answers a question that no CUSUM asks: has the level returned from an open regression?
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from backend.regression.detector.density import (
    CORRELATION,
    NAT,
    Floats,
    Ints,
    NoiseModel,
    inflation,
    inflation_of,
    measure,
    middle,
)
from backend.regression.detector.evidence import (
    SHIFTS,
    backwards,
    calm,
    demanded,
    far_beyond,
    gains,
    little_known,
    local_noise,
    locate,
    seen_before,
    unruly,
    without_best,
)
from backend.regression.detector.memory import Change, Memory, Opened
from backend.regression.detector.reference import Reference, reference_of
from backend.regression.policy import Policy

WINDOW = 160
"""Runs among which a close look seeks the onset."""
SHORT = 6.0
"""A reference of n runs is worth n / (n + this) of its evidence."""
LONG_KNOWN = 200
"""Runs of a reference beyond which more of them say nothing more of its level."""
SHARPEN = 0.7
"""Share of the tempering that is undone for locating: an onset may be sharp where detection must be careful."""
LONG_REFERENCE = 2
"""A reference less than so many times as long as the block must look different from the block's side, too."""
WILDER, MOST_PAST = 2.0, 0.7
"""A worsening whose runs have so many times the variance of the reference must have this share of them past the middle
between the two levels: a series that became unsteady did not become slower."""
YOUNG = 20
"""With fewer runs before it, a change far beyond the threshold is accepted on its confidence limit."""
CLEAR_GAP = 6.0
"""Single runs end a loss only where it was at least so many standard deviations."""
LONGEST_DOUBT = 8
"""So many runs nearer to the earlier level than to the regression, but not back at it, are a level of their own."""
TOGETHER = 20
"""Newest runs that show together that a regression is over."""
SURE = 2.0
"""Standard errors of a level by which it must be back."""
_LENGTHS = np.arange(1, LONG_KNOWN + 1, dtype=np.float64)
_BEFORE = np.minimum(np.arange(1, LONG_KNOWN + WINDOW + 1, dtype=np.float64), LONG_KNOWN)
_WORTH = _BEFORE + SHORT
_FALLS = -SHIFTS
_NEWEST = np.arange(TOGETHER, 0, -1)


def look(d: Memory, y: Floats, where: Ints, hint: int, sign: int, policy: Policy) -> tuple[Change | None, float]:
    """A change, or how many nats of evidence are missing. Columns are starts, the newest first."""
    n, sustained = len(y), policy.sustained_runs
    least = d.least(policy)
    cut = max(least, min(hint, n - sustained))
    if n - cut < sustained:
        return None, 0.0
    reference = reference_of(y[:cut], d.model, d.fitted, d.carried, d.correlation, d.assumed_noise)
    model = reference.model
    low = max(least, cut - 40, n - WINDOW)
    gain, evidence, weight = _weigh(reference, y, low, sign)
    tops = np.maximum.reduce(evidence, axis=0) * weight
    length = sustained + int(tops[sustained - 1 :].argmax())
    onset = n - length
    wildness = unruly(y[onset:], model)
    trust = min(1.0, 1.0 / wildness) * calm(y[:onset], model)
    top = float(tops[length - 1]) * trust
    weight *= trust
    away = evidence[:, sustained - 1 :] * weight[sustained - 1 :]
    away -= top
    np.exp(away, out=away)
    total = max(top, top + math.log(float(np.add.reduce(away, axis=None)) / len(SHIFTS)))
    needed = demanded(sign, length, model, policy)
    if d.replicated and onset < YOUNG and far_beyond(y, onset, sign, model, wildness, policy):
        total = max(total, 2 * needed)
    elif total < needed:
        return None, needed - total
    elif not without_best(_single_runs(gain, evidence, length) / NAT, top, policy):
        return None, 0.0
    sharp = evidence * ((1 - SHARPEN) * weight + SHARPEN / NAT)
    onset, first, last = locate(sharp[:, ::-1], low)
    at = (min(onset, n - sustained), first, last)
    return _settle(d, y, where, at, total, sign, model, policy), 0.0


def _weigh(reference: Reference, y: Floats, low: int, sign: int) -> tuple[Ints, Ints, Floats]:
    """Log-likelihood ratios of single runs and of all blocks from `low` on (newest first), and what they are worth."""
    model, n = reference.model, len(y)
    shifts = SHIFTS if sign > 0 else _FALLS
    weight = _weights(model, n, n - low)
    if reference.innovations is None:
        gain = gains(model, y[low:][::-1], shifts)
        return gain, gain.cumsum(axis=1), weight
    added = reference.innovate(y[low - 1 :])[::-1]
    gain = gains(reference.innovations, added, shifts * (1 - model.correlation))
    evidence = gain.cumsum(axis=1)
    # The first run of a block is surprising by the whole step, the others by what the one before does not bring along.
    evidence += gains(reference.innovations, added, shifts) - gain
    weight *= _inflated(model.correlation)[: n - low]
    return gain, evidence, weight


def _single_runs(gain: Ints, evidence: Ints, length: int) -> Ints:
    """What each run of a block of this length says for its best size, the first run what remains of the whole."""
    best = evidence[:, length - 1].argmax()
    single = gain[best, :length].copy()
    single[-1] = evidence[best, length - 1] - single[:-1].sum()
    return single


@lru_cache(maxsize=256)
def _inflated(correlation: float) -> Floats:
    """The inflation of a mean of 1, 2, ... runs; remembered from one look at a block to the next."""
    return inflation(correlation, _LENGTHS)


@lru_cache(maxsize=256)
def _of_mean(correlation: float) -> Floats:
    """The inflated variance of a mean of 1, 2, ... runs before a block; of many runs it gets no smaller."""
    share: Floats = _inflated(correlation).take(_BEFORE.astype(np.int64) - 1) / _BEFORE
    return share


def _weights(model: NoiseModel, n: int, starts: int) -> Floats:
    """The worth of evidence in nats, for blocks of 1, 2, ... runs: less if autocorrelated, or after few runs."""
    inflated, of_mean = _inflated(model.correlation), _of_mean(model.correlation)
    known = min(n - 1, LONG_KNOWN + starts)
    before = slice(known - starts, known)
    variance = _LENGTHS[:starts] * of_mean[before][::-1]
    variance += inflated[:starts]
    variance *= _WORTH[before][::-1]
    variance *= NAT
    weight: Floats = np.divide(_BEFORE[before][::-1], variance, out=variance)
    return weight


def _settle(
    d: Memory,
    y: Floats,
    where: Ints,
    at: tuple[int, int, int],
    evidence: float,
    sign: int,
    model: NoiseModel,
    policy: Policy,
) -> Change | None:
    """The further conditions on a block whose evidence is enough."""
    n = len(y)
    onset, first, last = at
    block = y[onset:]
    before = middle(y[max(0, onset - 150) : onset])
    size = middle(block) - before
    if sign * size <= 0:
        return None
    bad = sign * (block - before) > 0.5 * abs(size)
    least = max(policy.sustained_runs, policy.fixed_runs) if sign < 0 and d.opened else policy.sustained_runs
    if bad.sum() < least or bad[-3:].sum() < min(3, policy.sustained_runs):
        return None
    became_unsteady = sign > 0 and bad.sum() < MOST_PAST * len(block) and unruly(block, model) > WILDER
    if became_unsteady or seen_before(y, onset, size, model) or little_known(onset, size, evidence, model, policy):
        return None
    if onset < LONG_REFERENCE * len(block):
        behind = backwards(y, onset, sign, d.carried, model)
        if behind < policy.evidence_regression:
            return None
    threshold = math.log1p(policy.min_change)
    inflated = inflation_of(model.correlation, float(len(block)))
    error = model.scale * math.sqrt(1.57 * inflated * (1 / len(block) + 1 / min(onset, 150)))
    adds_up = sign > 0 and d.anchor is not None and before + size - d.anchor >= threshold + error
    unclear = abs(size) + 1.5 * error > threshold or evidence < policy.evidence_improvement
    if abs(size) < threshold and unclear and not adds_up:
        return None
    return Change(
        onset=int(where[onset]),
        first=int(where[first]),
        last=int(where[last]),
        last_good=int(where[onset - 1]),
        detected=int(where[n - 1]),
        size=size,
        before=before,
        after=before + size,
        evidence=evidence,
        past_threshold=_is_past_threshold(d, size, before + size, threshold),
    )


def _is_past_threshold(d: Memory, size: float, after: float, threshold: float) -> bool:
    """Red is decided against the anchor, so that two losses of 4 % are one regression of 8 %."""
    if size < 0:
        return -size >= threshold
    return size >= threshold or (d.anchor is not None and after - d.anchor >= threshold)


def returned(d: Memory, y: Floats, where: Ints, policy: Policy) -> Change | None:
    """The newest runs are back at the level before an open regression, clearly away from the present one."""
    model = d.model
    assert model is not None
    newest = y[-policy.fixed_runs :]
    for earlier in d.opened:
        gap = model.level - earlier.before
        if gap < CLEAR_GAP * model.scale:
            continue
        if bool((newest - earlier.before < 0.4 * gap).all()) and bool((model.level - newest > 3 * model.scale).all()):
            back = model.level - y > 0.5 * gap
            onset = len(y) - int(np.argmin(back[::-1])) if not back.all() else 0
            if onset < 1:
                continue
            after = middle(y[onset:])
            return Change.at(where, onset, model.level, after, policy.evidence_improvement)
    return None


def over_at_once(d: Memory, policy: Policy) -> tuple[Change | None, bool]:
    """The end of an open regression whose level is too young for a baseline, and whether the newest runs may be it."""
    y, where, before = d.segment, d.places, d.opened[-1].before
    back = _runs_back(y, before)
    if not back:
        return None, False
    onset = len(y) - back
    noise, _ = measure(y[:onset], d.carried, d.correlation, d.assumed_noise)
    after = middle(y[onset:])
    is_clear = noise.level - before >= CLEAR_GAP * noise.scale
    wanted = policy.fixed_runs if is_clear else max(policy.fixed_runs, d.least(policy))
    if back < wanted or (after - before >= math.log1p(policy.min_change) and back < LONGEST_DOUBT):
        return None, True
    return Change.at(where, onset, noise.level, after, policy.evidence_improvement), True


def over_unseen(d: Memory, policy: Policy) -> Change | None:
    """The end of open regressions that no evidence showed, as in much noise, but the level of today does.

    It is back when even its upper confidence limit is nearer to the level before than to that of the regression, and
    within what counts. Nothing else changes by it: what is compared with is that level already.
    """
    model, y = d.model, d.segment
    assert model is not None
    upper = model.level + SURE * model.scale * math.sqrt(1.57 * inflation_of(model.correlation, len(y)) / len(y))
    threshold = math.log1p(policy.min_change)
    fixed = tuple(o for o in d.opened if upper - o.before < min(threshold, 0.5 * (o.after - o.before)))
    if not fixed:
        return None
    worse = fixed[-1].after
    at = min(int(np.argmax(np.cumsum(y - 0.5 * (worse + model.level)))) + 1, len(y) - policy.fixed_runs)
    if at < 1:
        return None
    return Change(
        onset=int(d.places[at]),
        first=int(d.places[at]),
        last=int(d.places[at]),
        last_good=int(d.places[at - 1]),
        detected=int(d.places[-1]),
        size=model.level - worse,
        before=worse,
        after=model.level,
        evidence=policy.evidence_improvement,
        past_threshold=False,
        fixed=fixed,
    )


def may_be_over(d: Memory, y: Floats, lengths: Ints, policy: Policy) -> list[int]:
    """At which of these lengths of the history y the newest runs together lie where no regression would be open."""
    lengths = lengths[lengths >= TOGETHER]
    if not d.opened or not len(lengths):
        return []
    newest = y.take(lengths[:, None] - _NEWEST)
    newest.sort(axis=1)
    now = (newest[:, TOGETHER // 2 - 1] + newest[:, TOGETHER // 2]) / 2
    over: list[int] = lengths[now - d.opened[-1].before < _wanted(d.opened[-1], policy)].tolist()
    return over


def over_by_now(d: Memory, y: Floats, where: Ints, policy: Policy) -> Change | None:
    """The end of an open regression that no stretch shows in this noise, but the newest runs together do."""
    opened, model = d.opened[-1], d.model
    assert model is not None
    if len(y) < TOGETHER:
        return None
    now, wanted = middle(y[-TOGETHER:]), _wanted(opened, policy)
    if now - opened.before >= wanted:
        return None
    noise = min(model.scale, local_noise(y))  # the model may be of the regression and of its end
    rho = min(model.correlation, max(d.correlation, CORRELATION))
    upper = now + SURE * noise * math.sqrt(1.57 * inflation_of(rho, TOGETHER) / TOGETHER)
    if upper - opened.before >= wanted:
        return None
    at = int(np.argmax(np.cumsum(y - 0.5 * (opened.after + now)))) + 1
    return (
        Change.at(where, at, opened.after, now, policy.evidence_improvement)
        if at <= len(y) - policy.fixed_runs
        else None
    )


def _wanted(opened: Opened, policy: Policy) -> float:
    """How much worse than before a regression the level must not be where it is over."""
    return min(math.log1p(policy.min_change), 0.5 * (opened.after - opened.before))


def _runs_back(y: Floats, before: float) -> int:
    """How many of the newest runs are nearer to the level before than to that of all runs that precede them."""
    nearer = (y[-runs:].max() - before < 0.5 * (middle(y[:-runs]) - before) for runs in range(1, len(y)))
    return max((runs for runs, back in enumerate(nearer, 1) if back), default=0)
