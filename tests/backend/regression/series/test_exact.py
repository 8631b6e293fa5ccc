import pytest

from backend.regression.detector.memory import OPEN_ONES
from backend.regression.policy import Policy
from backend.regression.series.exact import LONG_HELD
from backend.regression.series.judge import judge_all, judge_history
from backend.regression.terms import ChangeState, Direction, Reason, Role, SeriesKind, Verdict
from tests.backend.regression.judge_histories import points

EXACT = SeriesKind(Direction.LOWER, Role.GATE, exact=True)


def judged(values, policy=None):
    return judge_all(points([float(v) for v in values], processes=1), EXACT, policy or Policy())


def regressions(judgements):
    return [
        e
        for j in judgements
        for e in j.events
        if e.state is ChangeState.CONFIRMED and e.past_threshold and e.magnitude > 0
    ]


@pytest.mark.parametrize(("value", "red"), [(105, False), (106, True)])
def test_a_counter_regresses_only_past_its_policy_and_at_once(value, red):
    found = judged([100] * 5 + [value] * 3)
    assert found[5].red is red
    assert found[5].reason is (Reason.EXACT_CHANGED if red else Reason.EXACT_BELOW_THRESHOLD)


def test_any_increase_is_a_change_point():
    found = judged([1_000_000] * 5 + [1_000_001])
    (event,) = found[-1].events
    assert event.onset_position == 5 and not event.past_threshold


def test_any_more_host_syncs_are_a_regression_even_from_zero():
    policy = Policy.resolve(metric="host_syncs")
    found = judged([0] * 5 + [1] * 2, policy)
    assert found[5].red and found[5].change == 1.0


def test_small_increases_that_add_up_are_told():
    found = judged([100] * 4 + [103] * 4 + [106] * 4)
    assert [e.onset_position for e in regressions(found)] == [8]


def test_a_ladder_of_improvements_then_a_step_has_one_regression_and_its_fix():
    found = judged([900, 700, 650, 500, 430, 300, 280] + [280] * 6 + [420] * 4 + [280] * 3)
    assert [e.onset_position for e in regressions(found)] == [13]
    fixed = [e for j in found for e in j.events if e.state is ChangeState.FIXED]
    assert [(e.onset_position, e.detected_position) for e in fixed] == [(13, 17)]
    assert [j.position for j in found if j.red] == [13, 14, 15, 16]


def test_a_value_that_was_never_held_is_no_baseline():
    found = judged([100, 120, 120, 120])
    assert not regressions(found)
    assert found[1].verdict is Verdict.INSUFFICIENT


def test_a_counter_that_flaps_is_a_known_mode_and_not_an_alarm_each_time():
    found = judged([100, 100, 110, 110] * 4)
    assert len(regressions(found)) == 3
    assert found[-2].verdict is Verdict.UNCHANGED and found[-2].reason is Reason.KNOWN_MODE


@pytest.mark.parametrize(("held", "told"), [(LONG_HELD - 1, 3), (LONG_HELD, 4)])
def test_a_counter_that_leaves_a_value_held_for_long_is_told_however_often_it_flapped(held, told):
    assert len(regressions(judged([100, 100, 110, 110] * 3 + [100] * held + [110]))) == told


@pytest.mark.parametrize("rises", [3, 9, OPEN_ONES])
def test_every_rise_that_nobody_mended_ends_when_the_counter_is_back(rises):
    values = [10.0] * 3 + [10.0 * 2.0 ** (rise + 1) for rise in range(rises)] + [10.0]
    fixed = [e.onset_position for j in judged(values) for e in j.events if e.state is ChangeState.FIXED]
    assert fixed == list(range(3, 3 + rises))


def test_a_counter_that_rises_for_ever_is_remembered_by_so_many_rises():
    values = [0.5, 0.5] + [2.0**rise for rise in range(2 * OPEN_ONES)]
    _, state = judge_history(points(values, processes=1), EXACT, Policy())
    assert len(state.open_regressions) == OPEN_ONES
