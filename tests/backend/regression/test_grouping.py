from backend.regression.grouping import SeriesChange, belongs, group, same_onset
from backend.regression.terms import ChangeDirection, ChangeKind, ChangePoint, ChangeState, Role


def change(series, onset, size=0.2, width=0, role=Role.GATE, past_gate=True, weight=1.0):
    point = ChangePoint(
        kind=ChangeKind.STEP,
        direction=ChangeDirection.REGRESSION if size > 0 else ChangeDirection.IMPROVEMENT,
        state=ChangeState.CONFIRMED,
        onset_position=onset,
        last_good_position=onset - 1,
        range_start=onset - width,
        range_end=onset + width,
        magnitude=size,
        past_gate=past_gate,
        detected_position=onset + 2,
        baseline=1.0,
        level=1.0 + size,
    )
    return SeriesChange(series, "cpu", "moe.layer", series, role, point, weight)


def test_changes_of_one_onset_are_one_group_led_by_what_users_feel_most():
    (found,) = group(
        [change("forward_ms", 50, 0.9, role=Role.PHASE), change("step_ms", 50, 0.3), change("peak_bytes", 51, 0.1)]
    )
    assert found.lead.series_id == "step_ms" and len(found.members) == 3
    assert found.onset_position == 50 and found.last_good_position == 49 and found.magnitude == 0.3


def test_onsets_three_commits_apart_may_be_one_and_four_apart_are_two():
    assert len(group([change("a", 50), change("b", 53)])) == 1
    assert len(group([change("a", 50), change("b", 54)])) == 2


def test_a_blurred_change_joins_the_sharp_one_inside_its_range():
    (found,) = group([change("noisy", 57, width=8), change("sharp", 50)])
    assert found.onset_position == 50
    assert (found.range_start, found.range_end) == (50, 50)


def test_a_regression_and_an_improvement_of_one_commit_are_two_groups():
    assert len(group([change("a", 50, 0.2), change("b", 50, -0.2)])) == 2
    assert not same_onset(change("a", 50, 0.2).change, change("b", 50, -0.2).change)


def test_only_a_gate_past_its_policy_opens_a_regression():
    assert group([change("a", 50)])[0].opens
    assert not group([change("a", 50, role=Role.WATCH)])[0].opens
    assert not group([change("a", 50, past_gate=False)])[0].opens


def test_a_later_change_belongs_to_the_group_of_its_onset():
    (found,) = group([change("a", 50)])
    assert belongs(found, change("b", 52)) and not belongs(found, change("b", 60))


def test_nothing_makes_no_group():
    assert group([]) == []
