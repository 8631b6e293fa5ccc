"""Decisions of people on a regression: which are possible, and what follows from each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backend.regression.change_points import KnownPoint
from backend.regression.regression_events import Applied, HistoryEntry, PersonDecided
from backend.regression.regression_state import (
    DECIDED,
    Action,
    RegressionState,
    Step,
    StepRefused,
    TrackedRegression,
    is_possible,
    state_after,
)
from backend.regression.restatements import of_dismissed

_EVENT_OF = {
    Action.ACKNOWLEDGE: "acknowledged",
    Action.RELEASE: "released",
    Action.EXPECTED: "expected",
    Action.INVALID: "invalid",
    Action.REOPEN: "reopened",
    Action.UNDO: "undone",
}
_SHOWN_IN_ORDER = (Action.ACKNOWLEDGE, Action.EXPECTED, Action.INVALID, Action.RELEASE, Action.REOPEN, Action.UNDO)


def possible_actions(regression: TrackedRegression) -> tuple[Action, ...]:
    """Actions open to a person in the regression's present state."""
    return (Action.NOTE, *(action for action in _SHOWN_IN_ORDER if _can(regression, action)))


def _can(regression: TrackedRegression, action: Action) -> bool:
    if action is Action.RELEASE and regression.owner is None:
        return False
    return is_possible(regression, Step(action))


def decides(regression: TrackedRegression, action: Action) -> RegressionState | None:
    """The decision that an action makes where there was none: `expected` or `invalid`; None: it makes none."""
    if action is Action.NOTE:
        return None
    after = state_after(regression, Step(action))
    return after if after in DECIDED and not regression.is_decided else None


def decide(regression: TrackedRegression, points: Sequence[KnownPoint], event: PersonDecided) -> Applied:
    if event.action is Action.NOTE:
        note = HistoryEntry(kind="note", state=regression.state, actor=event.actor, note=event.note)
        return Applied(regression=regression, history=(note,))
    if not _can(regression, event.action):
        raise StepRefused(regression.state, event.action)
    decision = decides(regression, event.action)
    after = _as_decided(regression, event)
    detail: dict[str, Any] = {"was": decision_of(regression), "became": decision_of(after)}
    if event.action is Action.UNDO:
        assert regression.undoable is not None  # it would not have been possible
        detail = {"event": regression.undoable.event_id}
    if event.action in (Action.EXPECTED, Action.INVALID):
        detail["positions"] = dict(event.positions)
    dismissed = decision is RegressionState.INVALID
    entry = HistoryEntry(
        kind=_EVENT_OF[event.action],
        state=after.state,
        actor=event.actor,
        note=event.reason or event.note,
        detail=detail,
    )
    return Applied(
        regression=after,
        restatements=tuple(of_dismissed(points)) if dismissed else (),
        history=(entry,),
        alarms_withdrawn=tuple(p.series_id for p in points if p.is_gate and p.is_live) if dismissed else (),
    )


def _as_decided(regression: TrackedRegression, event: PersonDecided) -> TrackedRegression:
    match event.action:
        case Action.ACKNOWLEDGE:
            return replace(
                regression, state=state_after(regression, Step.ACKNOWLEDGE), owner=event.owner or event.actor
            )
        case Action.RELEASE:
            free = replace(regression, owner=None)
            return replace(free, state=state_after(free, Step.RELEASE))
        case Action.UNDO:
            assert regression.undoable is not None
            was = regression.undoable.was
            state = state_after(regression, Step.UNDO)
            return replace(regression, state=state, owner=was["owner"], reason=was["reason"])
        case Action.REOPEN:
            return replace(regression, state=state_after(regression, Step.REOPEN), reason=None)
        case _:
            return replace(regression, state=state_after(regression, Step(event.action)), reason=event.reason)


def decision_of(regression: TrackedRegression) -> dict[str, Any]:
    return {"state": regression.state.value, "owner": regression.owner, "reason": regression.reason}
