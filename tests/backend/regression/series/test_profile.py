from dataclasses import replace

import numpy as np
import pytest

from backend.regression.policy import Policy
from backend.regression.series.judge import judge_history
from backend.regression.series.lifecycle import accept_change, dismiss_change
from backend.regression.series.profile import mode_gap, profile
from backend.regression.series.state import Record, SeriesState
from backend.regression.terms import Direction, SeriesKind
from tests.backend.regression.judge_histories import points

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


@pytest.mark.parametrize(("runs", "needed"), [(0, 4), (1, 3), (3, 1), (4, 0)])
def test_a_short_history_says_how_many_more_runs_it_needs(runs, needed):
    state = state_of([10.0] * runs) if runs else SeriesState.new(LOWER)
    found = profile(state, Policy())
    assert (found.runs, found.needed_runs, found.noise is None) == (runs, needed, needed > 0)
    more = "1 more run of" if needed == 1 else f"{needed} more runs of"
    assert found.text.startswith(f"Insufficient: {more} this level") == (needed > 0)


@pytest.mark.parametrize(("runs", "bimodal", "needed"), [(19, None, 1), (20, False, 0)])
def test_two_modes_cannot_be_told_from_one_with_fewer_than_twenty_runs(runs, bimodal, needed):
    found = profile(state_of([10.0] * runs), Policy())
    assert (found.bimodal, found.needed_for_modes) == (bimodal, needed)


def test_runs_that_resemble_the_one_before_are_told_and_independent_ones_are_not():
    rng = np.random.default_rng(7)
    walk = [0.0]
    for step in rng.standard_normal(199):
        walk.append(0.9 * walk[-1] + step)
    alike = state_of([10.0 * (1 + 0.004 * value) for value in walk], noise=0.0)
    assert profile(alike, Policy()).autocorrelation > 0.5
    assert profile(state_of([10.0] * 200), Policy()).autocorrelation < 0.2


@pytest.mark.parametrize(("held", "needed"), [(1, 1), (2, 0)])
def test_a_counter_has_no_noise_and_needs_to_have_held_its_value_twice(held, needed):
    counter = SeriesKind(Direction.LOWER, exact=True)
    found = profile(judge_history(points([7.0] * held, processes=1), counter, Policy())[1], Policy())
    assert (found.needed_runs, found.noise, found.sustained_runs) == (needed, 0.0, 1)
    assert found.minimum_detectable_effect == (None if needed else Policy().exact_min_change)


def test_a_worker_that_is_being_calibrated_is_named_until_it_is_known():
    settled = state_of([10.0] * 30)
    for runs, waiting in ((2, [("w1", 1)]), (3, [])):
        joined = points([11.0] * runs, np.random.default_rng(3), 0.01, worker="w1", start=30)
        found = profile(judge_history(joined, LOWER, Policy(), settled)[1], Policy())
        assert [(it.worker, it.needed_runs) for it in found.calibrating] == waiting


@pytest.mark.parametrize(("false_alarms", "runs", "nats"), [(0, 3, 10.0), (1, 4, 12.0), (5, 8, 20.0), (6, 8, 20.0)])
def test_every_false_alarm_asks_for_one_more_run_and_two_more_nats_up_to_five(false_alarms, runs, nats):
    quiet = state_of([10.0] * 30)
    state = replace(quiet, record=Record(confirmed=6, disproved=false_alarms))
    found = profile(state, Policy())
    assert (found.sustained_runs, found.evidence_nats, found.extra_runs) == (runs, nats, runs - 3)
    assert found.precision == pytest.approx(1 - false_alarms / 6)
    assert ("it asks for" in found.text) == (false_alarms > 0)


def test_after_a_false_alarm_a_series_asks_for_one_more_run():
    alarmed = state_of([10.0] * 30 + [12.0] * 4, 0.005)
    later = points([12.0] * 20 + [14.0] * 6, np.random.default_rng(2), 0.005, start=34)
    for state, precision, first_red in (
        (dismiss_change(alarmed, 30), 0.0, 34 + 20 + 3),
        (accept_change(alarmed, 30), 1.0, 34 + 20 + 2),  # it was real, and expected: no false alarm
    ):
        assert profile(state, Policy()).precision == precision
        judged, _ = judge_history(later, LOWER, Policy(), state)
        assert next(j.position for j in judged if j.red) == first_red


def test_a_suspect_that_nobody_was_told_of_is_no_false_alarm():
    state = state_of([10.0] * 30 + [12.0] + [10.0] * 5, 0.005)
    found = profile(state, Policy())
    assert (found.withdrawn, found.disproved, found.sustained_runs) == (1, 0, 3)
