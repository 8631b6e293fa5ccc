from dataclasses import replace

import pytest

from backend.regression.grouping import SeriesChange, belongs, group, same_onset
from backend.regression.terms import ChangeDirection, ChangeKind, ChangePoint, ChangeState, Role


def change(series, onset, size=0.2, width=0, role=Role.GATE, past_threshold=True, noise=None, exact=False):
    point = ChangePoint(
        kind=ChangeKind.STEP,
        direction=ChangeDirection.REGRESSION if size > 0 else ChangeDirection.IMPROVEMENT,
        state=ChangeState.CONFIRMED,
        onset_position=onset,
        last_good_position=onset - 1,
        range_start=onset - width,
        range_end=onset + width,
        magnitude=size,
        past_threshold=past_threshold,
        detected_position=onset + 2,
        baseline=1.0,
        level=1.0 + size,
    )
    return SeriesChange(series, "cpu", "moe.layer", series, role, point, exact, noise)


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


def test_a_regression_and_an_improvement_of_one_commit_are_two_groups():
    assert len(group([change("a", 50, 0.2), change("b", 50, -0.2)])) == 2
    assert not same_onset(change("a", 50, 0.2), change("b", 50, -0.2))


def test_only_a_gate_past_its_policy_opens_a_regression():
    assert group([change("a", 50)])[0].opens
    assert not group([change("a", 50, role=Role.WATCH)])[0].opens
    assert not group([change("a", 50, past_threshold=False)])[0].opens


def test_a_later_change_belongs_to_the_group_of_its_onset():
    (found,) = group([change("a", 50)])
    assert belongs(found, change("b", 52)) and not belongs(found, change("b", 60))


@pytest.mark.parametrize("apart", range(1, 6))
def test_two_causes_located_to_the_run_are_two_groups_however_near(apart):
    first, second = change("gpt", 50, 0.2, noise=0.01), change("llama", 50 + apart, 0.15, noise=0.01)
    assert [found.onset_position for found in group([second, first])] == [50, 50 + apart]
    assert not belongs(group([first])[0], second)


def test_the_clearer_a_step_is_the_nearer_two_onsets_may_be_and_still_be_two():
    sharp = change("gpt", 50, 0.2, noise=0.01)

    def alone(apart, size):
        return len(group([sharp, change("b", 50 + apart, size, noise=0.01)])) == 2

    assert alone(1, 0.023) and not alone(1, 0.021)
    assert alone(2, 0.016) and not alone(2, 0.015)
    assert not alone(3, 0.012) and alone(4, 0.012)


def test_a_counter_is_located_to_the_run_by_itself():
    assert len(group([change("syncs", 50, exact=True), change("breaks", 51, exact=True)])) == 2


def test_a_gap_in_one_series_does_not_part_it_from_the_onset_within():
    late = change("b", 52, noise=0.01)
    late = replace(late, change=replace(late.change, range_start=50))
    assert len(group([change("a", 50, noise=0.01), late])) == 1


def test_a_blurred_change_between_two_onsets_does_not_join_them():
    first, second = change("a", 50, noise=0.01), change("b", 53, noise=0.01)
    (found, other) = group([first, second, change("blurred", 51, 0.1)])
    assert {member.series_id for member in found.members} == {"a", "blurred"} and len(other.members) == 1
    assert not belongs(found, change("c", 53, noise=0.01))


def test_nothing_makes_no_group():
    assert group([]) == []
