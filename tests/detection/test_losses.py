"""Every loss that costs F1 is listed, once."""

import losses
import pytest
import scoring
from score_table import histories

from backend.regression.series.detect import detect_record


@pytest.mark.parametrize("rough", [False, True])
def test_as_many_losses_are_listed_as_the_score_counts(rough):
    tally, listed = scoring.Tally(), []
    for series in histories([33], 40, rough):
        alerts = detect_record(scoring.public(series))["regressions"][1:]  # each first one is lost by the test
        tally.add(series, alerts)
        listed += losses.losses(series, alerts)
    count = tally.count
    wanted, found = count["steps"] + count["drifts"], count["found"] + count["drifts_found"]
    assert sum(kind.startswith("missed") for kind in listed) == wanted - found > 0
    assert sum(kind.startswith("false") for kind in listed) == count["false"]


def test_a_step_told_a_few_commits_away_is_listed_as_that_and_as_a_false_alarm():
    step = {"index": 50, "end": None, "kind": "step", "regression": True, "cost_pct": 10.0}
    series = {"values": [1.0] * 100, "labels": [step], "meta": {"cv_pct": 3.0}}
    alert = {"index": 56, "detected_at": 60, "magnitude_pct": 10.0}
    assert list(losses.losses(series, [alert])) == [
        "missed: told 4 to 10 commits away",
        "false: of a step 4 to 10 commits away",
    ]
