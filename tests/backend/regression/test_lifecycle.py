import numpy as np
import pytest
from judge_histories import points

from backend.regression.confirmation import Decision
from backend.regression.history import replay
from backend.regression.judge import judge, judge_history
from backend.regression.lifecycle import Confirmation, accept_change, apply_confirmation, dismiss_change
from backend.regression.policy import Policy
from backend.regression.terms import ChangeState, Direction, Point, Reason, SeriesKind, Verdict

LOWER = SeriesKind(Direction.LOWER)
POLICY = Policy()


def outcome(onset, decision):
    return Confirmation(onset, decision, 0.2, 0.15, 0.25)


def suspect_state():
    history = points([10.0] * 20 + [12.0] * 2, noise=0.005)
    judged, state = judge_history(history, LOWER, POLICY)
    assert judged[-1].verdict is Verdict.SUSPECT and state.suspect.onset == 20
    return state


def test_a_session_confirms_a_suspect_before_its_third_run():
    events, state = apply_confirmation(suspect_state(), outcome(20, Decision.CONFIRMED), POLICY)
    (event,) = events
    assert (event.state, event.onset_position, event.last_good_position) == (ChangeState.CONFIRMED, 20, 19)
    assert [o.onset_position for o in state.open_regressions] == [20]
    judgement, _ = judge(state, Point(22, "c22", (12.0, 12.0, 12.0), "env", "w0"), POLICY)
    assert judgement.verdict is Verdict.REGRESSION and judgement.reason is Reason.STILL_WORSE


def test_a_session_withdraws_a_suspect_and_the_same_onset_is_not_told_again():
    events, state = apply_confirmation(suspect_state(), outcome(20, Decision.WITHDRAWN), POLICY)
    assert [e.state for e in events] == [ChangeState.WITHDRAWN]
    assert state.record.withdrawn == 1
    judged, state = judge_history(
        [Point(p, f"c{p}", (12.0, 12.01, 11.99), "env", "w0") for p in range(22, 40)], LOWER, POLICY, state
    )
    assert not any(j.red for j in judged)
    assert not [e for j in judged for e in j.events if e.past_gate and e.state is ChangeState.CONFIRMED]


def test_a_session_about_an_unknown_onset_changes_nothing():
    state = suspect_state()
    assert apply_confirmation(state, outcome(7, Decision.CONFIRMED), POLICY) == ((), state)
    assert apply_confirmation(state, outcome(7, Decision.WITHDRAWN), POLICY) == ((), state)
    assert apply_confirmation(state, outcome(20, Decision.UNDECIDED), POLICY) == ((), state)


def open_state():
    return judge_history(points([10.0] * 20 + [12.0] * 6, noise=0.005), LOWER, POLICY)[1]


def test_a_session_may_disprove_what_was_confirmed_and_its_event_is_withdrawn():
    events, state = apply_confirmation(open_state(), outcome(20, Decision.WITHDRAWN), POLICY)
    assert [(e.state, e.onset_position) for e in events] == [(ChangeState.WITHDRAWN, 20)]
    assert state.open_regressions == ()


def test_an_expected_change_is_the_baseline_and_a_further_loss_is_told_against_it():
    state = accept_change(open_state(), 20)
    assert state.open_regressions == ()
    history = [Point(26 + i, f"c{i}", (12.0, 12.01, 11.99), "env", "w0") for i in range(10)]
    history += [Point(36 + i, f"d{i}", (13.5, 13.5, 13.5), "env", "w0") for i in range(4)]
    judged, _ = judge_history(history, LOWER, POLICY, state)
    assert judged[0].verdict is Verdict.UNCHANGED
    assert [j.position for j in judged if j.red] == [38, 39]
    assert judged[-1].change == pytest.approx(0.125, abs=0.02)


def test_an_invalid_regression_counts_against_the_record_of_the_series():
    state = dismiss_change(open_state(), 20)
    assert state.open_regressions == () and state.record.withdrawn == 1


def test_replay_tells_what_another_policy_would_have_told():
    history = points([10.0] * 40 + [10.8] * 20, np.random.default_rng(1), noise=0.003)
    told = replay(history, LOWER, POLICY)
    assert [e.onset_position for e in told if e.state is ChangeState.CONFIRMED] == [40]
    assert replay(history, LOWER, POLICY.with_values(min_change=0.1)) == []
