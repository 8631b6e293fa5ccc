import re
from dataclasses import replace

import pytest

from backend.regression.policy import Policy
from backend.regression.series.explain import explain
from backend.regression.series.judge import judge_all
from backend.regression.terms import Direction, Reason, SeriesKind, Verdict
from tests.backend.regression.judge_histories import points

NAMES = {20: "abc1234", 26: "def5678"}


def paragraphs(levels, kind=None, noise=0.005):
    judged = judge_all(points(levels, noise=noise), kind or SeriesKind(Direction.LOWER), Policy())
    return judged, [explain(j, "step_ms", "ms", NAMES) for j in judged]


def test_every_point_of_a_history_is_explained_with_its_numbers():
    _, told = paragraphs([10.0] * 20 + [13.0] * 6 + [10.0] * 4)
    assert "a baseline needs 3 more runs" in told[0]
    assert "within the band" in told[15] and Policy().version in told[15]
    assert "suspect" in told[20] and "it must be sustained" in told[20]
    assert re.search(r"The level rose by \+(29|30)\.\d % at abc1234", told[22])
    assert "It is part of the regression that began at abc1234" in told[24]
    assert "ended at def5678" in told[27]
    assert all("None" not in text and "nan" not in text for text in told)


@pytest.mark.parametrize(
    ("runs", "waits"), [(2, "3 that agree, or a confirming session"), (6, "the 4 runs of the baseline are too few")]
)
def test_a_suspect_says_what_it_waits_for_also_after_more_runs_than_a_regression_takes(runs, waits):
    judged, _ = paragraphs([10.0] * 8)
    numbers = judged[-1].numbers | {"suspect_runs": runs}
    suspect = replace(
        judged[-1],
        verdict=Verdict.SUSPECT,
        reason=Reason.AWAITING_RUNS,
        since_position=20,
        n_baseline=4,
        numbers=numbers,
    )
    told = explain(suspect, "step_ms", "ms", NAMES)
    assert f"{runs} runs since abc1234 look worse" in told and waits in told


def test_the_commit_a_regression_begins_at_is_no_part_of_an_earlier_one():
    judged, _ = paragraphs([10.0] * 20 + [13.0] * 6)
    onset = replace(judged[24], onset=True, since_position=20)
    told = explain(onset, "step_ms", "ms", NAMES)
    assert "The regression begins here." in told and "is part of" not in told


def test_the_commit_that_ends_a_regression_is_no_improvement_by_nothing():
    judged, _ = paragraphs([10.0] * 20)
    fix = replace(
        judged[-1], verdict=Verdict.IMPROVEMENT, reason=Reason.SUSTAINED_IMPROVEMENT, change=0.02, since_position=26
    )
    told = explain(fix, "step_ms", "ms", NAMES)
    assert "+2.0 % against" in told and "improvement over the runs before it." in told
    assert "The level fell at def5678 and stayed" in told
    told = explain(replace(fix, change=-0.3, numbers=fix.numbers | {"step": -0.3}), "step_ms", "ms", NAMES)
    assert "improvement." in told and "The level fell by 30.0 % at def5678" in told


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_sentence(reason):
    judged, _ = paragraphs([10.0] * 8)
    fields = {name: getattr(judged[-1], name) for name in judged[-1].__dataclass_fields__}
    assert explain(type(judged[-1])(**{**fields, "reason": reason}), "step_ms", "ms").endswith(".")


def test_a_counter_is_explained_without_a_band():
    _, told = paragraphs([100.0] * 5 + [200.0], SeriesKind(Direction.LOWER, exact=True), noise=0.0)
    assert "exact" in told[5] and "band" not in told[5]


def test_a_reason_that_was_stored_under_its_earlier_name_is_read():
    assert Reason("below_gate") is Reason.BELOW_THRESHOLD and Reason("exact_below_gate") is Reason.EXACT_BELOW_THRESHOLD
    with pytest.raises(ValueError, match="'tea' is not a valid Reason"):
        Reason("tea")
