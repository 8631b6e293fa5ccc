import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.regression.policy import Policy
from backend.regression.series.explain import explain
from backend.regression.series.judge import judge, judge_all, judge_history
from backend.regression.series.state import SeriesState
from backend.regression.terms import ChangeState, Direction, Point, Reason, Role, SeriesKind, Verdict
from tests.backend.regression.judge_histories import demo_levels, points

LOWER = SeriesKind(Direction.LOWER)
POLICY = Policy()


def told(judgements, state=ChangeState.CONFIRMED, regression=True):
    return [
        e
        for j in judgements
        for e in j.events
        if e.state is state and e.past_threshold and (e.direction == "regression") == regression
    ]


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(("change", "red"), [(0.049, False), (0.051, True)])
def test_a_step_of_5_1_percent_in_cost_is_a_regression_and_of_4_9_is_not(direction, change, red):
    rng = np.random.default_rng(1)
    costs = [10.0] * 40 + [10.0 * (1 + change)] * 12
    levels = costs if direction is Direction.LOWER else [1 / c for c in costs]
    judged = judge_all(points(levels, rng, noise=0.0005), SeriesKind(direction), POLICY)
    assert any(j.red for j in judged) is red
    assert [e.onset_position for e in told(judged)] == ([40] if red else [])


def test_a_regression_is_told_with_the_third_bad_run_and_not_before():
    judged = judge_all(points([10.0] * 30 + [12.0] * 5, noise=0.005), LOWER, POLICY)
    assert [j.verdict for j in judged[29:35]] == [
        Verdict.UNCHANGED,
        Verdict.SUSPECT,
        Verdict.SUSPECT,
        Verdict.REGRESSION,
        Verdict.REGRESSION,
        Verdict.REGRESSION,
    ]
    (event,) = told(judged)
    assert (event.onset_position, event.last_good_position, event.detected_position) == (30, 29, 32)
    assert event.magnitude == pytest.approx(0.2, abs=0.01)
    assert judged[30].onset and judged[30].reason is Reason.OUTSIDE_BAND_ONCE
    assert judged[33].since_position == 30 and judged[33].reason is Reason.STILL_WORSE


@pytest.mark.parametrize("runs", [1, 2])
def test_one_or_two_slow_runs_are_a_suspect_that_is_withdrawn(runs):
    judged = judge_all(points([10.0] * 30 + [14.0] * runs + [10.0] * 6, noise=0.005), LOWER, POLICY)
    assert [j.verdict for j in judged[30 : 30 + runs]] == [Verdict.SUSPECT] * runs
    assert not told(judged)
    assert [e.onset_position for e in told(judged, ChangeState.WITHDRAWN)] == [30]
    assert judged[-1].verdict is Verdict.UNCHANGED


def test_a_fix_ends_the_regression_after_two_runs_and_names_the_fixing_position():
    judged = judge_all(points([10.0] * 20 + [13.0] * 6 + [10.0] * 4, noise=0.005), LOWER, POLICY)
    (fixed,) = told(judged, ChangeState.FIXED)
    assert (fixed.onset_position, fixed.range_end, fixed.detected_position) == (20, 26, 27)
    assert [j.verdict for j in judged[25:29]] == [
        Verdict.REGRESSION,
        Verdict.UNCHANGED,
        Verdict.UNCHANGED,
        Verdict.UNCHANGED,
    ]
    assert judged[26].reason is Reason.RETURNING and judged[27].reason is Reason.RETURNED
    assert not any(j.red for j in judged[26:])


def test_a_new_regression_after_a_fix_is_another_one():
    levels = [10.0] * 20 + [13.0] * 5 + [10.0] * 5 + [13.0] * 4
    judged = judge_all(points(levels, noise=0.005), LOWER, POLICY)
    assert [e.onset_position for e in told(judged)] == [20, 30]


def test_a_second_loss_on_top_of_an_open_regression_is_told_too_and_a_full_fix_ends_both():
    levels = [10.0] * 30 + [12.0] * 10 + [14.5] * 10 + [10.0] * 5
    judged = judge_all(points(levels, noise=0.005), LOWER, POLICY)
    assert [e.onset_position for e in told(judged)] == [30, 40]
    assert {e.onset_position for e in told(judged, ChangeState.FIXED)} == {30, 40}


def test_a_partial_fix_leaves_the_regression_open():
    judged = judge_all(points([10.0] * 30 + [14.0] * 10 + [11.5] * 10, noise=0.005), LOWER, POLICY)
    assert not told(judged, ChangeState.FIXED)
    assert judged[-1].verdict is Verdict.REGRESSION
    assert judged[-1].change == pytest.approx(0.15, abs=0.02)


def test_an_improvement_moves_the_baseline():
    judged = judge_all(points([10.0] * 30 + [8.0] * 10, noise=0.005), LOWER, POLICY)
    (event,) = told(judged, regression=False)
    assert event.onset_position == 30 and event.detected_position == 32
    assert judged[32].verdict is Verdict.IMPROVEMENT
    assert judged[-1].baseline == pytest.approx(8.0, rel=0.01)
    assert judged[30].verdict is Verdict.UNCHANGED and judged[30].reason is Reason.IMPROVEMENT_PENDING


def test_two_losses_of_four_percent_are_one_regression_of_eight():
    levels = [10.0] * 40 + [10.4] * 40 + [10.82] * 20
    judged = judge_all(points(levels, noise=0.003), LOWER, POLICY)
    (event,) = told(judged)
    assert 79 <= event.onset_position <= 81
    small = [e for j in judged for e in j.events if not e.past_threshold]
    assert [e.onset_position for e in small] == [40]
    assert not any(j.red for j in judged[:80])


def test_many_small_losses_are_told_as_one_regression():
    levels = [10.0] * 50 + [10.0 * 1.1 ** (i / 100) for i in range(100)] + [11.0] * 40
    judged = judge_all(points(levels, noise=0.02), LOWER, POLICY)
    assert told(judged)
    assert all(47 <= e.onset_position <= 160 for e in told(judged))


def test_small_losses_that_add_up_to_less_than_the_threshold_are_not_told():
    levels = [10.0] * 50 + [10.0 * 1.03 ** (i / 100) for i in range(100)] + [10.3] * 40
    assert not told(judge_all(points(levels, noise=0.02), LOWER, POLICY))


def test_a_short_series_says_how_many_runs_are_missing():
    judged = judge_all(points([10.0] * 5, noise=0.01), LOWER, POLICY)
    assert [j.verdict for j in judged[:4]] == [Verdict.INSUFFICIENT] * 3 + [Verdict.UNCHANGED]
    assert [j.needed_runs for j in judged[:4]] == [3, 2, 1, 0]
    assert judged[0].change is None and judged[0].baseline is None


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("size", [0.3, 0.6, 1.0])
def test_the_ladder_history_has_exactly_the_planted_regression_and_its_fix(short, size):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        levels, onset, fix = demo_levels(rng, short, size)
        judged = judge_all(points(levels, rng, noise=0.01, within=0.015), LOWER, POLICY)
        (event,) = told(judged)
        assert (event.onset_position, event.last_good_position) == (onset, onset - 1)
        assert event.detected_position == onset + 2
        assert [e.onset_position for e in told(judged, ChangeState.FIXED)] == [onset]
        assert [j.position for j in judged if j.red] == list(range(onset + 2, fix))


def test_a_watch_metric_is_judged_and_never_red():
    judged = judge_all(points([10.0] * 30 + [13.0] * 5), SeriesKind(Direction.LOWER, Role.WATCH), POLICY)
    assert judged[-1].verdict is Verdict.REGRESSION
    assert not any(j.red for j in judged)


def test_higher_is_better_mirrors_lower_is_better():
    rng = np.random.default_rng(5)
    history = points([10.0] * 30 + [12.0] * 6, rng, noise=0.01)
    mirrored = [Point(p.position, p.commit, tuple(1 / v for v in p.values), "w0") for p in history]
    one = judge_all(history, LOWER, POLICY)
    two = judge_all(mirrored, SeriesKind(Direction.HIGHER), POLICY)
    assert [j.verdict for j in one] == [j.verdict for j in two]
    assert two[-1].baseline == pytest.approx(1 / one[-1].baseline, rel=1e-5)
    assert all(j.band_low <= j.baseline <= j.band_high for j in two if j.baseline is not None)


def test_the_judgement_names_what_it_was_judged_by():
    judged = judge_all(points([10.0] * 60, np.random.default_rng(2), noise=0.01), LOWER, POLICY)[-1]
    assert judged.policy_version == POLICY.version
    assert judged.band_low < judged.baseline < judged.band_high
    assert judged.change_low < judged.change < judged.change_high
    assert judged.noise == pytest.approx(0.01, rel=0.5)
    assert 0.01 < judged.minimum_detectable_effect < 0.1
    assert judged.anchor == pytest.approx(judged.baseline)


def test_the_state_survives_json_and_stays_small():
    rng = np.random.default_rng(3)
    history = points([10.0] * 600 + [12.0] * 300, rng, noise=0.02)
    state = SeriesState.new(LOWER)
    largest = 0
    for point in history:
        text = json.dumps(state.to_json())
        largest = max(largest, len(text))
        state = judge(SeriesState.from_json(json.loads(text)), point, POLICY)[1]
    assert state.to_json() == judge_history(history, LOWER, POLICY)[1].to_json()
    assert largest < 9000


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=6),
    st.integers(4, 40),
    st.floats(0.0, 0.05),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_stored_and_restored_after_every_point_is_the_same_as_all_at_once(steps, length, noise, seed, exact):
    levels = [level for level in steps for _ in range(length)]
    history = points(
        [float(round(100 * v)) for v in levels] if exact else levels,
        np.random.default_rng(seed),
        0.0 if exact else noise,
    )
    kind = SeriesKind(Direction.LOWER, Role.GATE, exact)
    state, one_by_one = SeriesState.new(kind), []
    for point in history:
        judgement, state = judge(SeriesState.from_json(json.loads(json.dumps(state.to_json()))), point, POLICY)
        one_by_one.append(judgement)
    assert one_by_one == judge_all(history, kind, POLICY)


def test_judging_never_changes_the_state_it_was_given():
    history = points([10.0] * 50 + [12.0] * 3, noise=0.01)
    state = judge_history(history[:-1], LOWER, POLICY)[1]
    before = json.dumps(state.to_json())
    first = judge(state, history[-1], POLICY)[0]
    assert json.dumps(state.to_json()) == before
    assert judge(state, history[-1], POLICY)[0] == first


def test_a_late_point_is_refused_and_the_series_re_judged_in_order():
    history = points([10.0] * 20 + [12.0] * 5, noise=0.005)
    late = history.pop(21)
    state = judge_history(history, LOWER, POLICY)[1]
    with pytest.raises(ValueError, match="position 21 is not after 24: re-judge"):
        judge(state, late, POLICY)
    judged = judge_history(sorted([*history, late], key=lambda p: p.position), LOWER, POLICY)[0]
    assert [e.onset_position for e in told(judged)] == [20]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_value_without_a_relative_change_is_refused(value):
    with pytest.raises(ValueError, match="positive finite"):
        judge(SeriesState.new(LOWER), Point(0, "c", (value,)), POLICY)


def test_a_spike_does_not_drag_the_smoothed_value_and_a_regression_restarts_it():
    levels = [10.0] * 40 + [20.0] + [10.0] * 10 + [13.0] * 5
    judged = judge_all(points(levels, noise=0.01), LOWER, POLICY)
    assert judged[40].smoothed < 10.1
    assert judged[51 + 2].smoothed == pytest.approx(13.0, rel=0.01)
    assert all(j.smoothed_low <= j.smoothed <= j.smoothed_high for j in judged)


def test_the_smoothed_value_never_peeks_ahead():
    history = points([10.0] * 30 + [12.0] * 10, noise=0.02)
    whole = judge_all(history, LOWER, POLICY)
    assert judge_all(history[:33], LOWER, POLICY) == whole[:33]


def test_a_series_too_unsteady_to_see_what_counts_says_so_and_what_it_sees():
    judged = judge_all(points([100.0] * 80, np.random.default_rng(1), noise=0.09), LOWER, Policy())
    last = judged[-1]
    assert (last.verdict, last.reason, last.red) == (Verdict.UNSTEADY, Reason.TOO_UNSTEADY, False)
    assert 0.15 < last.numbers["sees"] < 0.6
    said = explain(last, "step", "ms")
    assert "too unsteady to see 5.0 %; it sees" in said
    assert "It needs more runs at one level, a quieter machine" in said


def test_a_regression_of_an_unsteady_series_is_red_all_the_same():
    levels = [100.0] * 80 + [170.0] * 10
    last = judge_all(points(levels, np.random.default_rng(1), noise=0.09), LOWER, Policy())[-1]
    assert (last.verdict, last.red) == (Verdict.REGRESSION, True)
