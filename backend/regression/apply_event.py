"""Applying an event to a regression: what the evidence shows, and what people decide.

`apply` is pure. Its caller stores the regression it returns, restates the judgements, and notifies
(`backend.services.regressions.apply`). What was reported is never edited: each change is a further notification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from backend.regression import decisions
from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.change_points import KnownPoint
from backend.regression.grouping import Group, lead_of
from backend.regression.incidents import ReportedIncident
from backend.regression.regression_events import (
    AlarmEnded,
    Applied,
    ChangeSeen,
    Event,
    HistoryEntry,
    IncidentChanged,
    PersonDecided,
    PersonRegrouped,
    SessionDecided,
    ShownAgain,
)
from backend.regression.regression_state import ANNOUNCED, RegressionState, Step, TrackedRegression, state_after
from backend.regression.restatements import of_points
from backend.regression.terms import ChangeState

S = RegressionState
ONE_ALARM = 30
"""Positions after which a machine that was slow before raises a new alarm."""


def apply(regression: TrackedRegression, points: Sequence[KnownPoint], event: Event) -> Applied:
    """Apply an event to a regression. `points` are its change points as they are now. Raises `StepRefused`."""
    applied = _applied(regression, points, event)
    after = applied.regression
    held_back = after.state is S.SUSPECT and any(point.state == ChangeState.CONFIRMED for point in points)
    return applied if held_back == after.held_back else replace(applied, regression=replace(after, held_back=held_back))


def _applied(regression: TrackedRegression, points: Sequence[KnownPoint], event: Event) -> Applied:
    match event:
        case ChangeSeen():
            return _weigh(regression, points, event)
        case ShownAgain():
            return _reopen(regression, event)
        case SessionDecided():
            detail = {"session_id": event.session_id, "state": event.state, "decision": event.decision}
            note = HistoryEntry(kind="session", state=regression.state, note=event.reason, detail=detail)
            return Applied(regression=regression, history=(note,))
        case PersonDecided():
            return decisions.decide(regression, points, event)
        case PersonRegrouped():
            return _regroup(regression, points, event)
        case AlarmEnded():
            after = replace(regression, state=state_after(regression, Step.END_INFRA_ALARM), still_bad=False)
            note = HistoryEntry(kind="withdrawn", state=after.state, detail={"note": event.note})
            return Applied(regression=after, history=(note,))


def opened(testbed_id: int, found: Group, cause: Cause, noise: float | None) -> TrackedRegression:
    """A new regression. It begins as a suspect; `ChangeSeen` advances it when its change points are confirmed."""
    new = TrackedRegression(
        testbed_id=testbed_id,
        state=S.SUSPECT,
        kind=found.lead.change.kind.value,
        cause=None,
        evidence=(),
        first_bad_position=found.onset_position,
        last_good_position=found.last_good_position,
        lead_series_id=None,
        lead_change=None,
    )
    return _with_evidence(new, found, cause, noise)


def leading(regression: TrackedRegression, points: Sequence[KnownPoint]) -> Group | None:
    """The gate change points that define an open regression; None: none of them is live, or it is not open."""
    alive = [point for point in points if point.is_gate and point.is_live]
    if not alive or not regression.is_open:
        return None
    confirmed = [point for point in alive if point.state == ChangeState.CONFIRMED]
    # The testbed that was named stays the one that is named, for as long as it shows the change.
    here = [point for point in confirmed or alive if point.testbed_id == regression.testbed_id]
    changes = [point.as_series_change() for point in here or confirmed or alive]
    return Group(lead_of(changes), tuple(changes))


def _weigh(regression: TrackedRegression, points: Sequence[KnownPoint], event: ChangeSeen) -> Applied:
    """Bring a regression in line with its change points and its cause, and tell what changed."""
    gates = [point for point in points if point.is_gate]
    found = leading(regression, points)
    if not any(point.is_live for point in gates):
        return _restating(_end(regression, gates, event), points, event)
    if found is None:
        return _restating(Applied(regression=regression), points, event)
    assert event.cause is not None
    cause = event.cause
    confirmed = [point.series_id for point in gates if point.state == ChangeState.CONFIRMED]
    newly = regression.state is S.SUSPECT and bool(confirmed or (event.incident is not None and not cause.suppress))
    proved = newly and not cause.suppress
    taken_back = event.incident is not None and cause.suppress and regression.state is S.CONFIRMED
    state = regression.state
    if proved or taken_back:
        state = state_after(regression, Step.PROVE if proved else Step.TAKE_BACK)
    after = _with_evidence(replace(regression, state=state), found, cause, event.noise)
    after = _located(regression, after, event.incident)
    entries = []
    if _has_moved(regression, after, event.incident):
        place = {"from": regression.first_bad_position, **_place(event.run_id, found, after.first_bad_position)}
        entries.append(HistoryEntry(kind="relocated", state=state, detail=place))
    alarm: dict[str, Any] = {"cause": cause.cause.value, "evidence": list(cause.evidence)}
    if taken_back:
        entries.append(HistoryEntry(kind="infra_alarm", state=state, detail={**alarm, "taken_back": True}))
    elif proved:
        place = {"change": found.magnitude, **_place(event.run_id, found, after.first_bad_position)}
        entries.append(HistoryEntry(kind="confirmed", state=state, detail={"cause": cause.cause.value, **place}))
    elif newly and not regression.is_infra_alarm:
        entries.append(HistoryEntry(kind="infra_alarm", state=state, detail=alarm))
    applied = Applied(
        regression=after,
        history=tuple(entries),
        is_located=True,
        alarms_confirmed=() if cause.suppress else tuple(s for s in confirmed if s in event.newly_confirmed),
        alarms_withdrawn=tuple(confirmed) if taken_back else (),
    )
    return _restating(applied, points, event)


def _restating(applied: Applied, points: Sequence[KnownPoint], event: ChangeSeen) -> Applied:
    if not isinstance(event, IncidentChanged):
        return applied
    state = applied.regression.state.value
    return replace(applied, restatements=tuple(of_points([replace(p, regression_state=state) for p in points])))


def _with_evidence(regression: TrackedRegression, found: Group, cause: Cause, noise: float | None) -> TrackedRegression:
    # Of a change between two levels, each known from a few runs.
    half = None if noise is None else 1.96 * noise * sqrt(2 / 3)
    return replace(
        regression,
        kind=found.lead.change.kind.value,
        cause=cause.cause.value,
        evidence=cause.evidence,
        first_bad_position=found.onset_position,
        last_good_position=found.last_good_position,
        lead_series_id=int(found.lead.series_id),
        lead_change=found.magnitude,
        lead_change_low=None if half is None else found.magnitude - half,
        lead_change_high=None if half is None else found.magnitude + half,
    )


def _located(
    before: TrackedRegression, after: TrackedRegression, incident: ReportedIncident | None
) -> TrackedRegression:
    """Where it began: as its incident says, else as its change points do."""
    if incident is not None:
        good = incident.range_start - 1
        return replace(
            after, first_bad_position=incident.first_bad_position, last_good_position=good if good >= 0 else None
        )
    goes_on = after.cause == CauseName.HARDWARE and before.cause == CauseName.HARDWARE
    if goes_on and before.first_bad_position <= after.first_bad_position:  # what shows it next is no other beginning
        first_bad, last_good = before.first_bad_position, before.last_good_position
        return replace(after, first_bad_position=first_bad, last_good_position=last_good)
    return after


def _has_moved(before: TrackedRegression, after: TrackedRegression, incident: ReportedIncident | None) -> bool:
    if after.first_bad_position != before.first_bad_position:
        return True
    return incident is None and after.last_good_position != before.last_good_position


def _place(run_id: str, found: Group, position: int) -> dict[str, Any]:
    return {"run_id": run_id, "position": position, "series": len(found.members)}


def suspected(run_id: str, found: Group) -> HistoryEntry:
    """The first entry of a history."""
    return HistoryEntry(kind="suspected", state=S.SUSPECT, detail=_place(run_id, found, found.onset_position))


def _end(regression: TrackedRegression, gates: Sequence[KnownPoint], event: ChangeSeen) -> Applied:
    """No series is worse any more: mended by a commit, never real, or part of another."""
    if not regression.still_bad or _comes_and_goes(regression, gates, event.position):
        return Applied(regression=regression)
    ends = [p.fixed_position for p in gates if p.state == ChangeState.FIXED and p.fixed_position is not None]
    fixed = max(ends, default=None)
    incident = event.incident
    if fixed is None and _is_held(regression, incident, event.part_of):
        return Applied(regression=regression)
    if fixed is not None or regression.state in ANNOUNCED:
        fixed = fixed if incident is None or incident.closed_position is None else incident.closed_position
    state = state_after(regression, Step.WITHDRAW if fixed is None else Step.FIX)
    false_alarm = state is S.WITHDRAWN and regression.state is not S.SUSPECT and event.part_of is None
    detail: dict[str, Any] = {"run_id": event.run_id}
    if event.part_of is not None:
        detail["part_of"] = event.part_of
    if fixed is not None:
        detail["position"] = fixed
    return Applied(
        regression=replace(regression, state=state, still_bad=False),
        history=(HistoryEntry(kind="withdrawn" if fixed is None else "fixed", state=state, detail=detail),),
        fixed_position=fixed,
        alarms_withdrawn=tuple(point.series_id for point in gates) if false_alarm else (),
    )


def _is_held(regression: TrackedRegression, incident: ReportedIncident | None, part_of: int | None) -> bool:
    """Whether an announced regression stays open because the joint detector still shows it.

    Its change points may have become those of something else that happened since.
    """
    if incident is None or regression.state not in ANNOUNCED or part_of is not None:
        return False
    return incident.cause == CauseName.CODE and incident.closed_position is None


def _comes_and_goes(regression: TrackedRegression, gates: Sequence[KnownPoint], position: int) -> bool:
    """An alarm about one worker of several stays while others run: their good runs say nothing of it."""
    if regression.cause != CauseName.HARDWARE or regression.state is not S.SUSPECT:
        return False
    if any(point.state == ChangeState.FIXED for point in gates):
        return False
    newest = max((point.onset_position for point in gates), default=0)
    return position - newest < ONE_ALARM


def _reopen(regression: TrackedRegression, event: ShownAgain) -> Applied:
    after = replace(regression, state=state_after(regression, Step.SHOW_AGAIN), still_bad=True)
    detail = _place(event.run_id, event.found, event.found.onset_position)
    kind = "reopened"
    if event.cause is not None:
        kind = "infra_alarm"
        detail |= {"cause": event.cause.cause.value, "evidence": list(event.cause.evidence)}
    return Applied(regression=after, history=(HistoryEntry(kind=kind, state=after.state, detail=detail),))


def _regroup(regression: TrackedRegression, points: Sequence[KnownPoint], event: PersonRegrouped) -> Applied:
    """Weigh a regression anew that a person has moved change points to, or away from."""
    after, entries = regression, list[HistoryEntry]()
    if not any(point.is_gate and point.is_live for point in points):
        after = replace(after, state=state_after(after, Step.MERGE), still_bad=False)
    else:
        after = replace(after, state=state_after(after, Step.REGROUP), still_bad=True)
    found = leading(after, points)
    if found is not None:
        cause = regression.known_cause
        assert cause is not None  # each had one when it was opened
        if event.is_proved and after.state is S.SUSPECT and not cause.suppress:
            after = replace(after, state=state_after(after, Step.PROVE))
            place = {"change": found.magnitude, "position": found.onset_position, "series": len(found.members)}
            proof = {"cause": cause.cause.value, **place}
            entries = [HistoryEntry(kind="confirmed", state=after.state, detail=proof)]
        after = _with_evidence(after, found, cause, found.lead.noise)
    detail: dict[str, Any] = {"moved": dict(event.moved)}
    if event.undoes is not None:
        detail["event"] = event.undoes
    if event.is_undoable_here:
        detail |= {"was": decisions.decision_of(regression), "became": decisions.decision_of(after)}
    entry = HistoryEntry(kind=event.kind, state=after.state, actor=event.actor, detail=detail)
    return Applied(regression=after, history=(entry, *entries), is_located=found is not None)
