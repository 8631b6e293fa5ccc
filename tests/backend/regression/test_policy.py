import numpy as np
import pytest

from backend.regression.confirmation import processes_needed
from backend.regression.policy import Policy, PolicyError, parse_overrides
from backend.regression.series.history import enter, replay
from backend.regression.series.judge import judge_all
from backend.regression.terms import Direction, Point, SeriesKind, Verdict
from tests.backend.regression.judge_histories import points


def test_default_is_five_percent_and_three_runs():
    policy = Policy.resolve()
    assert (policy.min_change, policy.sustained_runs) == (0.05, 3)


def test_equal_policies_have_one_version_and_others_another():
    assert Policy().version == Policy.resolve().version
    assert Policy().version != Policy().with_values(min_change=0.06).version


def test_every_threshold_is_described_and_none_is_marked_changed_by_default():
    rows = Policy().describe()
    assert {r.name for r in rows} == set(Policy.__dataclass_fields__)
    assert all(r.title and r.text and r.low <= r.value <= r.high for r in rows)
    assert not any(r.overridden for r in rows)
    assert [r.name for r in Policy(min_change=0.1).describe() if r.overridden] == ["min_change"]


def test_later_overrides_win_and_scopes_are_patterns():
    overrides = parse_overrides(
        {
            "min_change": 0.08,
            "override": [
                {"suite": "moe", "min_change": 0.1},
                {"metric": "peak_*", "testbed": "h200-*", "min_change": 0.02, "sustained_runs": 2},
            ],
        }
    )

    def resolved(**names):
        return Policy.resolve(overrides, **names).min_change

    assert resolved(suite="gpt") == 0.08
    assert resolved(suite="moe") == 0.1
    assert resolved(suite="moe", metric="peak_reserved_bytes", testbed="h200-sxm") == 0.02
    assert resolved(suite="moe", metric="peak_reserved_bytes", testbed="cpu") == 0.1


def test_any_more_graph_breaks_or_host_syncs_are_past_the_gate():
    assert Policy.resolve(metric="host_syncs").exact_min_change == 0.0
    assert Policy.resolve(metric="graph_breaks").exact_min_change == 0.0
    assert Policy.resolve(metric="kernels").exact_min_change == 0.05


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"min_change": "5 %"}, r"policy.min_change is '5 %'; a number from 0.0003 to 1 is accepted"),
        ({"min_change": 3}, r"policy.min_change is 3; a number from 0.0003 to 1 is accepted"),
        ({"min_change": -0.1}, r"policy.min_change is -0.1; a number"),
        ({"sustained_runs": 2.5}, r"policy.sustained_runs is 2.5; a whole number from 1 to 20"),
        ({"sustained_runs": True}, r"policy.sustained_runs is True"),
        ({"minchange": 0.1}, r"policy.minchange is not a threshold; known: min_change,"),
        ({"override": {"suite": "x"}}, r"policy.override is .* a list of tables"),
        ({"override": [3]}, r"policy.override\[0\] is 3; a table"),
        ({"override": [{"suite": "moe"}]}, r"policy.override\[0\] changes nothing"),
        ({"override": [{"suite": 3, "alpha": 0.01}]}, r"policy.override\[0\].suite is 3"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_field_and_what_is_accepted(table, message):
    with pytest.raises(PolicyError, match=message):
        parse_overrides(table)


def test_more_points_a_week_ask_for_more_evidence():
    base = Policy()
    assert base.for_load(1000) == base
    assert base.for_load(1e6).evidence_regression > base.for_load(1e5).evidence_regression > base.evidence_regression
    assert base.with_values(false_alarms_per_week=100.0).for_load(1e5).evidence_regression == base.evidence_regression


@pytest.mark.parametrize("noise", ["quiet", "spikes", "alike"])
def test_a_quiet_project_is_told_of_one_regression_a_week_at_most(noise):
    """Two hundred series over five weeks of a hundred commits each, none of which ever changed."""
    weeks, series, points_a_week = 5, 200, 20_000
    rng = np.random.default_rng(11)
    residuals = rng.standard_normal((series, weeks * points_a_week // series))
    if noise == "spikes":
        residuals += 6 * (rng.random(residuals.shape) < 0.02)
    if noise == "alike":
        for run in range(1, residuals.shape[1]):
            residuals[:, run] += 0.4 * residuals[:, run - 1]
    policy = Policy().for_load(points_a_week)
    assert policy.evidence_regression == pytest.approx(10.0 + 3.5 * np.log(2**15 * 5e-5), abs=0.01)
    told = [
        event
        for of_one in 10.0 * np.exp(0.012 * residuals)
        for event in replay(
            enter([Point(run, "c", (float(value),)) for run, value in enumerate(of_one)], SeriesKind(Direction.LOWER)),
            policy,
        )
        if event.magnitude > 0
    ]
    assert len(told) <= weeks * policy.false_alarms_per_week


def test_the_smallest_regression_is_no_smaller_than_the_noise_that_every_series_is_believed_to_have():
    """A change of nothing would need no end of runs: comparing and judging divide by it."""
    with pytest.raises(PolicyError, match=r"min_change is 0; a number from 0\.0003 to 1 is accepted"):
        Policy().with_values(min_change=0)
    smallest = Policy(min_change=0.0003)
    judged = judge_all(points([10.0] * 20 + [12.0] * 5), SeriesKind(Direction.LOWER), smallest)
    assert judged[-1].verdict is Verdict.REGRESSION
    assert processes_needed(0.01, smallest) > 1000
