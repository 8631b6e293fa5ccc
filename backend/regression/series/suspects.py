"""Runs that look worse, or look as before a regression, while nothing is proved yet: pure rules of one run more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from backend.regression.policy import Policy
from backend.regression.series.limits import Limits
from backend.regression.series.state import Suspect


def followed(
    suspect: Suspect | None, x: float, place: int, last_good: int, limits: Limits, policy: Policy
) -> Suspect | None:
    """The suspect with one more run (its log cost, and its place), or a new one; None where the run does not look
    worse. `last_good`: the place of the run before; `limits`: of the baseline before this run."""
    level = limits.model.level if suspect is None else suspect.baseline
    worse = x - level > max(limits.least_change, limits.high)
    if suspect is None:
        return Suspect(place, last_good, 1, level, x) if worse else None
    undecided = x - level > 0.5 * (suspect.worst - level) and suspect.runs < 4 * policy.sustained_runs
    if worse or undecided:
        return replace(suspect, runs=suspect.runs + 1, worst=max(suspect.worst, x))
    return None


def is_near_any(place: int, disproved: Sequence[int]) -> bool:
    """Whether something else showed that no regression begins there."""
    return any(abs(place - onset) <= 2 for onset in disproved)


def runs_returning(before: int, x: float, limits: Limits | None) -> int:
    """How many runs in a row look as before the open regression, while it has not been closed, with this one more."""
    if limits is None or not limits.opened:
        return 0
    model, last = limits.model, limits.opened[-1]
    gap = model.level - last.before
    back = gap > 4 * model.scale and x - last.before < 0.4 * gap
    return before + 1 if back else 0
