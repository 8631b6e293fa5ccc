"""How later events restate the verdicts of earlier points. Only this module decides that.

Ranges of positions include both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from backend.regression.change_points import ChangeEvent, KnownPoint, KnownPoints
from backend.regression.terms import ChangeDirection, ChangeKind, ChangeState, Judgement, Reason, Verdict

NEWEST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Restatement:
    """A new verdict for the points of a series between two positions."""

    series_id: int
    first: int
    last: int
    verdict: Verdict
    reason: Reason | None
    """None: the original reason stays."""
    onset_position: int | None
    regression_id: int | None
    instead_of: tuple[Verdict, ...]
    """Only judgements with these verdicts are restated …"""
    since: int | None = None
    """… and, if given, only those that were part of what began there."""


def verdict_now(judgement: Judgement, point: KnownPoint | None) -> Judgement:
    """The verdict to store for a fresh judgement, given the change point that it is part of: red only if code may be
    the cause, and unchanged after an end that an incident found from the runs of all workers."""
    if point is None:
        return judgement
    if point.fixed_position is not None and judgement.position >= point.fixed_position:
        return replace(judgement, verdict=Verdict.UNCHANGED, reason=Reason.RETURNED, red=False, since_position=None)
    if judgement.verdict is Verdict.REGRESSION and point.held_back:
        return replace(judgement, verdict=Verdict.SUSPECT, red=False)
    return judgement


def of_events(events: Iterable[ChangeEvent], known: KnownPoints) -> list[Restatement]:
    """Restatements of earlier points that follow from change events. `known`: the change points after them."""
    changes = (_of_event(event, known) for event in events if event.change.past_threshold)
    return [change for change in changes if change is not None and change.first <= change.last]


def _of_event(event: ChangeEvent, known: KnownPoints) -> Restatement | None:
    change, series_id = event.change, event.series_id
    onset, before = change.onset_position, change.detected_position - 1
    match change.state:
        case ChangeState.CONFIRMED if change.direction is ChangeDirection.IMPROVEMENT:
            return Restatement(
                series_id=series_id,
                first=onset,
                last=before,
                verdict=Verdict.IMPROVEMENT,
                reason=Reason.SUSTAINED_IMPROVEMENT,
                onset_position=onset,
                regression_id=None,
                instead_of=(Verdict.UNCHANGED,),
            )
        case ChangeState.CONFIRMED:
            point = known.at(series_id, onset)
            return Restatement(
                series_id=series_id,
                first=onset,
                # Of a drift only where it began is marked: the commits after it were not that much slower yet.
                last=min(onset, before) if change.kind is ChangeKind.DRIFT else before,
                verdict=Verdict.SUSPECT if point is not None and point.held_back else Verdict.REGRESSION,
                reason=Reason.STILL_WORSE,
                onset_position=onset,
                regression_id=None if point is None else point.regression_id,
                instead_of=(Verdict.SUSPECT, Verdict.UNCHANGED, Verdict.REGRESSION, Verdict.IMPROVEMENT),
            )
        case ChangeState.RELOCATED if change.previous_onset_position is not None:
            previous = change.previous_onset_position
            return _quiet(series_id, previous, onset - 1, previous, None)
        case ChangeState.WITHDRAWN:
            return _quiet(series_id, onset, before, onset, None)
        case ChangeState.FIXED:
            return _quiet(series_id, change.range_end, before, onset, Reason.RETURNED)
        case _:
            return None


def _quiet(series_id: int, first: int, last: int, since: int, reason: Reason | None) -> Restatement:
    return Restatement(
        series_id=series_id,
        first=first,
        last=last,
        verdict=Verdict.UNCHANGED,
        reason=reason,
        onset_position=None,
        regression_id=None,
        instead_of=(Verdict.SUSPECT, Verdict.REGRESSION, Verdict.UNCHANGED),
        since=since,
    )


def of_points(points: Sequence[KnownPoint]) -> list[Restatement]:
    """The judgements of change points in their current state: they name the regression, and are red only if code is to
    blame, and only until the change is over."""
    return [restatement for point in points for restatement in _of_point(point)]


def _of_point(point: KnownPoint) -> list[Restatement]:
    if point.state == ChangeState.FIXED and point.fixed_position is not None:
        over = _of_change(point, Verdict.UNCHANGED, Verdict.SUSPECT, Verdict.REGRESSION)
        return [
            replace(over, first=point.fixed_position, reason=Reason.RETURNED, onset_position=None, regression_id=None)
        ]
    if not point.is_live:
        return []
    confirmed = point.state == ChangeState.CONFIRMED
    worse = Verdict.SUSPECT if point.held_back else Verdict.REGRESSION
    if confirmed and point.kind == ChangeKind.STEP:
        return [_of_change(point, worse, Verdict.SUSPECT, Verdict.REGRESSION)]
    # Of a drift only where it began is red, and of a suspect nothing.
    said = [_of_change(point, Verdict.SUSPECT, Verdict.SUSPECT)]
    return [*said, _of_change(point, worse, Verdict.REGRESSION)] if confirmed else said


def of_dismissed(points: Sequence[KnownPoint]) -> list[Restatement]:
    """A person decided that these changes are not real."""
    return [
        replace(
            _of_change(point, Verdict.UNCHANGED, Verdict.SUSPECT, Verdict.REGRESSION),
            reason=Reason.WITHIN_BAND,
            onset_position=None,
            regression_id=None,
        )
        for point in points
        if point.is_live
    ]


def _of_change(point: KnownPoint, verdict: Verdict, *instead_of: Verdict) -> Restatement:
    return Restatement(
        series_id=point.series_id,
        first=point.onset_position,
        last=NEWEST,
        verdict=verdict,
        reason=None,
        onset_position=point.onset_position,
        regression_id=point.regression_id,
        instead_of=instead_of,
        since=point.onset_position,
    )
