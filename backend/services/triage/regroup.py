"""Two onsets are two cases: a person splits a regression, or merges two, and undoes either by one action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.regression.apply_event import opened
from backend.regression.change_points import KnownPoint
from backend.regression.grouping import Group, lead_of
from backend.regression.regression_events import PersonRegrouped
from backend.regression.regression_state import OPEN, RegressionState, TrackedRegression
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.services.regressions import apply, ledger
from backend.services.sessions import request as sessions
from backend.store.judging import series as series_store
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as store
from backend.store.regressions.regressions import Surroundings


def act_split(c: Connection, by: Principal, regression_id: int, onset: int, now: datetime) -> int:
    """Split a regression if who asks may, and note it in the audit trail; the number of the new one."""
    require_of(c, by, Scope.WRITE, "regression", str(regression_id))
    child = split(c, regression_id, onset, by.name, now)
    _note(c, by, "split", regression_id, now, new=child)
    return child


def act_merge(c: Connection, by: Principal, regression_id: int, into: int, now: datetime) -> None:
    """Merge a regression into another if who asks may change both, and note it in the audit trail."""
    for number in (regression_id, into):
        require_of(c, by, Scope.WRITE, "regression", str(number))
    merge(c, regression_id, into, by.name, now)
    _note(c, by, "merge", regression_id, now, into=into)


def _note(c: Connection, by: Principal, what: str, regression_id: int, now: datetime, **detail: int) -> None:
    where = store.surroundings(c, regression_id)
    project = None if where is None else where.project
    audit.record(c, by, f"{Did.DECIDED}{what}", f"R-{regression_id}", now=now, project=project, **detail)


def split(c: Connection, regression_id: int, onset: int, actor: str, now: datetime) -> int:
    """What began at position `onset` becomes a separate regression; returns its number.

    It has no owner. It is confirmed if the one it comes from was.
    """
    here = _locked(c, [regression_id])
    parent = _open(here, regression_id)
    points = point_store.of_regressions(c, [regression_id])
    gates = [point for point in points if point.is_live and point.is_gate]
    onsets = sorted({point.onset_position for point in gates})
    if onset not in onsets:
        raise BadRequest.field("onset", onset, [str(known) for known in onsets])
    if len(onsets) == 1:
        raise Conflict(f"regression {regression_id} has one onset: there is nothing to split")
    moving = [point for point in points if point.onset_position == onset]
    found = _group_of([point for point in moving if point in gates])
    cause = parent.known_cause
    assert cause is not None  # each had one when it was opened
    new = opened(moving[0].testbed_id, found, cause, found.lead.noise)
    child = store.insert(c, here.where.project_id, here.where.branch_id, new, now)
    moved = {"points": [point.id for point in moving], "from": regression_id, "to": child}
    _move(c, here.where, now, PersonRegrouped(kind="split", actor=actor, moved=moved), shown_on=regression_id)
    return child


def merge(c: Connection, regression_id: int, into: int, actor: str, now: datetime) -> None:
    """A regression becomes part of another, which keeps its state and owner."""
    if into == regression_id:
        raise BadRequest.field("into", into, "another regression")
    here = _locked(c, [regression_id, into])
    _open(here, regression_id), _open(here, into)
    points = point_store.of_regressions(c, [regression_id])
    moved = {"points": [point.id for point in points], "from": regression_id, "to": into}
    _move(c, here.where, now, PersonRegrouped(kind="merged", actor=actor, moved=moved), shown_on=into)


def undo(c: Connection, regression_id: int, actor: str, now: datetime) -> None:
    """Take the newest split or merge back: the change points go where they came from."""
    done = store.load(c, [regression_id])[regression_id].undoable
    assert done is not None and done.moved is not None  # who calls has looked
    here = _locked(c, [done.moved["from"], done.moved["to"]])
    again = here.rows[regression_id].undoable
    other = here.rows[done.moved["from"] if regression_id == done.moved["to"] else done.moved["to"]]
    wanted = OPEN if regression_id == done.moved["from"] else {RegressionState.WITHDRAWN}
    if again != done or other.state not in wanted:
        raise Conflict(f"regression {other.id} is {other.state} by now: this can no longer be undone")
    moved = {"points": done.moved["points"], "from": done.moved["to"], "to": done.moved["from"]}
    event = PersonRegrouped(kind="undone", actor=actor, moved=moved, undoes=done.event_id)
    _move(c, here.where, now, event, shown_on=None, undone_on=regression_id)


# --- how change points move -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Locked:
    where: Surroundings
    rows: dict[int, TrackedRegression]


def _locked(c: Connection, regression_ids: Sequence[int]) -> _Locked:
    """Regressions of one project, in the order in which a result that arrives takes its locks."""
    places = {number: store.surroundings(c, number) for number in regression_ids}
    for number, where in places.items():
        if where is None:
            raise NotFound.of("regression", number)
    known = [where for where in places.values() if where is not None]
    if len({where.project_id for where in known}) > 1:
        raise BadRequest.field("into", regression_ids[1], f"a regression of {known[0].project}")
    series_store.lock_by_id(c, {point.series_id for point in point_store.of_regressions(c, regression_ids)})
    apply.lock(c, known[0].project_id)
    return _Locked(known[0], store.lock_rows(c, regression_ids))


def _open(here: _Locked, regression_id: int) -> TrackedRegression:
    row = here.rows[regression_id]
    if not row.is_open:
        raise Conflict(
            f"regression {regression_id} is {row.state}: only open ones can be split or merged", state=row.state.value
        )
    return row


def _move(
    c: Connection,
    where: Surroundings,
    now: datetime,
    event: PersonRegrouped,
    *,
    shown_on: int | None,
    undone_on: int | None = None,
) -> None:
    """Move change points and weigh both regressions anew. `shown_on`: where it can be undone."""
    source, target = event.moved["from"], event.moved["to"]
    point_store.place(c, target, event.moved["points"], now, by_person=event.kind != "undone")
    rows = store.lock_rows(c, [source, target])
    for number in (source, target):
        mine: dict[str, Any] = {
            "is_proved": rows[source].is_proved if event.kind == "split" else rows[number].is_proved,
            "is_undoable_here": number == shown_on,
            "undoes": event.undoes if number == undone_on else None,
        }
        said = PersonRegrouped(kind=event.kind, actor=event.actor, moved=event.moved, **mine)
        ledger.record(c, where, now, rows[number], point_store.of_regressions(c, [number]), said)
    sessions.follow(c, [source, target], now)


def _group_of(points: Sequence[KnownPoint]) -> Group:
    changes = [point.as_series_change() for point in points]
    return Group(lead_of(changes), tuple(changes))
