"""The life of one change point: what is known of it, and how each event of its series changes that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backend.regression.cause.attribution import CauseName
from backend.regression.grouping import SeriesChange
from backend.regression.terms import ChangeDirection, ChangeKind, ChangePoint, ChangeState, Role

LIVE = frozenset({ChangeState.SUSPECT, ChangeState.CONFIRMED})
"""States of a change point whose series still shows the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """An event of a change point of one series. `noise`: the relative spread between runs in which it was seen."""

    series_id: int
    change: ChangePoint
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPoint:
    """A change point in its current state, with the names of its series and the state of its regression."""

    id: int
    series_id: int
    testbed_id: int
    regression_id: int | None
    regression_state: str | None
    kind: str
    direction: str
    state: str
    onset_position: int
    last_good_position: int | None
    detected_position: int
    fixed_position: int | None
    change: float
    before: float | None
    after: float | None
    benchmark: str
    metric: str
    role: str
    exact: bool
    noise: float | None = None
    """Relative spread between runs of its series; None: not known."""
    is_placed: bool = False
    """A person decided which regression it belongs to."""
    regression_cause: str | None = None
    first_suspect: int | None = None
    """First and last of the commits after the last good run that may have caused it; None: any of them may have."""
    last_suspect: int | None = None

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_gate(self) -> bool:
        return self.role == Role.GATE

    @property
    def held_back(self) -> bool:
        """The change is real, but its cause is not code: nobody is notified of slower code."""
        return self.state == ChangeState.CONFIRMED and self.regression_state == "suspect"

    @property
    def suspects(self) -> tuple[int, int]:
        """The first and the last commit at which it may have begun."""
        if self.first_suspect is not None and self.last_suspect is not None:
            return self.first_suspect, self.last_suspect
        onset, good = self.onset_position, self.last_good_position
        return (onset if good is None else good + 1), onset

    def outlasts(self, end: int) -> bool:
        """Whether its series shows the change for longer after position `end` than before it."""
        return self.detected_position - end > end - self.onset_position

    def fixed_at(self, position: int) -> KnownPoint:
        return replace(self, state=ChangeState.FIXED.value, fixed_position=position)

    def as_change_point(self) -> ChangePoint:
        return ChangePoint(
            kind=ChangeKind(self.kind),
            direction=ChangeDirection(self.direction),
            state=ChangeState(self.state),
            onset_position=self.onset_position,
            last_good_position=self.last_good_position,
            range_start=self.suspects[0],
            range_end=self.suspects[1],
            magnitude=self.change,
            past_threshold=True,
            detected_position=self.detected_position,
            baseline=self.before or 0.0,
            level=self.after or 0.0,
        )

    def as_series_change(self) -> SeriesChange:
        """In the form that grouping needs."""
        return SeriesChange(
            str(self.series_id),
            str(self.testbed_id),
            self.benchmark,
            self.metric,
            Role(self.role),
            self.as_change_point(),
            exact=self.exact,
            # Machines and software reach series at different runs: what they do is not told apart by commits.
            noise=self.noise if self.regression_cause in (None, CauseName.CODE) else None,
        )


@dataclass(slots=True)
class KnownPoints:
    """The change points of some series by series and onset, and the regressions that have just changed."""

    points: Mapping[tuple[int, int], KnownPoint] = field(default_factory=dict)
    regressions: tuple[int, ...] = ()

    def at(self, series_id: int, onset: int | None) -> KnownPoint | None:
        return None if onset is None else self.points.get((series_id, onset))


def counts_as_regression(change: ChangePoint) -> bool:
    """Whether a change may be part of a regression: for the worse, and past the threshold."""
    return change.direction is ChangeDirection.REGRESSION and change.past_threshold


def advance(known: KnownPoint, change: ChangePoint) -> KnownPoint:
    """The change point after an event of its series.

    One that ended because an incident did (see `Matching`) is shown again only by `suspect` and `confirmed`; any other
    event of its own series adds nothing new.
    """
    if not known.is_live and change.state not in LIVE:
        return known
    match change.state:
        case ChangeState.SUSPECT | ChangeState.CONFIRMED:
            return _as_seen(known, change, change.state)
        case ChangeState.RELOCATED:
            return _as_seen(known, change, ChangeState(known.state))
        case ChangeState.FIXED:
            return known.fixed_at(change.range_end)
        case ChangeState.WITHDRAWN:
            return replace(known, state=ChangeState.WITHDRAWN.value, fixed_position=None)


def _as_seen(known: KnownPoint, change: ChangePoint, state: ChangeState) -> KnownPoint:
    return replace(
        known,
        kind=change.kind.value,
        state=state.value,
        onset_position=change.onset_position,
        last_good_position=change.last_good_position,
        detected_position=change.detected_position,
        fixed_position=None,
        change=change.magnitude,
        before=change.baseline,
        after=change.level,
        first_suspect=None,
        last_suspect=None,
    )
