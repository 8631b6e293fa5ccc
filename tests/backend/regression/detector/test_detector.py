"""Each rule of the close look, on both sides of its boundary."""

import math
from dataclasses import replace

import numpy as np
import pytest

from backend.regression.detector import evidence
from backend.regression.detector.codec import pack_detector, unpack_detector
from backend.regression.detector.density import CELLS_PER_SD, REACH, fit
from backend.regression.detector.detector import Detector
from backend.regression.detector.evidence import (
    SHIFTS,
    calm,
    demanded,
    far_beyond,
    gains,
    little_known,
    locate,
    seen_before,
    unruly,
    without_best,
)
from backend.regression.policy import Policy

NONE = np.empty(0)
NOISE = 0.01
POLICY = Policy()


def quiet(n, seed=0, noise=NOISE):
    """Noise that is exactly as wide as said, whatever the seed."""
    e = np.random.default_rng(seed).standard_normal(n)
    return noise * (e - np.median(e)) / e.std()


def model_of(y, noise=NOISE):
    return fit(y, NONE, 0.0, noise)


MODEL = model_of(quiet(200))


def fed(x, policy=POLICY, replicated=False):
    """The detector after a history, and what it accepted."""
    detector = Detector(assumed_noise=policy.prior_noise)
    detector.replicated = replicated
    return detector, detector.feed(np.asarray(x, dtype=np.float64), np.arange(len(x)), policy)


def told_worse(x, policy=POLICY):
    return [change for change in fed(x, policy)[1] if change.past_threshold and change.size > 0]


# ---- what is demanded of the evidence


@pytest.mark.parametrize(
    ("length", "share"),
    [(3, 0.8), (8, 0.8), (20, 0.95), (32, 1.1), (300, 1.1)],
)
def test_few_loud_runs_need_less_evidence_than_many_faint_ones(length, share):
    uncorrelated = fit(np.tile([0.01, -0.01], 200), NONE, 0.0, NOISE)
    assert uncorrelated.correlation == 0.0
    assert demanded(1, length, uncorrelated, POLICY) == pytest.approx(10 * share)


@pytest.mark.parametrize(("correlation", "less"), [(0.0, True), (2 * evidence.CORRELATED, False)])
def test_few_runs_of_an_autocorrelated_series_need_what_many_need(correlation, less):
    def of(length):
        return demanded(1, length, with_(correlation=correlation), POLICY)

    assert (of(3) < of(300)) is less


@pytest.mark.parametrize(("noise", "factor"), [(1.59, 1.0), (1.61, 1.61 / 1.6), (2.4, 1.5), (3.3, 2.0), (9.0, 2.0)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_series_much_noisier_than_the_smallest_regression_must_show_more(noise, factor, sign):
    calm_series, wild = with_(scale=0.01), with_(scale=noise * math.log1p(POLICY.min_change))
    assert demanded(sign, 20, wild, POLICY) == pytest.approx(factor * demanded(sign, 20, calm_series, POLICY))


def with_(**changed):
    return replace(MODEL, bands={}, **{"correlation": 0.0, **changed})


# ---- how far evidence is trusted


@pytest.mark.parametrize(("spread", "trusted"), [(1.0, True), (3.0, False)])
def test_a_block_wilder_than_its_reference_is_unruly(spread, trusted):
    assert (unruly(0.1 + quiet(40, 1, spread * NOISE), MODEL) < 1.3) is trusted


def test_a_single_spike_does_not_make_a_block_unruly():
    block = 0.1 + quiet(40, 1)
    spiked = block.copy()
    spiked[7] += 1.0
    assert unruly(spiked, MODEL) < 1.25 * unruly(block, MODEL)


@pytest.mark.parametrize(("spread", "calmed"), [(1.2, 1.0), (3.0, 0.5)])
def test_evidence_after_wild_runs_is_worth_less(spread, calmed):
    assert calm(quiet(30, 2, spread * NOISE), MODEL) <= calmed
    assert (calm(quiet(30, 2, spread * NOISE), MODEL) == 1.0) is (calmed == 1.0)


def test_too_few_runs_say_nothing_of_calm():
    wild = quiet(evidence.LATE_RUNS // 2, 2, 5 * NOISE)
    assert calm(wild[:-1], MODEL) == 1.0
    assert calm(wild, MODEL) < 1.0


@pytest.mark.parametrize(("size", "refused"), [(0.059, True), (0.061, False)])
def test_a_change_must_exceed_earlier_excursions_of_its_length_by_a_fifth(size, refused):
    y = np.zeros(60)
    y[20:25] = 0.05
    model = with_(level=0.0, scale=0.02)
    assert seen_before(np.concatenate((y, np.full(5, size))), 60, size, model) is refused
    assert not seen_before(np.concatenate((y[:4], np.full(5, size))), 4, size, model)


@pytest.mark.parametrize(
    ("onset", "sds", "nats", "refused"),
    [(29, 4.9, 19.9, True), (30, 4.9, 19.9, False), (29, 5.1, 19.9, False), (29, 4.9, 20.1, False)],
)
def test_after_a_short_reference_what_is_not_far_off_needs_twice_the_proof(onset, sds, nats, refused):
    assert little_known(onset, sds * MODEL.scale, nats, MODEL, POLICY) is refused


@pytest.mark.parametrize(("rest", "enough"), [(2.6, True), (2.4, False)])
def test_evidence_must_remain_without_the_two_clearest_runs(rest, enough):
    runs = np.array([20.0, rest, 20.0, rest])
    assert without_best(runs, float(runs.sum()), POLICY) is enough


@pytest.mark.parametrize(("size", "accepted"), [(0.12, False), (0.16, True)])
def test_a_short_history_accepts_on_its_limit_only_what_is_three_times_the_threshold(size, accepted):
    y = np.concatenate((quiet(8, 3, 0.002), size + quiet(3, 4, 0.002)))
    assert far_beyond(y, 8, 1, model_of(y[:8], 0.002), 1.0, POLICY) is accepted


@pytest.mark.parametrize(("replicated", "found"), [(True, 1), (False, 0)])
def test_only_runs_of_several_processes_are_believed_after_so_few(replicated, found):
    x = np.concatenate((quiet(4, 5, 0.02), 0.4 + quiet(3, 6, 0.02)))
    assert len(fed(x, replicated=replicated)[1]) == found


# ---- likelihood and place


def test_a_run_beyond_the_reach_speaks_for_the_two_sizes_just_short_of_it():
    cell = MODEL.scale / CELLS_PER_SD
    shift = np.rint(SHIFTS[:, 0] / cell)
    inside, beyond = REACH * cell, (REACH + 40) * cell
    at_level = int(MODEL.density[REACH] - MODEL.density[-1])
    short = np.flatnonzero(shift <= REACH + 40)[-2:]
    gain = gains(MODEL, MODEL.level + np.array([inside, beyond]), SHIFTS)
    assert gain[short, 1].tolist() == [at_level, at_level]
    others = np.setdiff1d(np.flatnonzero(shift <= REACH + 40), short)
    assert (gain[others, 1] < at_level).all()


@pytest.mark.parametrize("onset", [4, 11])
def test_the_onset_is_where_the_posterior_is_and_its_range_contains_it(onset):
    weighed = np.full((2, 20), -30.0)
    weighed[1, onset], weighed[1, onset + 1] = 10.0, 8.0
    place, first, last = locate(weighed, 100)
    assert place == 100 + onset and first <= place <= last <= place + 1


# ---- the conditions on a block


@pytest.mark.parametrize(("runs", "found"), [(2, 0), (3, 1)])
def test_a_block_needs_the_sustained_number_of_runs(runs, found):
    assert len(told_worse(np.concatenate((quiet(60), 0.3 + quiet(runs, 1))))) == found


@pytest.mark.parametrize(("tail", "found"), [([0.3, 0.3, 0.0], 0), ([0.3, 0.3, 0.3], 1)])
def test_the_newest_runs_must_agree(tail, found):
    assert len(told_worse(np.concatenate((quiet(60), np.array(tail) + quiet(3, 1, 0.002))))) == found


@pytest.mark.parametrize(("size", "told"), [(0.045, False), (0.055, True)])
def test_a_clear_change_below_the_threshold_is_accepted_and_not_told(size, told):
    _, changes = fed(np.concatenate((quiet(80, 1, 0.002), math.log1p(size) + quiet(30, 2, 0.002))))
    assert [(c.past_threshold, c.size > 0) for c in changes] == [(told, True)]


@pytest.mark.parametrize(("size", "told"), [(-0.045, False), (-0.055, True)])
def test_a_gain_moves_the_level_and_is_told_from_the_threshold_on(size, told):
    _, changes = fed(np.concatenate((quiet(80, 1, 0.002), math.log1p(size) + quiet(30, 2, 0.002))))
    assert [(c.past_threshold, c.size < 0) for c in changes] == [(told, True)]


# ---- the first runs, memory


@pytest.mark.parametrize(("gain", "kept"), [(0.04, 3), (0.5, 1)])
def test_a_gain_among_the_first_runs_restarts_the_level(gain, kept):
    detector, _ = fed([0.0, 0.0, -gain])
    assert len(detector.segment) == kept


@pytest.mark.parametrize(("runs", "kept"), [(139, 139), (140, 100)])
def test_the_oldest_runs_are_dropped_forty_at_a_time(runs, kept):
    detector, _ = fed(quiet(runs, 2), Policy(memory_runs=100))
    assert len(detector.segment) == kept


@pytest.mark.parametrize(("back_to", "fixed"), [(0.0, True), (0.2, False)])
def test_a_level_that_is_back_ends_the_regression_and_half_way_does_not(back_to, fixed):
    x = np.concatenate((quiet(60), 0.3 + quiet(20, 1), back_to + quiet(2, 2, 0.002)))
    detector, changes = fed(x)
    assert bool(changes[-1].fixed) is fixed and bool(detector.opened) is not fixed


def test_runs_from_before_a_fixed_regression_do_not_make_the_level_older():
    detector, _ = fed(np.concatenate((quiet(60), 0.3 + quiet(20, 1), quiet(6, 2))))
    assert detector.borrowed == 40 and len(detector.segment) == 46


def test_a_stored_state_that_does_not_say_what_was_borrowed_is_read():
    detector, _ = fed(np.concatenate((quiet(60), 0.3 + quiet(20, 1), quiet(6, 2))))
    stored = pack_detector(detector)
    assert unpack_detector(stored).borrowed == 40
    del stored["borrowed"]
    assert unpack_detector(stored).borrowed == 0


@pytest.mark.parametrize("lasted", [5, 10, 20, 30])
def test_losses_of_8_percent_in_noise_of_3_percent_are_over_60_runs_after_their_end(lasted):
    ended = 0
    for seed in range(25):
        noise = 0.03 * np.random.default_rng([seed, lasted]).standard_normal(100 + lasted + 60)
        noise[100 : 100 + lasted] += np.log1p(0.08)
        detector = Detector()
        changes = detector.feed(noise, np.arange(len(noise)), POLICY)
        ended += any(change.past_threshold and change.size > 0 for change in changes)
        assert not detector.opened, seed
    assert ended >= {5: 1, 10: 12, 20: 20, 30: 20}[lasted]
