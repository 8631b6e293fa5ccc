"""The limits of the close look that are constants of the method, each on both sides of exactly where it stands."""

import math

import numpy as np
import pytest

from backend.regression.detector import close_look
from backend.regression.detector.detector import Detector
from backend.regression.detector.evidence import backwards, calm
from backend.regression.detector.memory import Opened
from tests.backend.regression.detector.test_detector import (
    MODEL,
    NOISE,
    NONE,
    POLICY,
    fed,
    model_of,
    quiet,
    with_,
)

NOWHERE = np.empty(0, dtype=np.int64)


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


@pytest.mark.parametrize(("lost", "limit"), [(0.2, math.log1p(0.05)), (0.06, 0.03)])
@pytest.mark.parametrize(("nearer", "is_over"), [(1e-4, True), (-1e-4, False)])
def test_a_regression_that_no_evidence_ended_is_over_where_the_level_is_surely_back(lost, limit, nearer, is_over):
    """Of twenty runs: so many standard errors below what counts, or half of what was lost where that is less."""
    level = limit - 2 * NOISE * math.sqrt(1.57 / 20) - nearer
    opened = Opened(3, 2, 0.0, lost, False, NONE, NOWHERE)
    detector = Detector(
        segment=np.concatenate((np.full(4, lost), np.full(16, level))),
        places=np.arange(3, 23),
        model=with_(level=level, scale=NOISE),
        opened=(opened,),
    )
    found = close_look.over_unseen(detector, POLICY)
    assert (found is not None) is is_over
    if found is not None:
        assert (found.fixed, found.onset, found.last_good, found.past_threshold) == ((opened,), 7, 6, False)


@pytest.mark.parametrize(("good", "is_open"), [(60, False), (0, True)])
@pytest.mark.parametrize("seed", range(6))
def test_a_small_regression_of_a_noisy_series_ends_once_its_level_is_back_and_no_sooner(seed, good, is_open):
    rng = np.random.default_rng(seed)
    levels = np.concatenate((np.zeros(40), np.full(6 if good else 66, math.log(1.08)), np.zeros(good)))
    x = levels + 0.02 * rng.standard_normal(len(levels))
    detector, found = fed(x)
    worse = [change for change in found if change.past_threshold and change.size > 0]
    assert len(worse) <= 1
    assert bool(detector.opened) is (is_open and bool(worse))
    assert not [change for change in found if change.past_threshold and change.size < 0 and not change.fixed]
