"""Confirming sessions: base and head interleaved in fresh processes, tested group-sequentially.

After every round the test may return confirmed, withdrawn or continue. The spread of one process comes from the series'
history, never from the session's few values. The boundary has O'Brien and Fleming's shape: early looks need
overwhelming evidence, so that frequent looks cost almost nothing of `session_alpha`; futility is judged against the
smallest change worth confirming, with the power required by the policy.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist, fmean

import numpy as np

from backend.regression.cost import log_cost
from backend.regression.policy import Policy
from backend.regression.terms import Direction


class Decision(enum.StrEnum):
    CONFIRMED = "confirmed"
    WITHDRAWN = "withdrawn"
    CONTINUE = "continue"
    UNDECIDED = "undecided"
    """The allowed processes are used up and neither can be said."""


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """Interim result of a session and its progress. Changes are fractions of cost, the interval is 99 %."""

    decision: Decision
    change: float
    low: float
    high: float
    processes_a_side: int
    needed_a_side: int
    """Processes per side at which a change of the smallest size can be distinguished from none."""


LEAST = 2
"""Fewer processes a side than this decide nothing, however far apart."""
LEAST_DIFFERENCES = 20
"""So many past differences speak for themselves; fewer are filled up with the policy's assumption."""

LATEST_RUNS = 60
"""The past runs that the spread of a process is estimated from."""


ROOM = 2
"""Looking after every round, for proof and for its absence, takes up to so many times the processes of a single look;
with fewer, the power is not that of the policy (0.93 instead of 0.95 at a spread of 1 %)."""
PROCESSES_A_ROUND = 2
"""A side: a round is ABBA."""


def most_rounds(policy: Policy) -> int:
    """Rounds of a session at most: as many as the policy's processes allow, and one in any case."""
    return max(1, policy.session_max_processes // PROCESSES_A_ROUND)


def processes_needed(spread: float, policy: Policy) -> int:
    """Processes a side for the policy's alpha and power at its smallest change."""
    normal = NormalDist()
    shift = math.log1p(policy.min_change)
    z = normal.inv_cdf(1 - policy.session_alpha) + normal.inv_cdf(policy.session_power)
    return max(LEAST, math.ceil(2 * (z * spread / shift) ** 2))


def process_spread(runs: Iterable[Sequence[float]], policy: Policy) -> float:
    """Relative standard deviation of one process, from the past runs of a series, oldest first.

    From the differences of neighbours (processes of one run; else runs of one process), so that neither steps nor
    drift of the history count as noise; robustly, so that spikes do not. A short past is filled up with the policy's
    assumption.
    """
    logs = [[math.log(value) for value in run if value > 0] for run in runs]
    recent = [run for run in logs if run][-LATEST_RUNS:]
    within = [(b - a) / math.sqrt(2) for run in recent for a, b in pairwise(run)]
    if len(within) < LEAST_DIFFERENCES:
        between = [(b[0] - a[0]) / math.sqrt(2) for a, b in pairwise(recent)]
        within += between
    prior = policy.prior_noise
    if not within:
        return prior
    own = 1.4826 * float(np.median(np.abs(within)))
    missing = max(0, LEAST_DIFFERENCES - len(within))
    # A few differences may show that a series is noisier than assumed, never that it is quieter.
    return max(own, math.sqrt((len(within) * own**2 + missing * prior**2) / (len(within) + missing)))


def next_step(
    base: Sequence[float], head: Sequence[float], direction: Direction, spread: float, policy: Policy
) -> SessionStatus:
    """Judge the session so far; `spread` is the relative standard deviation of one process, learnt from the past."""
    pairs = min(len(base), len(head))
    limit = policy.session_max_processes
    needed = processes_needed(spread, policy)
    if pairs == 0:
        return SessionStatus(Decision.CONTINUE, 0.0, -1.0, math.inf, 0, needed)
    difference = fmean(log_cost(v, direction) for v in head) - fmean(log_cost(v, direction) for v in base)
    error = max(spread, 1e-6) * math.sqrt(1 / len(base) + 1 / len(head))
    normal = NormalDist()
    wide = normal.inv_cdf(0.995) * error
    planned = min(limit, max(2 * LEAST, ROOM * needed))
    done = min(1.0, pairs / planned)
    upper = _boundary(policy.session_alpha, planned) / math.sqrt(done)
    lower = _boundary(1 - policy.session_power, planned) / math.sqrt(done)
    shift = math.log1p(policy.min_change)
    decision = Decision.CONTINUE
    if pairs >= LEAST:
        # Confirmed: more than nothing beyond doubt, and the estimate is worth telling.
        if difference > upper * error and difference >= 0.8 * shift:
            decision = Decision.CONFIRMED
        elif shift - difference > lower * error and difference < 0.8 * shift:
            decision = Decision.WITHDRAWN
        elif pairs >= limit:
            decision = Decision.UNDECIDED
    return SessionStatus(
        decision, math.expm1(difference), math.expm1(difference - wide), math.expm1(difference + wide), pairs, needed
    )


@lru_cache(maxsize=256)
def _boundary(risk: float, looks: int) -> float:
    """Final critical value of an O'Brien-Fleming test with so many equal looks (recursive integration)."""
    if looks <= 1:
        return NormalDist().inv_cdf(1 - risk)
    low, high = -3.0, 6.0
    for _ in range(36):
        centre = (low + high) / 2
        if _crossing(centre, looks) > risk:
            low = centre
        else:
            high = centre
    return high


def _crossing(limit: float, looks: int) -> float:
    """Chance that a Brownian motion is above the limit at one of the times 1/looks, 2/looks, … 1."""
    grid = np.linspace(-8, 8, 801)
    width = float(grid[1] - grid[0])
    step = 1 / math.sqrt(looks)
    bell = np.exp(-0.5 * (grid / step) ** 2) / (step * math.sqrt(2 * math.pi))
    density, crossed = bell, 0.0
    for look in range(looks):
        if look:
            density = np.convolve(density, bell, mode="same") * width
        beyond = grid > limit
        crossed += float(density[beyond].sum()) * width
        density = np.where(beyond, 0.0, density)
    return crossed
