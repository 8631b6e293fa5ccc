"""A step in plain sight is told within eight runs whatever came before it; what only looks like one is not."""

import numpy as np
import pytest

from backend.regression.detector.detector import Detector
from backend.regression.detector.plain_sight import in_plain_sight, plain_step, second_level, second_step
from backend.regression.policy import Policy
from backend.regression.series.detect import detect_record

POLICY = Policy()
NOISE = 0.003


def series(*levels, noise=NOISE, seed=0):
    """Levels as (value, runs), with noise."""
    values = np.concatenate([np.full(runs, float(value)) for value, runs in levels])
    return values * np.exp(noise * np.random.default_rng(seed).standard_normal(len(values)))


def told(values):
    """Onset and run of detection of every regression that is told."""
    record = {"series_id": "s", "direction": "lower_is_better", "values": values.tolist()}
    return [(found["index"], found["detected_at"]) for found in detect_record(record)["regressions"]]


def step(values):
    """What is seen at the last run."""
    y = np.log(values)
    return plain_step(y, np.arange(len(y)), POLICY)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_between_levels_that_are_a_few_runs_old_is_told(seed):
    values = series((8.16, 9), (8.30, 3), (24.6, 3), (30.1, 11), (33.5, 18), seed=seed)
    found = told(values)
    assert [onset for onset, _ in found] == [12, 15, 26]
    assert all(detected - onset <= 4 for onset, detected in found)


@pytest.mark.parametrize("runs", [3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(5))
def test_a_step_that_comes_before_the_one_ahead_of_it_is_accepted_is_told(runs, seed):
    found = told(series((10, 12), (12, runs), (13.2, 20), seed=seed))
    assert [onset for onset, _ in found] == [12, 12 + runs]
    assert all(detected - onset <= 7 for onset, detected in found)


@pytest.mark.parametrize("fixed_runs", [2, 10])
@pytest.mark.parametrize("seed", range(5))
def test_a_short_regression_is_over_after_as_many_runs_as_the_policy_says(fixed_runs, seed):
    policy = Policy(fixed_runs=fixed_runs)
    for up in (3, 4, 12):
        y = np.log(series((10, 30), (12, up), (10, 20), seed=seed))
        changes = Detector(assumed_noise=policy.prior_noise).feed(y, np.arange(len(y)), policy)
        (end,) = [change for change in changes if change.fixed]
        assert end.onset == 30 + up and end.detected - end.onset + 1 >= fixed_runs


@pytest.mark.parametrize("sustained_runs", [1, 2, 5, 12])
def test_a_second_step_needs_as_many_runs_as_the_policy_says(sustained_runs):
    policy = Policy(sustained_runs=sustained_runs)
    y = np.log(series((12, sustained_runs), (14, 30)))
    accepted = [n for n in range(1, len(y)) if second_step(y[:n], np.arange(n), policy, opened=True)]
    if 2 * sustained_runs > 20:
        assert accepted == []
    else:
        assert accepted[0] == sustained_runs + max(5, sustained_runs) and accepted[-1] == 20


def test_the_runs_after_a_change_are_of_two_levels_where_one_follows_the_other_beyond_their_noise():
    def of(values):
        return second_level(np.log(np.array(values)), POLICY)

    assert of([10, 10.01, 10.02, 12, 12.01]) == 3
    assert of([10, 10.01, 12, 12.01, 12.02]) is None  # two runs are no level
    assert of([10, 12, 10.01, 10.02, 12.01, 12]) is None  # a going to and fro
    assert of([10, 10.8, 10.3, 11.5, 12.1, 11.7]) is None  # noise
    assert of([10, 10.01, 10.02, 10.2, 10.21, 10.22]) is None  # below what counts
    assert of([10.0] * 10 + [12.0] * 11) is None  # no longer young


@pytest.mark.parametrize("seed", range(5))
def test_two_slowdowns_of_a_young_series_are_two(seed):
    found = told(series((10, 6), (11.5, 6), (13, 20), seed=seed))
    assert [onset for onset, _ in found] == [6, 12]
    assert all(detected - onset <= 8 for onset, detected in found)


@pytest.mark.parametrize("factor", [1.2, 3, 30, 1000])
@pytest.mark.parametrize("before", [6, 30, 200])
def test_a_step_of_any_size_is_told_within_eight_runs(factor, before):
    ((onset, detected),) = told(series((1, before), (factor, 20)))
    assert (onset, detected <= before + 7) == (before, True)


def test_a_step_after_chaos_is_told_once_five_runs_were_quiet():
    chaos = series((10, 2), (40, 1), (9, 3), (90, 2), (10, 2), (30, 4), (10, 10), (12, 40))
    assert [(onset, detected <= 31) for onset, detected in told(chaos)] == [(24, True)]


def test_a_return_to_a_level_left_long_ago_is_told():
    assert [onset for onset, _ in told(series((10, 40), (8, 110), (10, 30)))] == [150]


def test_more_noise_after_a_step_than_before_hides_nothing():
    values = np.concatenate((series((10, 30), noise=0.002), series((12, 30), noise=0.02, seed=1)))
    ((onset, detected),) = told(values)
    assert (onset, detected <= 37) == (30, True)


@pytest.mark.parametrize(("after", "seen"), [(1.06, True), (1.04, False), (0.9, True), (0.97, False)])
def test_what_counts_is_seen_in_either_direction(after, seen):
    assert (step(series((1, 20), (after, 5))) is not None) is seen


@pytest.mark.parametrize(("runs", "seen"), [(4, False), (5, True)])
def test_five_runs_on_each_side_are_needed(runs, seen):
    assert (step(series((1, 20), (1.2, runs))) is not None) is seen
    assert (step(series((1, runs), (1.2, 5))) is not None) is seen


@pytest.mark.parametrize(("after", "seen"), [(5, False), (8, True)])
def test_one_run_that_looks_as_before_is_forgiven_among_eight(after, seen):
    values = series((1, 20), (1.2, after))
    values[22] = 1.0
    assert (step(values) is not None) is seen


def test_a_step_is_seen_past_the_noise_alone():
    assert step(series((1, 20), (1.2, 5), noise=0.003)) is not None
    assert all(step(series((1, 20), (1.2, 5), noise=0.08, seed=seed)) is None for seed in range(20))


def test_the_end_of_a_dip_is_no_regression_and_a_level_held_for_long_is_no_dip():
    assert step(series((10, 30), (8, 8), (10, 5))) is None
    assert step(series((10, 30), (8, 20), (10, 5))) is not None


def test_the_end_of_a_hump_is_no_gain_and_a_level_held_for_long_is_no_hump():
    assert step(series((10, 30), (13, 8), (10, 5))) is None
    assert step(series((10, 30), (13, 20), (10, 5))) is not None


def test_three_outliers_of_five_runs_are_no_step():
    values = series((1, 30), noise=0.002)
    values[[25, 27, 28]] = 1.2
    assert step(values) is None


def test_many_series_are_watched_as_each_by_itself():
    chance = np.random.default_rng(3)
    policies = [Policy(min_change=change) for change in chance.choice([0.02, 0.05, 0.2], 60)]
    histories = []
    for length in chance.integers(1, 40, 60):
        walk = np.where(chance.random(length) < 0.1, chance.normal(0, 0.3, length), 0).cumsum()
        histories.append(walk + chance.normal(0, 0.01, length))
    segments = [history[:-5] for history in histories]
    runs = np.array([np.resize(history[-5:], 5) for history in histories])
    together = in_plain_sight(segments, runs, policies)
    alone = [
        [in_plain_sight([np.append(segment, of_one[:t])], of_one[t : t + 1][None], [policy])[0, 0] for t in range(5)]
        for segment, of_one, policy in zip(segments, runs, policies, strict=True)
    ]
    assert together.tolist() == alone
    assert {True, False} == set(together.ravel().tolist())
