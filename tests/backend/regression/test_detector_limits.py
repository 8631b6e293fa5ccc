"""The limits of the close look that are constants of the method, each on both sides of exactly where it stands."""

import math

import numpy as np
import pytest
from test_detector_rules import MODEL, NOISE, NONE, POLICY, model_of, quiet, with_

from backend.regression import close_look
from backend.regression.detector import Detector
from backend.regression.evidence import backwards, calm


@pytest.mark.parametrize(("wilder", "worth"), [(1.5, 1.0), (1.501, (1.5 / 1.501) ** 2), (3.0, 0.25)])
def test_evidence_is_worth_less_from_half_as_wild_again_on(wilder, worth):
    """Two thirds of the newest runs lie just so far from their middle."""
    runs = np.tile([-wilder * NOISE, wilder * NOISE], 15)
    assert calm(runs, with_(scale=NOISE)) == pytest.approx(worth)


@pytest.mark.parametrize(("ago", "is_heard"), [(150, True), (151, False)])
def test_from_behind_an_onset_150_runs_are_looked_at(ago, is_heard):
    """One run that looks like those since the onset speaks against it, unless it is too long ago."""
    before = np.zeros(200)
    block = 0.05 + quiet(20, 2)
    quiet_past = backwards(np.concatenate((before, block)), 200, 1, NONE, MODEL)
    before[-ago] = 0.05
    assert (backwards(np.concatenate((before, block)), 200, 1, NONE, MODEL) < quiet_past) is is_heard


@pytest.mark.parametrize(("fewer", "more", "is_worth_more"), [(199, 200, True), (200, 201, False), (200, 400, False)])
def test_a_level_of_200_runs_is_as_well_known_as_it_gets(fewer, more, is_worth_more):
    """What the evidence of the run after so many others is worth."""
    after_fewer, after_more = (close_look._weights(MODEL, runs + 1, 1)[0] for runs in (fewer, more))
    assert bool(after_more > after_fewer) is is_worth_more


@pytest.mark.parametrize(("between", "place"), [(0.0355, (60, 60, 61)), (0.037, (60, 60, 60))])
def test_an_onset_is_placed_more_sharply_than_it_is_found(between, place):
    """A run between the two levels is the first of the new one beyond doubt only when seven tenths of the caution of
    finding are left out of placing: with less (more) of it left out the limit is higher (lower)."""
    base = quiet(60)
    y = np.concatenate((base, [between], 0.05 + quiet(6, 1, 0.004)))
    detector = Detector(segment=y, places=np.arange(67), model=model_of(base), fitted=60, levels=(0.0,))
    change, _ = close_look.look(detector, y, np.arange(67), 60, 1, POLICY)
    assert (change.onset, change.first, change.last) == place


@pytest.mark.parametrize(("noise", "found"), [(0.999, True), (1.001, False)])
def test_the_noise_of_a_drift_is_at_least_four_tenths_of_the_spread(noise, found):
    """Neighbours that hardly differ: what is demanded of the loss rests on the spread alone."""
    y = np.concatenate((np.zeros(30), np.linspace(0, 0.2, 60), np.full(25, 0.2)))
    limit = 0.2 / (POLICY.drift_z * 0.4 * math.sqrt(1.57 * (1 / 25 + 1 / 30)))
    detector = Detector(segment=y, model=with_(level=0.0, scale=noise * limit, spread=1.0))
    assert (close_look.drifted(detector, y, np.arange(len(y)), POLICY) is not None) is found
