"""Many series watched in columns are, field by field, what their detectors make of each run by itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.regression.cost import log_costs, typical
from backend.regression.detector.codec import pack_detector
from backend.regression.detector.detector import Detector
from backend.regression.detector.watch import feed_quiet, runs_until_refit
from backend.regression.policy import Policy
from backend.regression.terms import Direction
from tests.backend.regression.judge_histories import POLICIES, any_history


def costs_of(seed, runs):
    logs = [typical(log_costs(point.values, Direction.LOWER)) for point in any_history(seed, runs)]
    return np.array(logs).astype(np.float32).astype(np.float64)


def told(changes):
    return [replace(change, fixed=tuple(ended.onset for ended in change.fixed)) for change in changes]


def run_by_run(costs, policy):
    """The detector after each run, and the changes."""
    detector, states, changes = Detector(assumed_noise=policy.prior_noise), [], []
    for place, x in enumerate(costs):
        changes += detector.feed(np.array([x]), np.array([place]), policy)
        states.append(pack_detector(detector))
    return states, changes


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1), width=st.sampled_from([1, 2, 7, 40, 500]))
def test_runs_of_many_series_in_columns_leave_each_detector_as_run_by_run_does(seed, width):
    chance = np.random.default_rng(seed)
    series = [
        (costs_of(int(chance.integers(2**32)), int(chance.integers(20, 300))), POLICIES[number % len(POLICIES)])
        for number in range(6)
    ]
    alone = [run_by_run(costs, policy) for costs, policy in series]
    detectors = [Detector(assumed_noise=policy.prior_noise) for _, policy in series]
    changes = [[] for _ in series]
    at = [0] * len(series)
    watched = 0
    while any(now < len(costs) for now, (costs, _) in zip(at, series, strict=True)):
        offers = [
            (detector, costs[now : now + width], np.arange(now, now + width), policy)
            for detector, now, (costs, policy) in zip(detectors, at, series, strict=True)
        ]
        for number, quiet in enumerate(feed_quiet(offers)):
            detector, costs, places, policy = offers[number]
            watched += quiet
            if quiet == len(costs):
                at[number] += quiet
            else:
                one = slice(quiet, quiet + 1)
                changes[number] += detector.feed(costs[one], places[one], policy)
                at[number] += quiet + 1
            if at[number]:
                assert pack_detector(detector) == alone[number][0][at[number] - 1]
    assert [told(of_one) for of_one in changes] == [told(of_one) for _, of_one in alone]
    assert watched, "some of the runs are quiet"


def test_most_runs_of_a_calm_series_are_watched_in_columns():
    costs = np.random.default_rng(1).normal(0, 0.005, 400).astype(np.float32).astype(np.float64)
    detector, policy, at, stepped = Detector(assumed_noise=0.015), Policy(), 0, 0
    while at < len(costs):
        (quiet,) = feed_quiet([(detector, costs[at:], np.arange(at, len(costs)), policy)])
        at += quiet
        if at < len(costs):
            detector.feed(costs[at : at + 1], np.array([at]), policy)
            stepped, at = stepped + 1, at + 1
    assert stepped < 0.1 * len(costs)


def test_a_detector_without_a_baseline_watches_nothing():
    detector, policy = Detector(assumed_noise=0.015), Policy()
    assert runs_until_refit(detector, policy) == 0
    assert feed_quiet([(detector, np.zeros(3), np.arange(3), policy)]) == [0]
    assert len(detector.segment) == 0


def test_nothing_to_watch_is_nothing_watched():
    assert feed_quiet([]) == []


@pytest.mark.parametrize("beyond", [3.0, -3.0])
def test_a_run_out_of_all_proportion_is_left_to_the_detector(beyond):
    policy = Policy()
    costs = np.append(np.random.default_rng(1).normal(0, 0.005, 23), beyond)
    detector = Detector(assumed_noise=0.015)
    detector.feed(costs[:20], np.arange(20), policy)
    assert feed_quiet([(detector, costs[20:], np.arange(20, 24), policy)]) == [3]
