"""The nouns of the judge: what goes in (points of a series), what comes out (judgements and change points).

Changes are fractions of COST: +0.08 is eight percent worse, whichever way the metric points. Values, baselines and
bands are in the metric's own unit. Positions are first-parent positions on the branch.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backend.metric import Direction, Role
from backend.records import record

__all__ = [
    "ChangeDirection",
    "ChangeKind",
    "ChangePoint",
    "ChangeState",
    "Direction",
    "Judgement",
    "Point",
    "PointLike",
    "Reason",
    "Role",
    "SeriesKind",
    "Verdict",
]


class Verdict(enum.StrEnum):
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    UNCHANGED = "unchanged"
    SUSPECT = "suspect"
    UNSTEADY = "unsteady"
    """Nothing is seen, but a change that counts would not be seen either: too much noise."""
    INSUFFICIENT = "insufficient"


class ChangeKind(enum.StrEnum):
    STEP = "step"
    DRIFT = "drift"


class ChangeDirection(enum.StrEnum):
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"


class ChangeState(enum.StrEnum):
    """The state of a change point after an event; events are appended, never edited."""

    SUSPECT = "suspect"
    CONFIRMED = "confirmed"
    RELOCATED = "relocated"
    FIXED = "fixed"
    WITHDRAWN = "withdrawn"


class Reason(enum.StrEnum):
    """Why the verdict is what it is; `explain` turns it and the numbers into a paragraph."""

    WITHIN_BAND = "within_band"
    TOO_FEW_RUNS = "too_few_runs"
    TOO_UNSTEADY = "too_unsteady"
    CALIBRATING_WORKER = "calibrating_worker"
    BELOW_THRESHOLD = "below_threshold"
    OUTSIDE_BAND_ONCE = "outside_band_once"
    AWAITING_RUNS = "awaiting_runs"
    IMPROVEMENT_PENDING = "improvement_pending"
    SUSTAINED_STEP = "sustained_step"
    SUSTAINED_DRIFT = "sustained_drift"
    CONFIRMED_BY_SESSION = "confirmed_by_session"
    STILL_WORSE = "still_worse"
    RETURNING = "returning"
    RETURNED = "returned"
    SUSTAINED_IMPROVEMENT = "sustained_improvement"
    SMALL_CHANGE = "small_change"
    KNOWN_MODE = "known_mode"
    EXACT_SAME = "exact_same"
    EXACT_CHANGED = "exact_changed"
    EXACT_BELOW_THRESHOLD = "exact_below_threshold"
    EXACT_IMPROVED = "exact_improved"

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """Judgements that were stored earlier name some reasons otherwise."""
        return next((cls(now) for now, then in _ONCE_CALLED.items() if then == value), None)


_ONCE_CALLED = {"below_threshold": "below_gate", "exact_below_threshold": "exact_below_gate"}


@record()
class SeriesKind:
    """Properties of a series that the judge needs beyond its points."""

    direction: Direction
    role: Role = Role.GATE
    exact: bool = False


class PointLike(Protocol):
    """All that the judge is told of a result of a series."""

    @property
    def position(self) -> int: ...
    @property
    def commit(self) -> str: ...
    @property
    def values(self) -> Sequence[float]:
        """The medians of its fresh processes, or the single value of a derived metric."""

    @property
    def worker(self) -> str: ...


@record()
class Point:
    """One result of one series."""

    position: int
    commit: str
    values: Sequence[float]
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """One event in the life of a change point; `onset_position` identifies the change point within its series."""

    kind: ChangeKind
    direction: ChangeDirection
    state: ChangeState
    onset_position: int
    last_good_position: int | None
    """The newest point of the series before the onset: the suspect commits are those after it up to the onset."""
    range_start: int
    """First position at which the change may have begun, as far as the data can tell."""
    range_end: int
    """Last position at which the change may have begun."""
    magnitude: float
    """Cost change across the onset, as a fraction: +0.2 is 20 % worse."""
    past_threshold: bool
    """True if this is large enough to be reported. False: a small, clear change that only moves the baseline."""
    detected_position: int
    baseline: float
    level: float
    previous_onset_position: int | None = None
    """For `relocated`: where the onset was thought to be before."""


@record(kw_only=True)
class Judgement:
    """The judgement of one point, with everything it was judged by."""

    position: int
    commit: str
    verdict: Verdict
    reason: Reason
    policy_version: str
    value: float
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    baseline: float | None = None
    band_low: float | None = None
    band_high: float | None = None
    anchor: float | None = None
    anchor_change: float | None = None
    smoothed: float
    smoothed_low: float
    smoothed_high: float
    noise: float | None = None
    minimum_detectable_effect: float | None = None
    n_baseline: int = 0
    needed_runs: int = 0
    red: bool = False
    """True when the cell is red: verdict regression on a gate metric."""
    onset: bool = False
    """True when this point is itself the first bad one, as known when it was judged."""
    since_position: int | None = None
    """Inside an open regression or suspect: where it began."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    events: tuple[ChangePoint, ...] = ()
