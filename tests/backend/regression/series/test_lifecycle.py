import numpy as np
import pytest

from backend.regression.confirmation import Decision
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Opened
from backend.regression.policy import Policy
from backend.regression.series.history import enter, replay
from backend.regression.series.judge import judge, judge_history
from backend.regression.series.lifecycle import Confirmation, accept_change, apply_confirmation, dismiss_change
from backend.regression.terms import ChangeDirection, ChangeState, Direction, Point, Reason, SeriesKind, Verdict
from tests.backend.regression.judge_histories import points

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
    judgement, _ = judge(state, Point(22, "c22", (12.0, 12.0, 12.0), "w0"), POLICY)
    assert judgement.verdict is Verdict.REGRESSION and judgement.reason is Reason.STILL_WORSE


def confirmed_after(bad, then, policy=POLICY):
    """A suspect of so many bad runs that a session confirmed, and what is said of the levels that come next."""
    history = points([10.0] * 20 + [12.0] * bad, noise=0.005)
    _, state = judge_history(history, LOWER, policy)
    _, state = apply_confirmation(state, outcome(20, Decision.CONFIRMED), policy)
    return judge_history(points(then, noise=0.005, start=20 + bad), LOWER, policy, state)


@pytest.mark.parametrize("bad", [1, 2])
@pytest.mark.parametrize(("good", "open_ones"), [(1, [20]), (2, [])])
def test_what_a_session_confirmed_is_over_once_enough_runs_are_back_however_few_were_bad(bad, good, open_ones):
    judged, state = confirmed_after(bad, [10.0] * good)
    assert [o.onset_position for o in state.open_regressions] == open_ones
    ends = [(e.state, e.onset_position, e.range_end) for j in judged for e in j.events if e.state is ChangeState.FIXED]
    assert ends == ([] if open_ones else [(ChangeState.FIXED, 20, 20 + bad)])


@pytest.mark.parametrize(("fixed_runs", "good", "is_over"), [(4, 3, False), (4, 4, True), (1, 1, True)])
def test_so_many_runs_as_the_policy_says_end_a_level_that_no_baseline_was_made_of(fixed_runs, good, is_over):
    _, state = confirmed_after(1, [10.0] * good, Policy(fixed_runs=fixed_runs))
    assert (state.open_regressions == ()) is is_over


def test_a_single_good_run_after_a_confirmed_one_is_no_end():
    judged, state = confirmed_after(1, [10.0, 12.0, 12.0, 12.0])
    assert [o.onset_position for o in state.open_regressions] == [20]
    assert judged[-1].verdict is Verdict.REGRESSION
    assert not [e for j in judged for e in j.events]


@pytest.mark.parametrize(("level", "verdict"), [(10.9, Verdict.INSUFFICIENT), (11.0, Verdict.REGRESSION)])
def test_runs_nearer_to_the_regression_than_to_the_level_before_are_part_of_it(level, verdict):
    judged, state = confirmed_after(1, [level] * 2)
    assert judged[-1].verdict is verdict
    assert [o.onset_position for o in state.open_regressions] == [20]


@pytest.mark.parametrize(
    ("level", "runs", "open_ones", "gains"),
    [
        (10.4, 2, [], 1),
        (10.6, 2, [20], 0),
        (10.6, 7, [20], 0),
        (10.6, 8, [20], 1),
    ],
)
def test_what_is_mended_by_half_is_a_level_of_its_own_after_a_while_and_ends_nothing(level, runs, open_ones, gains):
    judged, state = confirmed_after(1, [level] * runs)
    assert [o.onset_position for o in state.open_regressions] == open_ones
    better = [e for j in judged for e in j.events if e.direction is ChangeDirection.IMPROVEMENT]
    assert len(better) == gains


@pytest.mark.parametrize(("noise", "good", "is_over"), [(0.03, 2, True), (0.04, 2, False), (0.04, 3, True)])
def test_where_single_runs_tell_little_a_baseline_of_them_ends_a_young_regression(noise, good, is_over):
    """The loss is 18.2 % of log cost: six standard deviations are 3.04 %."""
    detector = Detector(
        segment=np.array([0.182]),
        places=np.array([20]),
        carried=np.array([-noise, noise] * 40),
        levels=(0.0,),
        opened=(Opened(20, 19, 0.0, 0.182, False, np.zeros(1), np.array([19])),),
    )
    found = [detector.feed(np.array([0.0]), np.array([21 + run]), POLICY) for run in range(good)]
    assert bool(found[-1]) is is_over


@pytest.mark.parametrize("seed", range(8))
def test_a_noisy_series_is_well_again_after_a_confirmed_run_was_reverted(seed):
    rng = np.random.default_rng(seed)
    history = points([10.0] * 30, rng, noise=0.03) + points([12.0], start=30)
    _, state = judge_history(history, LOWER, POLICY)
    _, state = apply_confirmation(state, outcome(30, Decision.CONFIRMED), POLICY)
    judged, state = judge_history(points([10.0] * 12, rng, noise=0.03, start=31), LOWER, POLICY, state)
    assert state.open_regressions == () and not judged[-1].red


def test_a_session_withdraws_a_suspect_and_the_same_onset_is_not_told_again():
    events, state = apply_confirmation(suspect_state(), outcome(20, Decision.WITHDRAWN), POLICY)
    assert [e.state for e in events] == [ChangeState.WITHDRAWN]
    assert state.record.withdrawn == 1
    judged, state = judge_history(
        [Point(p, f"c{p}", (12.0, 12.01, 11.99), "w0") for p in range(22, 40)], LOWER, POLICY, state
    )
    assert not any(j.red for j in judged)
    assert not [e for j in judged for e in j.events if e.past_threshold and e.state is ChangeState.CONFIRMED]


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
    history = [Point(26 + i, f"c{i}", (12.0, 12.01, 11.99), "w0") for i in range(10)]
    history += [Point(36 + i, f"d{i}", (13.5, 13.5, 13.5), "w0") for i in range(4)]
    judged, _ = judge_history(history, LOWER, POLICY, state)
    assert judged[0].verdict is Verdict.UNCHANGED
    assert [j.position for j in judged if j.red] == [38, 39]
    assert judged[-1].change == pytest.approx(0.125, abs=0.02)


def test_an_invalid_regression_counts_against_the_record_of_the_series():
    state = dismiss_change(open_state(), 20)
    assert state.open_regressions == () and state.record.withdrawn == 1


def test_replay_tells_what_another_policy_would_have_told():
    history = points([10.0] * 40 + [10.8] * 20, np.random.default_rng(1), noise=0.003)
    told = replay(enter(history, LOWER), POLICY)
    assert [e.onset_position for e in told if e.state is ChangeState.CONFIRMED] == [40]
    assert replay(enter(history, LOWER), POLICY.with_values(min_change=0.1)) == []
