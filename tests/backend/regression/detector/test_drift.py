"""Drift: what its two questions need, each on both sides of where they stand."""

import math

import numpy as np
import pytest

from backend.regression.detector.detector import Detector
from backend.regression.detector.drift import drifted, worth_asking
from backend.regression.detector.evidence import low_quarter
from backend.regression.policy import Policy
from tests.backend.regression.detector.test_detector import POLICY, model_of, quiet, with_


def creeping(total, noise=0.004, before=40, length=120, after=20):
    ramp = np.concatenate((np.zeros(before), np.linspace(0, total, length), np.full(after, total)))
    return ramp + quiet(len(ramp), 3, noise)


def drifts(x):
    """The drift that the newest runs show, where CUSUMs would have been first."""
    detector = Detector(assumed_noise=POLICY.prior_noise, segment=x, model=model_of(x[: len(x) // 2]))
    return drifted(detector, x, np.arange(len(x)), POLICY)


@pytest.mark.parametrize(("total", "found"), [(0.045, False), (0.055, True)])
def test_a_drift_is_told_once_it_has_passed_the_gate(total, found):
    assert (drifts(creeping(total)) is not None) is found


@pytest.mark.parametrize(("noise", "found"), [(0.01, True), (0.08, True), (0.12, False)])
def test_a_drift_must_be_clear_of_the_noise(noise, found):
    assert (drifts(creeping(0.08, noise)) is not None) is found


@pytest.mark.parametrize(("runs", "found"), [(54, False), (55, True)])
def test_a_drift_needs_its_first_and_its_newest_runs(runs, found):
    x = np.concatenate((quiet(30, 1), 0.2 + quiet(25, 2)))[-runs:]
    assert (drifts(x) is not None) is found


@pytest.mark.parametrize(("low", "found"), [(0.0, False), (0.5, True)])
def test_a_slow_state_that_is_met_more_often_is_no_drift(low, found):
    rng = np.random.default_rng(5)
    mostly_fast = 0.5 * (rng.random(100) < 0.2)
    mostly_slow = np.where(rng.random(60) < 0.65, 0.5, low)
    x = np.concatenate((mostly_fast, mostly_slow)) + quiet(160, 6, 0.01)
    assert (drifts(x) is not None) is found
    assert (low_quarter(mostly_slow) > 0) is found


@pytest.mark.parametrize(("noise", "found"), [(0.999, True), (1.001, False)])
def test_the_noise_of_a_drift_is_at_least_four_tenths_of_the_spread(noise, found):
    """Neighbours that hardly differ: what is demanded of the loss rests on the spread alone."""
    y = np.concatenate((np.zeros(30), np.linspace(0, 0.2, 60), np.full(25, 0.2)))
    limit = 0.2 / (POLICY.drift_z * 0.4 * math.sqrt(1.57 * (1 / 25 + 1 / 30)))
    detector = Detector(segment=y, model=with_(level=0.0, scale=noise * limit, spread=1.0))
    assert (drifted(detector, y, np.arange(len(y)), POLICY) is not None) is found


def faint(runs, rise, noise=0.08):
    """A ramp in noise that the newest runs alone do not rise out of."""
    return np.linspace(0, rise, runs) + quiet(runs, 11, noise)


def sloping(x, policy=POLICY):
    detector = Detector(assumed_noise=policy.prior_noise, segment=x, model=model_of(x, 0.08))
    return drifted(detector, x, np.arange(len(x)), policy)


@pytest.mark.parametrize(("rise", "found"), [(0.0, False), (0.07, False), (0.16, True)])
def test_a_slope_over_all_runs_is_told_where_it_is_more_than_chance(rise, found):
    change = sloping(faint(200, rise))
    assert (change is not None) is found
    assert change is None or (change.drift and change.past_threshold)


@pytest.mark.parametrize(("runs", "found"), [(120, False), (139, False), (140, True), (141, False)])
def test_a_slope_is_looked_for_every_twenty_runs_from_a_hundred_and_twenty_eight_on(runs, found):
    assert (sloping(faint(runs, 0.3)) is not None) is found


@pytest.mark.parametrize(("drift_z", "found"), [(8.0, True), (12.0, False)])
def test_a_policy_that_asks_more_of_a_drift_asks_more_of_a_slope(drift_z, found):
    assert (sloping(faint(200, 0.16), Policy(drift_z=drift_z)) is not None) is found


def test_which_lengths_are_worth_asking_about_does_not_depend_on_what_came_after():
    x = faint(200, 0.2)
    lengths = np.arange(5, 201, 5)
    together = worth_asking(x, lengths, 0.05, POLICY)
    alone = [n for n in lengths.tolist() if worth_asking(x[:n], np.array([n]), 0.05, POLICY)]
    assert together == alone
    assert 0 < len(together) < len(lengths)


def test_a_line_without_any_noise_is_a_drift_like_another():
    exact = np.repeat(np.arange(20) / 64, 8)  # sums of powers of two: not even rounding leaves anything over
    assert sloping(exact) is not None
