"""The life of a regression: its states, the one table of the steps between them, and what each event makes of it.

`apply` is pure. Whoever calls it stores the regression it returns, restates the judgements, and notifies
(`backend.services.regressions.apply`). What was announced is never edited: each step is a further notification.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.change_points import KnownPoint
from backend.regression.grouping import Group, lead_of
from backend.regression.incidents import ReportedIncident
from backend.regression.restatements import Restatement, of_dismissed, of_points
from backend.regression.terms import ChangeState

ONE_ALARM = 30
"""Positions after which a machine that was slow is a new alarm."""
BY_ITSELF = "tidemark"
"""The actor of what nobody decided."""


class RegressionState(enum.StrEnum):
    SUSPECT = "suspect"
    CONFIRMED = "confirmed"
    ACKNOWLEDGED = "acknowledged"
    FIXED = "fixed"
    EXPECTED = "expected"
    INVALID = "invalid"
    WITHDRAWN = "withdrawn"


S = RegressionState
OPEN = frozenset({S.SUSPECT, S.CONFIRMED, S.ACKNOWLEDGED})
"""New evidence may change these; the others are over, or were decided."""
ANNOUNCED = frozenset({S.CONFIRMED, S.ACKNOWLEDGED})
"""Of the open ones those that people were told of."""
DECIDED = frozenset({S.EXPECTED, S.INVALID})
"""By a person, or because a new baseline began by itself."""


class Action(enum.StrEnum):
    """Actions of people on a regression."""

    ACKNOWLEDGE = "acknowledge"  # and own it
    RELEASE = "release"  # nobody owns it any more
    EXPECTED = "expected"  # accepted with a reason: the present level is the baseline
    INVALID = "invalid"  # not real
    REOPEN = "reopen"
    NOTE = "note"
    UNDO = "undo"


class Step(enum.StrEnum):
    """One step from state to state: what the evidence says, and the actions of people that change a state."""

    PROVE = "prove"  # its change points, or an incident, show it, and the code is to blame
    TAKE_BACK = "take back"  # an incident finds another cause
    FIX = "fix"
    WITHDRAW = "withdraw"
    SHOW_AGAIN = "show again"
    END_ALARM = "end alarm"  # one that is not about the code, and that nobody was told of as a regression
    ACKNOWLEDGE = "acknowledge"
    RELEASE = "release"
    EXPECTED = "expected"
    INVALID = "invalid"
    REOPEN = "reopen"
    UNDO = "undo"


class Target(enum.StrEnum):
    """Where a step leads that depends on more than the state."""

    UNDECIDED = "undecided"
    """What it is when nobody has decided: acknowledged while it has an owner, else confirmed where it was proved."""
    AS_IT_WAS = "as it was"
    """Before the action that is undone."""


TRANSITIONS: Mapping[Step, Mapping[RegressionState, RegressionState | Target]] = {
    Step.PROVE: {S.SUSPECT: S.CONFIRMED},
    Step.TAKE_BACK: {S.CONFIRMED: S.SUSPECT},
    # The end of what was decided is noted, and changes no decision.
    Step.FIX: {**dict.fromkeys(OPEN, S.FIXED), S.EXPECTED: S.EXPECTED, S.INVALID: S.INVALID},
    Step.WITHDRAW: {**dict.fromkeys(OPEN, S.WITHDRAWN), S.EXPECTED: S.EXPECTED, S.INVALID: S.INVALID},
    Step.SHOW_AGAIN: {S.FIXED: S.SUSPECT, S.WITHDRAWN: S.SUSPECT},
    Step.END_ALARM: {S.SUSPECT: S.WITHDRAWN},
    Step.ACKNOWLEDGE: dict.fromkeys(OPEN, S.ACKNOWLEDGED),
    Step.RELEASE: dict.fromkeys(OPEN, Target.UNDECIDED),
    Step.EXPECTED: dict.fromkeys(OPEN, S.EXPECTED),
    Step.INVALID: dict.fromkeys(OPEN, S.INVALID),
    Step.REOPEN: dict.fromkeys(DECIDED, Target.UNDECIDED),
    Step.UNDO: dict.fromkeys(OPEN | DECIDED, Target.AS_IT_WAS),
}
"""Every step, the states it is possible in, and where it leads. What is not here is refused."""


class StepRefused(ValueError):
    """A step that is not possible in this state."""

    def __init__(self, state: RegressionState, step: str) -> None:
        super().__init__(f"a regression that is {state} cannot take the step {step!r}")
        self.state, self.step = state, step


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoableAction:
    """The newest thing a person did to the state of a regression that was not undone."""

    event_id: int
    was: Mapping[str, Any]
    """`state`, `owner` and `reason` before it …"""
    became: Mapping[str, Any]
    """… and after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRegression:
    """A regression as the rules that change it need it. Changes are fractions of cost."""

    id: int = 0
    """0: not stored yet."""
    testbed_id: int
    """Of the series that leads."""
    state: RegressionState
    kind: str
    cause: str | None
    evidence: tuple[str, ...]
    first_bad_position: int
    last_good_position: int | None
    lead_series_id: int | None
    lead_change: float | None
    lead_change_low: float | None = None
    lead_change_high: float | None = None
    still_bad: bool = True
    owner: str | None = None
    reason: str | None = None
    is_proved: bool = False
    """It was confirmed by evidence, and that was not taken back."""
    is_alarm: bool = False
    """Its machine, environment or method was told of as the cause."""
    undoable: UndoableAction | None = None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def is_decided(self) -> bool:
        return self.state in DECIDED

    @property
    def known_cause(self) -> Cause | None:
        """The cause that was found last; None: none was."""
        if self.cause is None:
            return None
        name = CauseName(self.cause)
        return Cause(name, self.evidence, suppress=name is not CauseName.CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A further line in the history of a regression. The commit of `detail["position"]` is named by who stores it."""

    kind: str
    state: RegressionState
    actor: str = BY_ITSELF
    note: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Result of applying an event. The regression is the same object where the event changes nothing."""

    regression: TrackedRegression
    restatements: tuple[Restatement, ...] = ()
    notifications: tuple[Notification, ...] = ()
    is_located: bool = False
    """Its evidence was weighed again, and with it where it began."""
    fixed_position: int | None = None
    """Where it has just ended."""
    alarms_confirmed: tuple[int, ...] = ()
    """Series that have just given a true alarm …"""
    alarms_withdrawn: tuple[int, ...] = ()
    """… or a false one: the detector keeps score of itself."""


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSeen:
    """A run, a session or moved commits have changed its change points."""

    run_id: str
    position: int
    """Of the run."""
    cause: Cause | None
    """Of what `leading` returns; None where that is None."""
    noise: float | None
    """Of the series that leads: relative spread between runs."""
    incident: ReportedIncident | None = None
    """That it is part of."""
    newly_confirmed: frozenset[int] = frozenset()
    """Series whose change points this very event confirmed."""
    part_of: int | None = None
    """The regression that took over its change points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentChanged(ChangeSeen):
    """The joint detector has reported the incident anew: all judgements of its change points follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAgain:
    """An ended regression is back, in these change points. `cause`: of an alarm that is not about the code."""

    run_id: str
    found: Group
    cause: Cause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDecided:
    """A confirming session has ended. What it says of change points is seen by their series (`ChangeSeen`)."""

    session_id: str
    state: str
    decision: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDecided:
    """A person, or Tidemark because an alarm lasts, has done something with it."""

    action: Action
    actor: str
    reason: str | None = None
    note: str | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    """Of a decision: the newest position of each series then, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmEnded:
    """An alarm that is not about the code is over."""

    note: str


Event = ChangeSeen | ShownAgain | SessionDecided | PersonDecided | AlarmEnded


# --- the rule --------------------------------------------------------------------------------------------------------


def apply(regression: TrackedRegression, points: Sequence[KnownPoint], event: Event) -> Applied:
    """Apply an event to a regression. `points` are its change points as they are now. Raises `StepRefused`."""
    match event:
        case ChangeSeen():
            return _weigh(regression, points, event)
        case ShownAgain():
            return _reopen(regression, event)
        case SessionDecided():
            detail = {"session_id": event.session_id, "state": event.state, "decision": event.decision}
            note = Notification(kind="session", state=regression.state, note=event.reason, detail=detail)
            return Applied(regression=regression, notifications=(note,))
        case PersonDecided():
            return _decide(regression, points, event)
        case AlarmEnded():
            after = replace(regression, state=_after(regression, Step.END_ALARM), still_bad=False)
            note = Notification(kind="withdrawn", state=after.state, detail={"note": event.note})
            return Applied(regression=after, notifications=(note,))


def is_possible(regression: TrackedRegression, step: Step) -> bool:
    try:
        _after(regression, step)
    except StepRefused:
        return False
    return True


def _after(regression: TrackedRegression, step: Step) -> RegressionState:
    """The state that a step leads to. Raises `StepRefused`."""
    target = TRANSITIONS[step].get(regression.state)
    match target:
        case None:
            raise StepRefused(regression.state, step)
        case RegressionState():
            return target
        case Target.UNDECIDED:
            if regression.owner is not None:
                return S.ACKNOWLEDGED
            return S.CONFIRMED if regression.is_proved else S.SUSPECT
        case Target.AS_IT_WAS:
            undoable = regression.undoable
            if undoable is None or undoable.became["state"] != regression.state:
                raise StepRefused(regression.state, step)
            return RegressionState(undoable.was["state"])


def opened(testbed_id: int, found: Group, cause: Cause, noise: float | None) -> TrackedRegression:
    """A new regression. It begins as a suspect; `ChangeSeen` moves it on when its change points are confirmed."""
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
    """The gate change points that say what an open regression is; None: none of them is live, or it is not open."""
    alive = [point for point in points if point.is_gate and point.is_live]
    if not alive or not regression.is_open:
        return None
    confirmed = [point for point in alive if point.state == ChangeState.CONFIRMED]
    # The testbed that was named stays the one that is named, for as long as it shows the change.
    here = [point for point in confirmed or alive if point.testbed_id == regression.testbed_id]
    changes = [point.as_series_change() for point in here or confirmed or alive]
    return Group(lead_of(changes), tuple(changes))


# --- what the evidence says ------------------------------------------------------------------------------------------


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
        state = _after(regression, Step.PROVE if proved else Step.TAKE_BACK)
    after = _with_evidence(replace(regression, state=state), found, cause, event.noise)
    after = _located(regression, after, event.incident)
    told = []
    if _has_moved(regression, after, event.incident):
        place = {"from": regression.first_bad_position, **_place(event.run_id, found, after.first_bad_position)}
        told.append(Notification(kind="relocated", state=state, detail=place))
    alarm: dict[str, Any] = {"cause": cause.cause.value, "evidence": list(cause.evidence)}
    if taken_back:
        told.append(Notification(kind="infra_alarm", state=state, detail={**alarm, "taken_back": True}))
    elif proved:
        place = {"change": found.magnitude, **_place(event.run_id, found, after.first_bad_position)}
        told.append(Notification(kind="confirmed", state=state, detail={"cause": cause.cause.value, **place}))
    elif newly and not regression.is_alarm:
        told.append(Notification(kind="infra_alarm", state=state, detail=alarm))
    applied = Applied(
        regression=after,
        notifications=tuple(told),
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


def suspected(run_id: str, found: Group) -> Notification:
    """The first line of a history."""
    return Notification(kind="suspected", state=S.SUSPECT, detail=_place(run_id, found, found.onset_position))


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
    state = _after(regression, Step.WITHDRAW if fixed is None else Step.FIX)
    false_alarm = state is S.WITHDRAWN and regression.state is not S.SUSPECT and event.part_of is None
    detail: dict[str, Any] = {"run_id": event.run_id}
    if event.part_of is not None:
        detail["part_of"] = event.part_of
    if fixed is not None:
        detail["position"] = fixed
    return Applied(
        regression=replace(regression, state=state, still_bad=False),
        notifications=(Notification(kind="withdrawn" if fixed is None else "fixed", state=state, detail=detail),),
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
    after = replace(regression, state=_after(regression, Step.SHOW_AGAIN), still_bad=True)
    detail = _place(event.run_id, event.found, event.found.onset_position)
    kind = "reopened"
    if event.cause is not None:
        kind = "infra_alarm"
        detail |= {"cause": event.cause.cause.value, "evidence": list(event.cause.evidence)}
    return Applied(regression=after, notifications=(Notification(kind=kind, state=after.state, detail=detail),))


# --- what people do --------------------------------------------------------------------------------------------------

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
    after = _after(regression, Step(action))
    return after if after in DECIDED and not regression.is_decided else None


def _decide(regression: TrackedRegression, points: Sequence[KnownPoint], event: PersonDecided) -> Applied:
    if event.action is Action.NOTE:
        note = Notification(kind="note", state=regression.state, actor=event.actor, note=event.note)
        return Applied(regression=regression, notifications=(note,))
    if not _can(regression, event.action):
        raise StepRefused(regression.state, event.action)
    decision = decides(regression, event.action)
    after = _as_decided(regression, event)
    detail: dict[str, Any] = {"was": _decision_of(regression), "became": _decision_of(after)}
    if event.action is Action.UNDO:
        assert regression.undoable is not None  # it would not have been possible
        detail = {"event": regression.undoable.event_id}
    if event.action in (Action.EXPECTED, Action.INVALID):
        detail["positions"] = dict(event.positions)
    dismissed = decision is S.INVALID
    line = Notification(
        kind=_EVENT_OF[event.action],
        state=after.state,
        actor=event.actor,
        note=event.reason or event.note,
        detail=detail,
    )
    return Applied(
        regression=after,
        restatements=tuple(of_dismissed(points)) if dismissed else (),
        notifications=(line,),
        alarms_withdrawn=tuple(p.series_id for p in points if p.is_gate and p.is_live) if dismissed else (),
    )


def _as_decided(regression: TrackedRegression, event: PersonDecided) -> TrackedRegression:
    match event.action:
        case Action.ACKNOWLEDGE:
            return replace(regression, state=_after(regression, Step.ACKNOWLEDGE), owner=event.actor)
        case Action.RELEASE:
            free = replace(regression, owner=None)
            return replace(free, state=_after(free, Step.RELEASE))
        case Action.UNDO:
            assert regression.undoable is not None
            was = regression.undoable.was
            state = _after(regression, Step.UNDO)
            return replace(regression, state=state, owner=was["owner"], reason=was["reason"])
        case Action.REOPEN:
            return replace(regression, state=_after(regression, Step.REOPEN), reason=None)
        case _:
            return replace(regression, state=_after(regression, Step(event.action)), reason=event.reason)


def _decision_of(regression: TrackedRegression) -> dict[str, Any]:
    return {"state": regression.state.value, "owner": regression.owner, "reason": regression.reason}
