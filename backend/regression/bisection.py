"""Bisection under noise: which commit of a range made a series worse, with what certainty, and which to measure next.

Every commit of the range is a hypothesis: "I am the first bad one". Each measurement multiplies their odds by how well
it fits the good or the bad level; a share of the measurements is assumed to be accidental, so that none alone decides.
The next commit is the one whose measurement is expected to be most informative; the bisection stops when one hypothesis
is certain enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

SURE = 0.95
"""Posterior probability at which a commit is named."""
ACCIDENT = 0.02
"""Share of measurements that say nothing: a hiccup of the machine, a commit with an oddity of its own."""
FINEST = 0.05
"""A measurement is never assumed to be more precise than this share of the shift in question."""
LEAST_INFORMATION = 0.02
"""Bits; a measurement that is expected to give less information is not worth a machine's time."""
CLEAR = 2.1
"""Standard errors from either level to the midpoint at which a step counts as settled."""
MOST_PROCESSES = 12


@dataclass(frozen=True, slots=True)
class Candidate:
    """A commit after the last good one, up to the first bad one. `untouched`: it cannot have changed what runs."""

    sha: str
    untouched: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """A measurement of a candidate: the shift of log cost relative to the good level, and its error."""

    index: int
    shift: float
    error: float


@dataclass(frozen=True, slots=True)
class BisectionStatus:
    """The progress of a bisection."""

    probabilities: tuple[float, ...]
    best: int
    confidence: float
    remaining: int
    """Commits that cannot be ruled out yet."""
    next_index: int | None
    """The commit to measure next; None: it is over, with certainty or because nothing more can be learned."""
    steps_left: int

    @property
    def sure(self) -> bool:
        return self.confidence >= SURE


def status_after(
    candidates: Sequence[Candidate],
    observations: Sequence[Observation],
    shift: float,
    error: float,
    unusable: Sequence[int] = (),
) -> BisectionStatus:
    """The bisection's status; `error`: that of one more measurement; `unusable` candidates cannot be measured."""
    probabilities = posterior(candidates, observations, shift)
    best = int(np.argmax(probabilities))
    confidence = float(probabilities[best])
    remaining = int(np.sum(probabilities > 0.01))
    closed = set(unusable) | {len(candidates) - 1}
    information = [
        -1.0 if index in closed else _information(float(probabilities[: index + 1].sum()), shift, error)
        for index in range(len(candidates))
    ]
    choice = int(np.argmax(information)) if information else 0
    worth = bool(information) and information[choice] > LEAST_INFORMATION
    over = confidence >= SURE or not worth
    return BisectionStatus(
        probabilities=tuple(float(p) for p in probabilities),
        best=best,
        confidence=confidence,
        remaining=remaining,
        next_index=None if over else choice,
        steps_left=0 if over else max(1, math.ceil(_bits_to_go(probabilities) / information[choice])),
    )


def posterior(
    candidates: Sequence[Candidate], observations: Sequence[Observation], shift: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """For each candidate, the probability that it is the first bad commit."""
    n = len(candidates)
    logs = np.array([-np.inf if candidate.untouched else 0.0 for candidate in candidates])
    if not np.isfinite(logs).any():
        logs = np.zeros(n)  # it got worse all the same: paths do not tell everything
    for seen in observations:
        good, bad = _log_likelihoods(seen, shift)
        logs = logs + np.where(np.arange(n) <= seen.index, bad, good)
    weights = np.exp(logs - logs.max())
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return found


def _log_likelihoods(seen: Observation, shift: float) -> tuple[float, float]:
    error = max(seen.error, FINEST * shift)
    anywhere = ACCIDENT / (4 * shift)

    def fits(level: float) -> float:
        z = (seen.shift - level) / error
        return math.log(anywhere + (1 - ACCIDENT) * math.exp(-0.5 * z * z) / (error * math.sqrt(2 * math.pi)))

    # What lies beyond the bad level is as bad as bad can be, and what is better than good is good.
    beyond = min(max(seen.shift, 0.0), shift)
    if beyond != seen.shift:
        return _log_likelihoods(Observation(seen.index, beyond, seen.error), shift)
    return fits(0.0), fits(shift)


def _information(bad: float, shift: float, error: float) -> float:
    """Bits that measuring a commit is expected to tell, when it is bad with probability `bad`."""
    wrong = ACCIDENT / 2 + (1 - ACCIDENT) * NormalDist().cdf(-shift / (2 * max(error, FINEST * shift)))
    seen_bad = bad * (1 - wrong) + (1 - bad) * wrong
    return _entropy(seen_bad) - _entropy(wrong)


def _entropy(p: float) -> float:
    return 0.0 if p <= 0 or p >= 1 else -(p * math.log2(p) + (1 - p) * math.log2(1 - p))


def _bits_to_go(probabilities: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    known = probabilities[probabilities > 0]
    uncertain = float(-(known * np.log2(known)).sum())
    sure_enough = _entropy(SURE)
    return max(0.0, uncertain - sure_enough)


def processes_a_step(shift: float, spread: float) -> int:
    """Fresh processes needed to make a measurement clearly good or clearly bad."""
    return min(MOST_PROCESSES, max(1, math.ceil((2 * CLEAR * spread / shift) ** 2)))


def looks_bad(seen: Observation, shift: float) -> bool:
    return seen.shift > shift / 2
