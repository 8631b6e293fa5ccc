"""What a series can show: it promises no more than it keeps, and says when that is not enough."""

import numpy as np
import pytest

from backend.regression.detector.detector import Detector
from backend.regression.detector.power import CLEAR, LATE, SOON, is_unsteady, shown_by
from backend.regression.policy import Policy

POLICY = Policy()


def fed(x):
    detector = Detector(assumed_noise=POLICY.prior_noise)
    return detector, detector.feed(np.asarray(x, dtype=np.float64), np.arange(len(x)), POLICY)


def quiet(runs, noise, seed=0):
    return noise * np.random.default_rng(seed).standard_normal(runs)


@pytest.mark.parametrize(("noise", "runs"), [(0.06, 200), (0.12, 200), (0.06, 35), (0.12, 60)])
def test_a_change_of_the_size_it_sees_is_told_within_eight_runs_most_times(noise, runs):
    told = 0
    for seed in range(20):
        detector, _ = fed(quiet(runs, noise, seed))
        size = np.log1p(shown_by(detector.model, POLICY, SOON))
        after = size + quiet(SOON, noise, 100 + seed)
        told += any(change.past_threshold for change in detector.feed(after, np.arange(runs, runs + SOON), POLICY))
    assert told >= 14


@pytest.mark.parametrize(("noise", "unsteady"), [(0.002, False), (0.02, False), (0.06, True), (0.15, True)])
def test_noise_makes_a_series_unsteady(noise, unsteady):
    detector, _ = fed(quiet(150, noise))
    assert is_unsteady(detector.model, POLICY) is unsteady


def test_a_larger_gate_makes_the_same_series_steady():
    detector, _ = fed(quiet(150, 0.06))
    assert not is_unsteady(detector.model, Policy(min_change=0.2))


def test_youth_alone_makes_no_series_unsteady():
    for seed in range(20):
        detector, _ = fed(quiet(4, 0.01, seed))
        assert not is_unsteady(detector.model, POLICY)


def test_a_young_series_in_which_a_clear_step_would_not_show_soon_is_unsteady():
    detector, _ = fed(quiet(8, 0.05, 2))
    assert shown_by(detector.model, POLICY, LATE, LATE) > 0
    assert shown_by(detector.model, POLICY, SOON) > CLEAR * POLICY.min_change
    assert is_unsteady(detector.model, POLICY)


def test_more_runs_show_less():
    detector, _ = fed(quiet(100, 0.02))
    shown = [shown_by(detector.model, POLICY, runs) for runs in (3, 8, 30, 100)]
    assert shown == sorted(shown, reverse=True)
