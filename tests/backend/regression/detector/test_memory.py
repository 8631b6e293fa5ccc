"""What the detector keeps of earlier levels, and when it looks and refits, each on both sides of its limit."""

import numpy as np
import pytest

from backend.regression.detector import detector as rules
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import NOTICE, OPEN_ONES
from backend.regression.policy import Policy

POLICY = Policy()


def noise(n, seed=0, scale=0.005):
    return scale * np.random.default_rng(seed).standard_normal(n)


def fed(x):
    detector = Detector(assumed_noise=POLICY.prior_noise)
    return detector, detector.feed(x, np.arange(len(x)), POLICY)


def stairs(steps, held=12, size=0.2):
    """So many worsenings, each held for as many runs."""
    return noise(held * (steps + 1)) + size * np.repeat(np.arange(steps + 1), held)


@pytest.mark.parametrize(("steps", "kept"), [(rules.LEVELS - 1, rules.LEVELS - 1), (rules.LEVELS + 1, rules.LEVELS)])
def test_the_newest_levels_are_remembered(steps, kept):
    detector, found = fed(stairs(steps))
    assert len(found) == steps
    assert len(detector.levels) == kept
    assert detector.levels[-1] == pytest.approx(0.2 * (steps - 1), abs=0.01)


@pytest.mark.parametrize(("before", "kept"), [(30, 30), (rules.SHELF + 20, rules.SHELF)])
def test_the_newest_runs_before_a_regression_are_kept_for_the_day_it_is_fixed(before, kept):
    detector, _ = fed(np.concatenate((noise(before), 0.2 + noise(10, 1))))
    (opened,) = detector.opened
    assert len(opened.runs) == len(opened.places) == kept
    assert opened.places[-1] == before - 1


@pytest.mark.parametrize(("before", "carried"), [(100, 100), (rules.CARRIED + 30, rules.CARRIED)])
def test_the_newest_residuals_of_earlier_levels_are_carried_over(before, carried):
    detector, _ = fed(np.concatenate((noise(before), 0.2 + noise(10, 1))))
    assert len(detector.carried) == carried


@pytest.mark.parametrize(("high", "looked"), [(NOTICE - 1, False), (NOTICE, True)])
def test_a_close_look_is_taken_once_a_cusum_has_risen_to_the_notice(high, looked):
    detector, _ = fed(noise(100))
    detector.next_look, detector.notice = 0, NOTICE
    detector.started = np.full_like(detector.started, 90)
    detector.cusum = np.zeros_like(detector.cusum)
    level = detector.model.level
    gain = rules.gains(detector.model, np.array([level]), rules.BOTH_WAYS)[:, 0]
    detector.cusum[5] = high - gain[5]
    detector.feed(np.array([level]), np.array([100]), POLICY)
    assert (detector.next_look > 101) is looked


@pytest.mark.parametrize(("ago", "refitted"), [(rules.SUSPECT_RUNS - 1, False), (rules.SUSPECT_RUNS + 1, True)])
def test_the_model_is_left_alone_while_the_newest_runs_look_like_a_change(ago, refitted):
    detector, _ = fed(noise(100))
    detector.cusum = np.zeros_like(detector.cusum)
    detector.cusum[5] = NOTICE
    detector.started = np.full_like(detector.started, 100 - ago)
    detector.fitted = 50
    detector._refit_unless_suspect(POLICY)
    assert (detector.fitted == 100) is refitted


@pytest.mark.parametrize(("back_to", "borrowed"), [(0.010, True), (0.025, False)])
def test_runs_from_before_a_regression_are_the_baseline_again_where_the_level_is_really_back(back_to, borrowed):
    detector, _ = fed(np.concatenate((noise(40), 0.2 + noise(20, 1), back_to + noise(10, 2))))
    assert not detector.opened
    assert (detector.borrowed == 40) is borrowed


@pytest.mark.parametrize(("steps", "ended"), [(8, 8), (9, 9), (OPEN_ONES, OPEN_ONES), (OPEN_ONES + 1, OPEN_ONES)])
def test_all_regressions_that_nobody_mended_end_when_the_level_is_back(steps, ended):
    _, found = fed(np.concatenate((stairs(steps, size=0.3), noise(12, 1))))
    assert len([change for change in found if change.past_threshold and change.size > 0]) == steps
    assert sum(len(change.fixed) for change in found) == ended
