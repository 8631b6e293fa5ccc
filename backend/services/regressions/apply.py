"""Where what is learned about regressions comes in; all of it is stored by `ledger.record`.

Delivery, judging again, sessions and moved commits bring change events; the joint detector brings incidents; people
and lasting infra alarms bring decisions. Each is treated the same way: lock, load, apply (`backend.regression.
apply_event`), write, notify.

Locks are always taken in the same order: the series, in the order of their ids (by the caller, who knows them); the
regressions of the project, all at once; the rows of regressions, in the order of their ids; a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from backend.regression.apply_event import leading
from backend.regression.cause.attribution import CauseName
from backend.regression.change_points import LIVE, ChangeEvent, KnownPoint, KnownPoints, advance, counts_as_regression
from backend.regression.incidents import ReportedIncident
from backend.regression.regression_events import ChangeSeen, Event, IncidentChanged
from backend.regression.regression_state import TrackedRegression
from backend.regression.terms import ChangeDirection, ChangePoint, ChangeState
from backend.services.regressions import ledger
from backend.services.regressions.causes import Causes
from backend.services.regressions.ledger import RegressionContext
from backend.services.regressions.matching import Matching
from backend.services.sessions import request as sessions
from backend.store.joint import incidents as incident_store
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as store

lock = store.lock


def known_points(c: Connection, series_ids: Iterable[int]) -> KnownPoints:
    """The change points of series in their current state."""
    points = point_store.of_series(c, series_ids)
    return KnownPoints({(p.series_id, p.onset_position): p for p in points if p.state != ChangeState.WITHDRAWN})


def apply_changes(
    c: Connection, context: RegressionContext, events: Sequence[ChangeEvent], series_ids: Sequence[int], *, watched: int
) -> KnownPoints:
    """Update change points and regressions from the judge's results for series, which the caller has locked.

    `watched`: how many series of the run are judged. Returns the change points of `series_ids`, and the regressions
    that changed.
    """
    store.lock(c, context.project_id)
    causes = Causes(c, context, noises={event.series_id: event.noise for event in events}, watched=watched)
    fresh, touched = _advance_points(c, context, events)
    matching = Matching(c, context, causes, touched)
    matching.attach(fresh)
    confirmed = {
        event.series_id
        for event in events
        if event.change.state is ChangeState.CONFIRMED and counts_as_regression(event.change)
    }
    _weigh_all(c, context, causes, matching, newly_confirmed=frozenset(confirmed))
    known = known_points(c, series_ids)
    known.regressions = tuple(sorted(matching.touched))
    return known


def apply_incident(c: Connection, context: RegressionContext, incident: ReportedIncident) -> list[int]:
    """Let the open change points of an incident, and their judgements, follow it. `context` is that of a run of
    one of its series, all of which the caller has locked. Returns the regressions that changed."""
    store.lock(c, context.project_id)
    causes = Causes(c, context, noises={}, watched=0)
    matching = Matching(c, context, causes, set())
    matching.follow(incident)
    if incident.cause == CauseName.CODE and incident.closed_position is not None:
        _end_with_incident(c, incident, incident.closed_position, context.now)
    _weigh_all(c, context, causes, matching, incident=incident)
    return sorted(matching.touched)


def apply_event(c: Connection, regression_id: int, event: Event, now: datetime) -> TrackedRegression:
    """Apply an event that no run brought to one regression, whose series the caller has locked. Raises
    `StepRefused`."""
    where = store.surroundings(c, regression_id)
    assert where is not None  # regressions go with their project alone
    store.lock(c, where.project_id)
    before = store.lock_rows(c, [regression_id])[regression_id]
    return ledger.record(c, where, now, before, point_store.of_regressions(c, [regression_id]), event).regression


# --- change points ---------------------------------------------------------------------------------------------------


def _advance_points(
    c: Connection, context: RegressionContext, events: Sequence[ChangeEvent]
) -> tuple[list[KnownPoint], set[int]]:
    """Bring the change points up to date. Returns those for the worse that belong to no regression yet, and the
    regressions of the others."""
    branch, now = context.branch_id, context.now
    points = point_store.of_series(c, {event.series_id for event in events})
    known = {(p.series_id, p.onset_position): p for p in points if p.is_live}
    known |= {place: point for place, point in _ended_with_incidents(c, points).items() if place not in known}
    made: list[tuple[int, ChangePoint]] = []
    advanced: set[int] = set()
    revived: set[int] = set()
    touched: set[int] = set()
    for event in events:
        change, series = event.change, event.series_id
        previous = change.onset_position if change.previous_onset_position is None else change.previous_onset_position
        point = known.get((series, previous)) if change.direction is ChangeDirection.REGRESSION else None
        if point is None:
            if change.state in LIVE and change.past_threshold:
                made.append((series, change))
            continue  # else a level that nobody is told of, or the end of what was never recorded
        after = advance(point, change)
        if after is point:
            continue
        if point.regression_id is not None:
            touched.add(point.regression_id)
        if after.is_live:
            point_store.update(c, branch, after, now)
            advanced.add(point.id)
            if not point.is_live:
                revived.add(point.id)
        else:
            point_store.end(c, after, now)
            del known[series, previous]  # the level that is accepted there, below the threshold, is not this change
        if change.state is ChangeState.RELOCATED:
            known[series, change.onset_position] = after
    rows = point_store.insert(c, branch, made, now)
    fresh = [row for row, (_, change) in zip(rows, made, strict=True) if counts_as_regression(change)]
    late = [p for p in point_store.open_in_series(c, {e.series_id for e in events}) if p.id in advanced]
    return [*fresh, *(p for p in late if p.regression_id is None or p.id in revived)], touched


def _ended_with_incidents(c: Connection, points: Sequence[KnownPoint]) -> Mapping[tuple[int, int], KnownPoint]:
    """Change points that ended because an incident did: their own series may still have to say of them."""
    fixed = [point for point in points if point.state == ChangeState.FIXED and point.regression_id is not None]
    if not fixed:
        return {}
    incidents = incident_store.of_regressions(c, {point.regression_id or 0 for point in fixed})
    return {
        (point.series_id, point.onset_position): point
        for point in fixed
        if (incident := incidents.get(point.regression_id or 0)) and incident.closed_position == point.fixed_position
    }


def _end_with_incident(c: Connection, incident: ReportedIncident, position: int, now: datetime) -> None:
    """End the change points of an ended incident, also where a series alone is too noisy to show it."""
    if incident.regression_id is None:
        return
    for point in point_store.of_regressions(c, [incident.regression_id]):
        ends = point.series_id in incident.series and point.onset_position < position and not point.outlasts(position)
        if point.is_live and ends:
            point_store.end(c, point.fixed_at(position), now)


# --- regressions -----------------------------------------------------------------------------------------------------


def _weigh_all(
    c: Connection,
    context: RegressionContext,
    causes: Causes,
    matching: Matching,
    *,
    incident: ReportedIncident | None = None,
    newly_confirmed: frozenset[int] = frozenset(),
) -> None:
    """Bring each regression that was touched in line with its change points; the sessions about them follow."""
    touched = matching.touched
    incidents = incident_store.of_regressions(c, touched) if touched else {}
    for regression_id, regression in store.lock_rows(c, touched).items():
        points = point_store.of_regressions(c, [regression_id])
        found = incidents.get(regression_id)
        lead = leading(regression, points)
        seen = (ChangeSeen if incident is None else IncidentChanged)(
            run_id=context.run_id,
            position=context.position,
            cause=None if lead is None else causes.of_regression(regression, points, found),
            noise=None if lead is None else causes.noise_of(lead),
            incident=found,
            newly_confirmed=newly_confirmed,
            part_of=matching.merged.get(regression_id),
        )
        ledger.record(c, context, context.now, regression, points, seen)
    sessions.follow(c, sorted(touched), context.now)
