"""The life of a regression: every step from every state, allowed or refused, whatever led there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backend.regression.apply_event import ONE_ALARM, apply, leading
from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.change_points import KnownPoint
from backend.regression.decisions import possible_actions
from backend.regression.grouping import Group
from backend.regression.incidents import ReportedIncident
from backend.regression.regression_events import (
    AlarmEnded,
    Applied,
    ChangeSeen,
    Event,
    IncidentChanged,
    PersonDecided,
    PersonRegrouped,
    SessionDecided,
    ShownAgain,
)
from backend.regression.regression_state import (
    ANNOUNCED,
    DECIDED,
    OPEN,
    TRANSITIONS,
    Action,
    RegressionState,
    Step,
    StepRefused,
    Target,
    TrackedRegression,
    UndoableAction,
)

S = RegressionState
CODE = Cause(CauseName.CODE, ("The environment is the same before and after.",))
MACHINE = Cause(CauseName.HARDWARE, ("Canary gemm moved.",), suppress=True)
POINT = KnownPoint(
    id=1,
    series_id=7,
    testbed_id=1,
    regression_id=1,
    regression_state="suspect",
    kind="step",
    direction="regression",
    state="suspect",
    onset_position=20,
    last_good_position=19,
    detected_position=21,
    fixed_position=None,
    change=0.1,
    before=10.0,
    after=11.0,
    benchmark="gpt.train",
    metric="step_ms",
    role="gate",
    exact=False,
)
REGRESSION = TrackedRegression(
    id=1,
    testbed_id=1,
    state=S.SUSPECT,
    kind="step",
    cause="code",
    evidence=(),
    first_bad_position=20,
    last_good_position=19,
    lead_series_id=7,
    lead_change=0.1,
)
INCIDENT = ReportedIncident(
    id=1,
    suite="gpt",
    kind="regression",
    cause="code",
    worker=None,
    testbeds=("cpu",),
    series=frozenset({7}),
    first_bad_position=20,
    range_start=20,
    range_end=20,
    magnitude=0.1,
    drift=False,
    closed_position=None,
    regression_id=1,
)


MOVED = {"points": [1], "from": 1, "to": 2}


def seen(regression: TrackedRegression, points: list[KnownPoint], cause: Cause = CODE, **more: Any) -> Applied:
    """A run has changed these change points."""
    kind = more.pop("kind", ChangeSeen)
    known = {"run_id": "R", "position": 25, "noise": 0.01, **more}
    found = leading(regression, points)
    return apply(regression, points, kind(cause=None if found is None else cause, **known))


def in_state(state: RegressionState, **more: Any) -> TrackedRegression:
    """A regression as it may be stored in a state."""
    over = state in (S.FIXED, S.WITHDRAWN)
    known = {"still_bad": not over, "owner": "ada" if state is S.ACKNOWLEDGED else None, **more}
    return replace(REGRESSION, state=state, is_proved=state is not S.SUSPECT, **known)


def event_of(step: Step) -> tuple[list[KnownPoint], Event]:
    """An event that takes this step wherever it is possible, with the change points it comes with."""
    known: dict[str, Any] = {"run_id": "R", "position": 99, "noise": None}
    confirmed = replace(POINT, state="confirmed")
    change = confirmed.as_series_change()
    machine = replace(INCIDENT, kind="infra", cause="hardware")
    events: dict[Step, tuple[list[KnownPoint], Event]] = {
        Step.PROVE: ([confirmed], ChangeSeen(cause=CODE, **known)),
        Step.TAKE_BACK: ([confirmed], IncidentChanged(cause=MACHINE, incident=machine, **known)),
        Step.FIX: ([POINT.fixed_at(23)], ChangeSeen(cause=None, **known)),
        Step.WITHDRAW: ([replace(POINT, state="withdrawn")], ChangeSeen(cause=None, **known)),
        Step.SHOW_AGAIN: ([], ShownAgain(run_id="R", found=Group(change, (change,)))),
        Step.MERGE: ([], PersonRegrouped(kind="merged", actor="ada", moved=MOVED)),
        Step.REGROUP: ([POINT], PersonRegrouped(kind="undone", actor="ada", moved=MOVED)),
        Step.END_INFRA_ALARM: ([], AlarmEnded(note="No run has shown it for 30 commits.")),
    }
    if step in events:
        return events[step]
    return [POINT], PersonDecided(action=Action(step.value), actor="ada", reason="meant")


BY_EVIDENCE = (Step.PROVE, Step.TAKE_BACK, Step.FIX, Step.WITHDRAW)
"""What has happened is no question: where such a step leads nowhere, nothing changes and nobody is told."""


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("step", Step)
def test_each_step_leads_from_each_state_where_the_table_says_or_is_refused(step: Step, state: RegressionState) -> None:
    before = in_state(state, undoable=undoable(state))
    if step is Step.RELEASE:
        before = replace(before, owner="ada")
    points, event = event_of(step)
    target = TRANSITIONS[step].get(state)
    if target is None and step in BY_EVIDENCE:
        applied = apply(before, points, event)
        assert (applied.regression.state, applied.regression.still_bad) == (state, before.still_bad)
        assert not {"confirmed", "fixed", "withdrawn"} & {said.kind for said in applied.history}
    elif target is None:
        with pytest.raises(StepRefused) as refused:
            apply(before, points, event)
        assert refused.value.state is state
    else:
        after = apply(before, points, event).regression
        wanted: Any = target
        if target is Target.UNDECIDED:
            wanted = S.SUSPECT if state is S.SUSPECT else S.CONFIRMED
        if target is Target.AS_IT_WAS:
            wanted = S.SUSPECT
        assert after.state is wanted
        assert after.still_bad is (step not in (Step.FIX, Step.WITHDRAW, Step.END_INFRA_ALARM, Step.MERGE))


OFFERED = {
    S.SUSPECT: {"note", "acknowledge", "expected", "invalid"},
    S.CONFIRMED: {"note", "acknowledge", "expected", "invalid"},
    S.ACKNOWLEDGED: {"note", "acknowledge", "release", "expected", "invalid"},
    S.EXPECTED: {"note", "reopen"},
    S.INVALID: {"note", "reopen"},
    S.FIXED: {"note"},
    S.WITHDRAWN: {"note"},
}


@pytest.mark.parametrize("state", S)
def test_each_state_offers_its_actions_and_undo_where_a_person_has_done_something(state: RegressionState) -> None:
    assert set(possible_actions(in_state(state))) == OFFERED[state]
    over = state in (S.FIXED, S.WITHDRAWN)
    after = set(possible_actions(in_state(state, undoable=undoable(state))))
    assert after == OFFERED[state] | (set() if over else {"undo"})


def undoable(state: RegressionState) -> UndoableAction:
    """A person made a suspect what it is now."""
    was = {"state": "suspect", "owner": None, "reason": None}
    return UndoableAction(event_id=5, was=was, became={**was, "state": state.value})


def test_every_state_can_be_reached_and_only_decisions_and_ends_are_left_by_nobody_but_people_or_new_evidence() -> None:
    reached = {target for targets in TRANSITIONS.values() for target in targets.values()}
    assert set(S) <= reached | {S.SUSPECT}
    for step in BY_EVIDENCE:
        moved = {state for state, target in TRANSITIONS[step].items() if target is not state}
        assert moved <= OPEN, "evidence decides nothing that a person has decided"
    assert DECIDED.isdisjoint(OPEN) and ANNOUNCED < OPEN


# --- whatever happens to it ------------------------------------------------------------------------------------------

POINTS = st.lists(
    st.builds(
        lambda number, state, role, testbed, onset: replace(
            POINT,
            id=number,
            series_id=number,
            state=state,
            role=role,
            testbed_id=testbed,
            onset_position=onset,
            last_good_position=onset - 1,
            fixed_position=onset + 3 if state == "fixed" else None,
        ),
        st.integers(1, 5),
        st.sampled_from(["suspect", "confirmed", "fixed", "withdrawn"]),
        st.sampled_from(["gate", "watch"]),
        st.integers(1, 2),
        st.integers(18, 22),
    ),
    max_size=4,
    unique_by=lambda point: point.id,
)
CAUSES = st.sampled_from([CODE, MACHINE, Cause(CauseName.NOISE, ("Only documentation changed.",), suppress=True)])
INCIDENTS = st.sampled_from(
    [
        None,
        INCIDENT,
        replace(INCIDENT, closed_position=24),
        replace(INCIDENT, kind="infra", cause="hardware"),
        replace(INCIDENT, kind="environment", cause="environment"),
    ]
)
ACTIONS = st.sampled_from(Action)


@st.composite
def happenings(draw: st.DrawFn) -> tuple[str, Any]:
    """One thing that may happen to a regression."""
    kind = draw(st.sampled_from(["seen", "incident", "session", "person", "alarm ended", "shown again"]))
    if kind in ("seen", "incident"):
        return kind, (draw(POINTS), draw(CAUSES), draw(INCIDENTS), draw(st.integers(20, 90)), draw(st.booleans()))
    return kind, draw(ACTIONS) if kind == "person" else None


def happen(
    regression: TrackedRegression, points: list[KnownPoint], kind: str, detail: Any
) -> tuple[Applied, list[KnownPoint]]:
    if kind in ("seen", "incident"):
        points, cause, incident, position, merged = detail
        more = {"incident": incident, "position": position, "part_of": 9 if merged else None}
        return seen(
            regression, points, cause, kind=IncidentChanged if kind == "incident" else ChangeSeen, **more
        ), points
    change = POINT.as_series_change()
    events: dict[str, Event] = {
        "session": SessionDecided(session_id="x", state="decided", decision="confirmed", reason="proved slower"),
        "alarm ended": AlarmEnded(note="over"),
        "shown again": ShownAgain(run_id="R", found=Group(change, (change,))),
    }
    if kind == "person":
        return apply(regression, points, PersonDecided(action=detail, actor="ada", reason="meant")), points
    return apply(regression, points, events[kind]), points


def stored(applied: Applied, number: int) -> TrackedRegression:
    """What the store says of it next: its history grew by its new entries."""
    regression = applied.regression
    for said in applied.history:
        if said.kind == "confirmed":
            regression = replace(regression, is_proved=True)
        if said.kind == "infra_alarm":
            taken_back = "taken_back" in said.detail
            regression = replace(regression, is_infra_alarm=True, is_proved=regression.is_proved and not taken_back)
        if "was" in said.detail:
            action = UndoableAction(event_id=number, was=said.detail["was"], became=said.detail["became"])
            regression = replace(regression, undoable=action)
        if said.kind == "undone":
            regression = replace(regression, undoable=None)
    return regression


@given(st.lists(happenings(), max_size=12))
def test_whatever_happens_its_state_follows_the_table_and_its_history_says_so(what: list[tuple[str, Any]]) -> None:
    regression, points = REGRESSION, [POINT]
    for number, (kind, detail) in enumerate(what):
        before = regression
        try:
            applied, points = happen(before, points, kind, detail)
        except StepRefused:
            assert kind in ("person", "alarm ended", "shown again")
            continue
        after = applied.regression
        steps = {step for step, targets in TRANSITIONS.items() if before.state in targets}
        reachable = {TRANSITIONS[step][before.state] for step in steps}
        if Target.AS_IT_WAS in reachable and before.undoable is not None:
            reachable.add(RegressionState(before.undoable.was["state"]))
        if Target.UNDECIDED in reachable:
            reachable |= {S.SUSPECT, S.CONFIRMED, S.ACKNOWLEDGED}
        assert after.state is before.state or after.state in reachable
        if after.state is not before.state:
            assert applied.history, "no state changes without a line in the history"
            assert applied.history[-1].state is after.state
        if after.state in (S.FIXED, S.WITHDRAWN):
            assert not after.still_bad
        if after.is_open:
            assert after.still_bad or not before.still_bad
        if after is before:
            assert not applied.is_located and applied.fixed_position is None
        regression = stored(applied, number)


@given(POINTS, CAUSES, INCIDENTS, st.sampled_from(S))
def test_the_same_evidence_seen_twice_says_nothing_new(
    points: list[KnownPoint], cause: Cause, incident: ReportedIncident | None, state: RegressionState
) -> None:
    first = seen(in_state(state), points, cause, incident=incident)
    second = seen(stored(first, 1), points, cause, incident=incident)
    assert [said.kind for said in second.history if said.kind != "relocated"] == []
    assert second.regression == first.regression or second.regression == stored(first, 1)


@given(POINTS, st.sampled_from(S), ACTIONS)
def test_what_a_person_does_can_be_undone_to_the_letter(
    points: list[KnownPoint], state: RegressionState, action: Action
) -> None:
    before = in_state(state)
    assume(action in possible_actions(before) and action is not Action.NOTE)
    done = apply(before, points, PersonDecided(action=action, actor="eve", reason="meant"))
    after = stored(done, 5)
    assert Action.UNDO in possible_actions(after)
    undone = apply(after, points, PersonDecided(action=Action.UNDO, actor="ada")).regression
    assert (undone.state, undone.owner, undone.reason) == (before.state, before.owner, before.reason)


@given(st.sampled_from(S), ACTIONS, st.booleans())
def test_what_is_offered_is_possible_and_nothing_else_is(
    state: RegressionState, action: Action, is_owned: bool
) -> None:
    regression = in_state(state, owner="ada" if is_owned else None)
    event = PersonDecided(action=action, actor="ada", reason="meant")
    if action in possible_actions(regression):
        assert apply(regression, [POINT], event).history
    else:
        with pytest.raises(StepRefused):
            apply(regression, [POINT], event)


# --- what the evidence says ------------------------------------------------------------------------------------------


def kinds(applied: Applied) -> list[str]:
    return [said.kind for said in applied.history]


def test_a_confirmed_change_of_the_machine_is_an_alarm_once_and_no_regression() -> None:
    told = seen(REGRESSION, [replace(POINT, state="confirmed")], MACHINE)
    assert (told.regression.state, kinds(told)) == (S.SUSPECT, ["infra_alarm"])
    again = seen(stored(told, 1), [replace(POINT, state="confirmed")], MACHINE)
    assert kinds(again) == []


def test_an_incident_that_finds_the_machine_takes_back_what_was_confirmed_and_only_that() -> None:
    machine = replace(INCIDENT, kind="infra", cause="hardware")
    confirmed = [replace(POINT, state="confirmed", regression_state="confirmed")]
    taken = seen(in_state(S.CONFIRMED), confirmed, MACHINE, incident=machine, kind=IncidentChanged)
    assert (taken.regression.state, taken.history[0].detail["taken_back"]) == (S.SUSPECT, True)
    assert taken.alarms_withdrawn == (7,)
    assert [said.verdict.value for said in taken.restatements] == ["suspect"], "no cell stays red because of it"
    owned = seen(in_state(S.ACKNOWLEDGED), confirmed, MACHINE, incident=machine)
    assert owned.regression.state is S.ACKNOWLEDGED


def test_where_an_incident_says_it_began_is_where_it_began() -> None:
    moved = seen(REGRESSION, [POINT], incident=replace(INCIDENT, first_bad_position=18, range_start=17))
    assert (moved.regression.first_bad_position, moved.regression.last_good_position) == (18, 16)
    assert kinds(moved) == ["relocated", "confirmed"]
    assert moved.history[0].detail["from"] == 20


@pytest.mark.parametrize(("position", "ends"), [(20 + ONE_ALARM - 1, False), (20 + ONE_ALARM, True)])
def test_an_alarm_about_one_worker_outlives_the_good_runs_of_others_for_a_while(position: int, ends: bool) -> None:
    gone = [replace(POINT, state="withdrawn")]
    applied = seen(replace(REGRESSION, cause="hardware"), gone, position=position)
    assert applied.regression.state is (S.WITHDRAWN if ends else S.SUSPECT)


def test_what_all_series_side_by_side_still_show_is_not_withdrawn_for_want_of_change_points() -> None:
    gone = [replace(POINT, state="withdrawn")]
    assert seen(in_state(S.CONFIRMED), gone, incident=INCIDENT).regression.state is S.CONFIRMED
    over = seen(in_state(S.CONFIRMED), gone, incident=replace(INCIDENT, closed_position=24))
    assert (over.regression.state, over.fixed_position) == (S.FIXED, 24)
    assert seen(in_state(S.CONFIRMED), gone, incident=INCIDENT, part_of=2).regression.state is S.WITHDRAWN


def test_the_detector_keeps_score_of_true_and_of_false_alarms_but_not_of_what_was_merged() -> None:
    confirmed = replace(POINT, state="confirmed")
    assert seen(REGRESSION, [confirmed], newly_confirmed=frozenset({7})).alarms_confirmed == (7,)
    assert seen(REGRESSION, [confirmed]).alarms_confirmed == ()
    gone = [replace(POINT, state="withdrawn")]
    assert seen(in_state(S.CONFIRMED), gone).alarms_withdrawn == (7,)
    assert seen(in_state(S.CONFIRMED), gone, part_of=2).alarms_withdrawn == ()
    assert seen(REGRESSION, gone).alarms_withdrawn == ()


def test_what_a_person_calls_invalid_makes_its_live_points_quiet_and_counts_as_a_false_alarm() -> None:
    points = [POINT, replace(POINT, id=2, series_id=8, state="fixed", fixed_position=23)]
    said = PersonDecided(action=Action.INVALID, actor="ada", reason="a rack was moved")
    applied = apply(in_state(S.CONFIRMED), points, said)
    assert [(r.series_id, r.first, r.verdict.value) for r in applied.restatements] == [(7, 20, "unchanged")]
    assert applied.alarms_withdrawn == (7,)
