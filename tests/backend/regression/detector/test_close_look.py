"""When the detector looks again, refits its model, and takes back a baseline: both sides of each choice."""

from dataclasses import replace

import numpy as np
import pytest

from backend.regression.detector.close_look import _settle, look, may_be_over, over_by_now
from backend.regression.detector.density import NAT
from backend.regression.detector.detector import BOTH_WAYS, PATIENCE, SUSPECT_RUNS, Detector
from backend.regression.detector.evidence import gains
from backend.regression.detector.memory import NOTICE
from backend.regression.policy import Policy

NOISE = 0.01
POLICY = Policy()


def quiet(n, seed=0, noise=NOISE):
    """Noise that is exactly as wide as said, whatever the seed."""
    e = np.random.default_rng(seed).standard_normal(n)
    return noise * (e - np.median(e)) / e.std()


def fed(x):
    detector = Detector(assumed_noise=POLICY.prior_noise)
    return detector, detector.feed(np.asarray(x, dtype=np.float64), np.arange(len(x)), POLICY)


def refused():
    """A detector that has just looked at a bump and refused, and how many nats were missing."""
    detector, _ = fed(quiet(60))
    for x in 0.02 + quiet(12, 5):
        before = detector.next_look
        detector.feed(np.array([x]), np.array([len(detector.segment)]), POLICY)
        if detector.next_look != before and detector.notice > NOTICE:
            break
    began = int(detector.started[detector.cusum.argmax()])
    _, missing = look(detector, detector.segment, detector.places, began, 1, POLICY)
    return detector, missing


@pytest.mark.parametrize(("short", "looks"), [(1, False), (0, True)])
def test_after_a_refusal_the_evidence_must_rise_by_a_share_of_what_was_missing(short, looks):
    detector, missing = refused()
    assert missing > 0
    wanted = int(detector.cusum.max()) + int(PATIENCE * NAT * missing)
    x = np.array([0.02])
    bank = int(detector.cusum.argmax())
    detector.cusum[:] = 0
    detector.cusum[bank] = wanted - short - int(gains(detector.model, x, BOTH_WAYS)[bank, 0])
    detector.next_look = before = 0
    detector.feed(x, np.array([len(detector.segment)]), POLICY)
    assert (detector.next_look != before) is looks


@pytest.mark.parametrize(("ago", "refitted"), [(SUSPECT_RUNS, False), (SUSPECT_RUNS + 1, True)])
def test_the_model_is_not_refitted_on_the_first_runs_of_what_looks_like_a_change(ago, refitted):
    detector, _ = fed(quiet(60))
    n, detector.fitted = len(detector.segment), 50
    detector.cusum[0], detector.started[0] = NOTICE, n - ago
    detector._refit_unless_suspect(POLICY)
    assert (detector.fitted == n) is refitted
    assert detector.next_fit > n


@pytest.mark.parametrize(("suspicion", "refitted"), [(NOTICE - 1, True), (NOTICE, False)])
def test_only_what_is_suspect_puts_a_refit_off(suspicion, refitted):
    detector, _ = fed(quiet(60))
    n, detector.fitted = len(detector.segment), 50
    detector.cusum[:], detector.started[:] = 0, n - 1
    detector.cusum[0] = suspicion
    detector._refit_unless_suspect(POLICY)
    assert (detector.fitted == n) is refitted


REGRESSED = np.concatenate((quiet(60), 0.3 + quiet(20, 1)))


@pytest.mark.parametrize(
    ("back_to", "fixed", "earlier_runs"),
    [(0.0, True, True), (0.03, True, False), (0.1, False, False)],
)
def test_a_fix_brings_the_earlier_runs_back_only_where_the_level_is_theirs(back_to, fixed, earlier_runs):
    """0.03 is under the gate, so people are told that it is fixed; but it is another level than before."""
    detector, changes = fed(np.concatenate((REGRESSED, back_to + quiet(8, 2, 0.002))))
    assert bool(changes[-1].fixed) is fixed
    assert (detector.borrowed > 0) is earlier_runs


@pytest.mark.parametrize(("drift", "earlier_runs"), [(False, True), (True, False)])
def test_the_runs_before_a_drift_were_drifting_and_are_no_baseline(drift, earlier_runs):
    detector, _ = fed(REGRESSED)
    detector.opened = tuple(replace(opened, drift=drift) for opened in detector.opened)
    back = quiet(8, 2, 0.002)
    changes = detector.feed(back, np.arange(len(REGRESSED), len(REGRESSED) + len(back)), POLICY)
    assert changes[-1].fixed
    assert (detector.borrowed > 0) is earlier_runs


def lost(noise, size, held, after, seed):
    """A hundred runs, a loss that holds for some, and runs as before."""
    x = noise * np.random.default_rng(seed).standard_normal(100 + held + after)
    x[100 : 100 + held] += np.log1p(size)
    return x


@pytest.mark.parametrize("held", [8, 15, 30])
def test_a_loss_in_noise_is_over_within_sixty_runs_of_its_end(held):
    detectors = [fed(lost(0.03, 0.08, held, 0, seed))[0] for seed in range(12)]
    opened = [(seed, detector) for seed, detector in enumerate(detectors) if detector.opened]
    assert len(opened) >= 8
    for seed, detector in opened:
        after = lost(0.03, 0.08, held, 60, seed)[100 + held :]
        detector.feed(after, np.arange(100 + held, 160 + held), POLICY)
        assert detector.opened == ()


def test_a_loss_that_stays_is_not_over():
    for seed in range(12):
        detector, changes = fed(lost(0.03, 0.08, 250, 0, seed))
        assert bool(detector.opened) is any(change.past_threshold for change in changes)
        assert detector.opened


@pytest.mark.parametrize(("past", "low", "found"), [(13, -0.1, False), (14, -0.1, True), (13, 0.04, True)])
def test_a_series_that_becomes_unsteady_must_have_most_runs_past_the_middle(past, low, found):
    """Twenty runs after forty-six; where the others hardly fall back, they do not make it unsteady."""
    x = np.concatenate((quiet(46), np.full(20 - past, low), 0.08 + quiet(past, 3, 0.001)))
    detector, _ = fed(x[:46])
    change = _settle(detector, x, np.arange(len(x)), (46, 46, 46), 30.0, 1, detector.model, POLICY)
    assert (change is not None) is found


def test_the_end_of_a_regression_is_looked_for_wherever_it_may_be():
    """Looking at many lengths at once leaves out none at which `over_by_now` would find the end."""
    compared = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        levels = np.repeat(rng.choice([0.0, 0.06, 0.12], 8), rng.integers(10, 60, 8))
        x = levels + 0.03 * rng.standard_normal(len(levels))
        detector = Detector(assumed_noise=POLICY.prior_noise)
        for place in range(0, len(x) - 40, 7):
            detector.feed(x[place : place + 7], np.arange(place, place + 7), POLICY)
            if not detector.opened or detector.model is None:
                continue
            y = np.concatenate((detector.segment, x[place + 7 : place + 40]))
            where, lengths = np.arange(len(y)), np.arange(1, len(y) + 1)
            found = {n for n in lengths.tolist() if over_by_now(detector, y[:n], where[:n], POLICY) is not None}
            assert found <= set(may_be_over(detector, y, lengths, POLICY))
            compared += len(found)
    assert compared > 50
