"""What people say about a regression: each word an event, none edited, each decision one that can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.regression.terms import Reason, Verdict
from backend.services.base import live
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.judging import judging
from backend.services.judging.rejudging import publish_waiting, rejudge_series
from backend.services.judging.replay import decide
from backend.services.judging.series_states import state_of
from backend.services.judging.state_cache import STATES
from backend.services.regressions.views import DECIDED, OPEN, Action, RegressionDetail, get_regression, possible_actions
from backend.services.sessions import request as confirm
from backend.store.base import wire
from backend.store.judging import judgements as judgement_store
from backend.store.judging import series as series_store
from backend.store.judging.judgements import Restatement
from backend.store.judging.series import NewState
from backend.store.regressions import regressions as store
from backend.store.regressions import views

NEEDS_REASON = frozenset({Action.EXPECTED, Action.INVALID})
MAX_TEXT = 2_000
NEWEST = 2**31 - 1


def triage(
    c: Connection,
    regression_id: int,
    action: str,
    actor: str,
    *,
    now: datetime,
    reason: str | None = None,
    note: str | None = None,
) -> RegressionDetail:
    """Do what a person says, as a further event of the regression."""
    row = _locked(c, regression_id)
    if action not in set(Action):
        raise BadRequest.field("action", action, [known.value for known in Action])
    wanted = Action(action)
    reason, note = _words("reason", reason), _words("note", note)
    if wanted in NEEDS_REASON and reason is None:
        raise BadRequest.field("reason", reason, f"a sentence that says why it is {wanted.value}")
    if wanted is Action.NOTE and note is None:
        raise BadRequest.field("note", note, "a text")
    if wanted not in possible_actions(c, row):
        possible = ", ".join(possible_actions(c, row))
        raise Conflict(
            f"regression {regression_id} is {row['state']}: {wanted.value} is not possible; possible: {possible}",
            state=row["state"],
        )
    kind = _act(c, row, wanted, actor, reason, note, now)
    payload = {
        "regression_id": regression_id,
        "event": kind,
        "actor": actor,
        "project": row["project"],
        "testbed": row["testbed"],
    }
    live.publish(c, "regression", row["project_id"], payload)
    confirm.follow(c, [regression_id], now)
    return get_regression(c, regression_id)


def lock_series(c: Connection, regression_ids: Sequence[int]) -> None:
    """Before several regressions are triaged in one transaction: their series at once. After the first of them the
    project is locked, and whoever brings a result of the next has its series locked and waits for the project."""
    series_store.lock_by_id(c, {point.series_id for point in store.points_of(c, regression_ids)})


def _locked(c: Connection, regression_id: int) -> RowMapping:
    """The regression, in the order in which a result that arrives takes its locks: series, testbed, regression."""
    seen = views.one(c, regression_id)
    if seen is None:
        raise NotFound.of("regression", regression_id)
    series_store.lock_by_id(c, {point.series_id for point in store.points_of(c, [regression_id])})
    store.lock(c, seen["project_id"])
    row = views.lock(c, regression_id)
    if row is None:
        raise NotFound.of("regression", regression_id)
    return row


def _words(name: str, text: str | None) -> str | None:
    text = (text or "").strip()
    if len(text) > MAX_TEXT or "\x00" in text:
        raise BadRequest.field(name, text, f"at most {MAX_TEXT} characters, without NUL")
    return text or None


def _act(
    c: Connection, row: RowMapping, action: Action, actor: str, reason: str | None, note: str | None, now: datetime
) -> str:
    """Returns the kind of the event it became."""
    number = row["id"]
    detail: dict[str, Any] = {}
    if action is Action.NOTE:
        store.insert_event(c, number, "note", now=now, actor=actor, note=note)
        return "note"
    was = {"state": row["state"], "owner": row["owner"], "reason": row["reason"]}
    match action:
        case Action.ACKNOWLEDGE:
            became = {**was, "state": "acknowledged", "owner": actor}
        case Action.RELEASE:
            became = {**was, "state": _undecided(c, number), "owner": None}
        case Action.EXPECTED | Action.INVALID:
            became = {**was, "state": action.value, "reason": reason}
            detail["positions"] = _decide(c, number, action.value, now)
        case Action.UNDO:
            last = views.last_action(c, number)
            assert last is not None  # it would not have been possible
            became = last["detail"]["was"]
            detail["event"] = last["id"]
        case _:
            became = {**was, "state": "acknowledged" if row["owner"] else _undecided(c, number), "reason": None}
    views.set_state(
        c,
        number,
        state=became["state"],
        owner=became["owner"],
        reason=became["reason"],
        closed=became["state"] not in OPEN,
        now=now,
    )
    kind = _EVENT_OF[action]
    if action is not Action.UNDO:
        detail |= {"was": was, "became": became}
    store.insert_event(c, number, kind, now=now, actor=actor, note=reason or note, detail=detail)
    if row["state"] in DECIDED and became["state"] not in DECIDED:
        _judge_again(c, row, now)
    if became["state"] in DECIDED and row["state"] not in DECIDED and action is Action.UNDO:
        _decide(c, number, became["state"], now)
    return kind


_EVENT_OF = {
    Action.ACKNOWLEDGE: "acknowledged",
    Action.RELEASE: "released",
    Action.EXPECTED: "expected",
    Action.INVALID: "invalid",
    Action.REOPEN: "reopened",
    Action.UNDO: "undone",
}


def _undecided(c: Connection, regression_id: int) -> str:
    """What it is when no person has said anything: confirmed by the evidence, where that was not taken back."""
    confirmed = False
    for event in views.events(c, regression_id):
        if event["kind"] == "confirmed":
            confirmed = True
        elif event["detail"].get("taken_back"):
            confirmed = False
    return "confirmed" if confirmed else "suspect"


def _decide(c: Connection, regression_id: int, decision: str, now: datetime) -> dict[str, int]:
    """Tell the judge of every series it is about. Returns the newest position of each series."""
    points = [point for point in store.points_of(c, [regression_id]) if point.state in ("suspect", "confirmed")]
    onsets = {point.series_id: point.onset_position for point in points}
    series = [row for row in series_store.lock_by_id(c, onsets) if row.state is not None]
    states, positions = [], {}
    for row in series:
        state = decide(state_of(row), onsets[row.id], decision)
        stored = STATES.encoded(row, state)
        states.append(
            NewState(
                series_id=row.id,
                state=stored.whole,
                state_tail=stored.tail,
                position=state.last_position,
                profile=None,
            )
        )
        positions[str(row.id)] = state.last_position
    if states:
        wire.send(c, series_store.save_statement(states, None))
    if decision == "invalid":
        gates = [point.series_id for point in points if point.role == "gate"]
        store.count_alarms(c, gates, withdrawn=1)
        touched = judgement_store.restate(c, [_not_real(row_id, onset) for row_id, onset in onsets.items()], now)
        series_store.recompute_rollups(c, touched)
    return positions


def _not_real(series_id: int, onset: int) -> Restatement:
    return Restatement(
        series_id=series_id,
        first=onset,
        last=NEWEST,
        verdict=Verdict.UNCHANGED,
        reason=Reason.WITHIN_BAND,
        onset_position=None,
        regression_id=None,
        instead_of=(Verdict.SUSPECT, Verdict.REGRESSION),
        since=onset,
    )


def _judge_again(c: Connection, regression: RowMapping, now: datetime) -> None:
    """A decision was taken back: the series' points count again as they did before it. Where that would take long, in
    the background, which says how many series wait for it."""
    points = [point for point in store.points_of(c, [regression["id"]]) if point.state in ("suspect", "confirmed")]
    first = {point.series_id: min(regression["first_bad_position"], point.onset_position) for point in points}
    series = series_store.lock_by_id(c, first)
    # Of each series at most as many points stand from there on as there are positions.
    if sum((row.state_position or 0) - first[row.id] for row in series) <= judging.MOST_LATER_POINTS:
        for row in series:
            rejudge_series(c, row.id, first[row.id], now=now)
        return
    for row in series:
        series_store.ask_again(c, [row.id], first[row.id])
    publish_waiting(c, regression["project_id"])
