"""Actions of people on a regression: each an event, none edited, each decision one that can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from backend.regression.decisions import decides, possible_actions
from backend.regression.regression_events import PersonDecided
from backend.regression.regression_state import Action, TrackedRegression
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.judging import judging
from backend.services.judging.rejudging import publish_waiting, rejudge_series
from backend.services.judging.replay import decide
from backend.services.judging.state_cache import save_states, state_of
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.services.regressions import apply
from backend.services.sessions import request as sessions
from backend.services.triage import regroup
from backend.services.triage.detail import RegressionDetail, get_regression
from backend.store.judging import series as series_store
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as store

NEEDS_REASON = frozenset({Action.EXPECTED, Action.INVALID})
MAX_TEXT = 2_000


@dataclass(frozen=True, slots=True)
class TriageDecision:
    """What a person decides about a regression, in their words. `owner`: for whom it is acknowledged, where that is not
    the person."""

    action: str
    reason: str | None = None
    note: str | None = None
    owner: str | None = None


def act(
    c: Connection, by: Principal, regression_id: int, decision: TriageDecision, *, now: datetime
) -> RegressionDetail:
    """Do what who asks says, if they may, and note it in the audit trail."""
    require_of(c, by, Scope.WRITE, "regression", str(regression_id))
    found = triage(c, regression_id, decision, by.name, now=now)
    words = {"reason": decision.reason, "note": decision.note, "owner": decision.owner}
    did, subject = f"{Did.DECIDED}{decision.action}", f"R-{regression_id}"
    audit.record(c, by, did, subject, now=now, project=found.regression.project, **words)
    return found


def triage(
    c: Connection, regression_id: int, decision: TriageDecision, actor: str, *, now: datetime
) -> RegressionDetail:
    """Do what a person decided, as a further event of the regression."""
    before, owner = _locked(c, regression_id), decision.owner
    wanted, reason, note = _checked(decision)
    if owner is not None and wanted is not Action.ACKNOWLEDGE:
        raise BadRequest.field("owner", owner, "a person with the action acknowledge, and none with other actions")
    if wanted not in possible_actions(before):
        raise Conflict(
            f"regression {regression_id} is {before.state}: {wanted.value} is not possible; "
            f"possible: {', '.join(possible_actions(before))}",
            state=before.state.value,
        )
    if wanted is Action.UNDO and before.undoable is not None and before.undoable.moved is not None:
        regroup.undo(c, regression_id, actor, now)
        return get_regression(c, regression_id)
    outcome = decides(before, wanted)
    positions = {} if outcome is None else _decide_series(c, regression_id, outcome.value)
    said = PersonDecided(action=wanted, actor=actor, reason=reason, note=note, owner=owner, positions=positions)
    after = apply.apply_event(c, regression_id, said, now)
    if before.is_decided and not after.is_decided:
        _judge_again(c, before, now)
    sessions.follow(c, [regression_id], now)
    return get_regression(c, regression_id)


def lock_series(c: Connection, regression_ids: Sequence[int]) -> None:
    """Before several regressions are triaged in one transaction: lock their series at once. After the first of them the
    project is locked, and a delivery for the next would hold its series and wait for the project."""
    series_store.lock_by_id(c, {point.series_id for point in point_store.of_regressions(c, regression_ids)})


def _locked(c: Connection, regression_id: int) -> TrackedRegression:
    """The regression, in the order in which a result that arrives takes its locks: series, project, regression."""
    where = store.surroundings(c, regression_id)
    if where is None:
        raise NotFound.of("regression", regression_id)
    lock_series(c, [regression_id])
    apply.lock(c, where.project_id)
    row = store.lock_rows(c, [regression_id]).get(regression_id)
    if row is None:
        raise NotFound.of("regression", regression_id)
    return row


def _checked(decision: TriageDecision) -> tuple[Action, str | None, str | None]:
    """Its action, reason and note, each as it may be."""
    if decision.action not in set(Action):
        raise BadRequest.field("action", decision.action, [known.value for known in Action])
    wanted = Action(decision.action)
    reason, note = _text("reason", decision.reason), _text("note", decision.note)
    if wanted in NEEDS_REASON and reason is None:
        raise BadRequest.field("reason", reason, f"a sentence that says why it is {wanted.value}")
    if wanted is Action.NOTE and note is None:
        raise BadRequest.field("note", note, "a text")
    return wanted, reason, note


def _text(name: str, text: str | None) -> str | None:
    text = (text or "").strip()
    if len(text) > MAX_TEXT or "\x00" in text:
        raise BadRequest.field(name, text, f"at most {MAX_TEXT} characters, without NUL")
    return text or None


def _decide_series(c: Connection, regression_id: int, decision: str) -> dict[str, int]:
    """Tell the judge of every series it is about. Returns the newest position of each series."""
    onsets = {p.series_id: p.onset_position for p in point_store.of_regressions(c, [regression_id]) if p.is_live}
    series = [row for row in series_store.lock_by_id(c, onsets) if row.state is not None]
    states = {row: decide(state_of(row), onsets[row.id], decision) for row in series}
    save_states(c, states)
    return {str(row.id): state.last_position for row, state in states.items()}


def _judge_again(c: Connection, regression: TrackedRegression, now: datetime) -> None:
    """A decision was taken back: the series' points count again as they did before it. Where that would take long, in
    the background, which says how many series wait for it."""
    points = [point for point in point_store.of_regressions(c, [regression.id]) if point.is_live]
    first = {point.series_id: min(regression.first_bad_position, point.onset_position) for point in points}
    series = series_store.lock_by_id(c, first)
    # Of each series at most as many points stand from there on as there are positions.
    if sum((row.state_position or 0) - first[row.id] for row in series) <= judging.MOST_LATER_POINTS:
        for row in series:
            rejudge_series(c, row.id, first[row.id], now=now)
        return
    for row in series:
        series_store.ask_again(c, [row.id], first[row.id])
    where = store.surroundings(c, regression.id)
    assert where is not None
    publish_waiting(c, where.project_id)
