import numpy as np
import pytest
from judge_histories import points

from backend.regression.judge import SeriesState, judge_history
from backend.regression.lifecycle import dismiss_change
from backend.regression.policy import Policy
from backend.regression.profile import mode_gap, profile
from backend.regression.terms import Direction, SeriesKind

LOWER = SeriesKind(Direction.LOWER)


def state_of(levels, noise=0.01, seed=0):
    return judge_history(points(levels, np.random.default_rng(seed), noise), LOWER, Policy())[1]


def test_the_noise_and_what_can_be_seen_in_it_are_told():
    quiet, noisy = profile(state_of([10.0] * 80), Policy()), profile(state_of([10.0] * 80, 0.05), Policy())
    assert quiet.noise == pytest.approx(0.01, rel=0.4) and noisy.noise == pytest.approx(0.05, rel=0.4)
    assert quiet.minimum_detectable_effect < noisy.minimum_detectable_effect
    assert quiet.runs_to_show_min_change == 3 < noisy.runs_to_show_min_change


def test_two_modes_are_recognised_and_one_is_not():
    rng = np.random.default_rng(1)
    one = rng.standard_normal(200) * 0.02
    assert mode_gap(one) == 0.0
    assert mode_gap(one + 0.2 * (rng.random(200) < 0.4)) == pytest.approx(0.2, abs=0.02)


def test_a_series_without_a_baseline_has_no_profile():
    assert profile(SeriesState.new(LOWER), Policy()) is None


def test_after_a_false_alarm_a_series_asks_for_one_more_run():
    state = dismiss_change(state_of([10.0] * 30 + [12.0] * 4, 0.005), 30)
    assert profile(state, Policy()).precision == 0.0
    later = points([12.0] * 20 + [14.0] * 6, np.random.default_rng(2), 0.005, start=34)
    judged, _ = judge_history(later, LOWER, Policy(), state)
    assert next(j.position for j in judged if j.red) == 34 + 20 + 3
