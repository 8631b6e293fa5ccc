"""A small pool of labelled histories with fixed seeds: the detector may not get worse than this without a word."""

import pytest
import score_table as table


@pytest.fixture(scope="module")
def data():
    return table.histories([31, 32], 100)


@pytest.fixture(scope="module")
def ours(data):
    return table.scoring.evaluate(table.detect_record, data)


@pytest.mark.parametrize(
    ("figure", "floor"), [("P", 0.88), ("R", 0.88), ("F1", 0.90), ("step_recall", 0.86), ("drift_recall", 0.90)]
)
def test_what_is_found_does_not_fall_below_the_floor(ours, figure, floor):
    assert ours[figure] >= floor


def test_false_alarms_stay_few_and_nothing_is_taken_back(ours):
    assert ours["fa_per_1000"] <= 0.15
    assert ours["violations"] == 0
    assert ours["spike_flagged"] <= 0.05


def test_regressions_are_told_within_few_commits(ours):
    assert ours["delay"] <= 3


def test_it_is_better_than_the_rules_of_others(data, ours):
    some = data[:60]
    mine = table.scoring.evaluate(table.detect_record, some, checks=0)["F1"]
    for name, rule in table.peers_rules.RULES.items():
        assert table.scoring.evaluate(rule, some, checks=0)["F1"] < mine, name


@pytest.mark.parametrize("rough", [False, True])
def test_histories_are_deterministic_in_their_seed(rough):
    assert table.histories([5], 3, rough) == table.histories([5], 3, rough)


@pytest.fixture(scope="module")
def rough():
    return table.histories([31, 32], 60, rough=True)


@pytest.fixture(scope="module")
def ours_rough(rough):
    return table.scoring.evaluate(table.detect_record, rough)


@pytest.mark.parametrize(("figure", "floor"), [("P", 0.90), ("R", 0.93), ("F1", 0.94), ("step_recall", 0.93)])
def test_rough_histories_do_not_fall_below_the_floor(ours_rough, figure, floor):
    assert ours_rough[figure] >= floor


def test_rough_histories_raise_few_false_alarms_soon_and_take_nothing_back(ours_rough):
    assert ours_rough["fa_per_1000"] <= 0.15
    assert ours_rough["delay"] <= 3
    assert ours_rough["delay_p90"] <= 10
    assert ours_rough["violations"] == 0


def test_what_a_history_lists_as_unclear_is_nobodys_business():
    (series,) = table.histories([5], 1)
    alarm = {"index": 5, "detected_at": 8}
    tally, forgiving = table.scoring.Tally(), table.scoring.Tally()
    tally.add({**series, "labels": []}, [alarm])
    forgiving.add({**series, "labels": [], "dont_care": [[3, 5]]}, [alarm])
    assert (tally.count["false"], forgiving.count["false"]) == (1, 0)
    assert forgiving.count["quiet"] == tally.count["quiet"] - 3
