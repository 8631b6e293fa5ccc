"""After any past of the generators a step of 20 % is told within eight commits, or the series says why it is not."""

import hostile_pasts
import never_blind
import numpy as np
import pytest

from backend.regression.detector.detector import Detector


@pytest.mark.parametrize(("rough", "told"), [(True, 0.97), (False, 0.99)])
def test_no_past_makes_a_series_blind_without_a_word(rough, told):
    answers = {past.name: never_blind.answer(past) for past in never_blind.pasts([41, 42, 43], 60, rough)}
    assert [name for name, word in answers.items() if word == "silent"] == []
    assert sum(word == "told" for word in answers.values()) >= told * len(answers)


def test_a_past_that_wanders_and_is_short_is_suspected_before_anything_is_proved():
    (past,) = (past for past in never_blind.pasts([8301], 200) if past.name == "s8301-00016@7")
    assert never_blind.answer(past) == "suspected"


def test_the_instrument_notices_a_detector_that_is_blind(monkeypatch):
    monkeypatch.setattr(Detector, "feed", lambda self, *_: [])
    monkeypatch.setattr(never_blind, "cannot_judge", lambda _: False)
    monkeypatch.setattr(never_blind, "is_suspected", lambda _: False)
    (past, *_) = never_blind.pasts([41], 2)
    assert never_blind.answer(past) == "silent"


def test_the_band_after_a_told_step_is_that_of_the_runs_since():
    """What earlier levels were like, wild ones too, widens it little once the level has forty runs of its own."""
    for past in never_blind.pasts([41, 42, 43], 60, rough=True):
        if never_blind.answer(past) == "told":
            detector = Detector(assumed_noise=never_blind.POLICY.prior_noise)
            detector.feed(past.x, np.arange(len(past.x)), never_blind.POLICY)
            own = past.x[past.at :]
            low, high = detector.model.band(never_blind.POLICY.alpha)
            assert max(high, -low) <= np.abs(own - np.median(own)).max() + 0.25, past.name


@pytest.mark.parametrize("number", range(60))
def test_a_step_after_a_hostile_past_is_told_or_the_series_says_why_not(number):
    assert hostile_pasts.answer(hostile_pasts.past(number)) != "silent"


@pytest.mark.parametrize("number", range(40))
def test_a_step_after_a_wild_past_is_told_soon_or_the_series_says_that_it_cannot_see_it(number):
    assert hostile_pasts.answer_soon(hostile_pasts.wild(number)) in ("told", "said", "suspected")


BESIDE_AN_OPEN_REGRESSION = [
    [(20, 5), (55, 3), (58, 3), (220, 4), (46, 5)],
    [(20, 5), (55, 3), (58, 3), (220, 4), (46, 12)],
    [(20, 60), (55, 3), (58, 3), (220, 4), (46, 6)],
    [(20.3, 20), (55.4, 3), (38.2, 3), (57.9, 3), (80, 2), (222, 4), (46.1, 5)],
    [(10, 10), *((10 * 1.05**k, 1) for k in range(1, 21)), (26.5, 5)],
    [(10, 5), *((level, 1) for level in (24, 26, 28, 31, 34, 38, 42, 46, 50, 56, 61, 67)), (67, 5)],
]


@pytest.mark.parametrize("levels", BESIDE_AN_OPEN_REGRESSION)
@pytest.mark.parametrize("seed", range(3))
def test_a_step_beside_an_open_regression_is_told_or_the_series_says_what_it_would_see(levels, seed):
    """Pasts that blinded the judge without a word, before it said what it would see beside an open regression."""
    noise = 0.003 * np.random.default_rng(seed).standard_normal(sum(runs for _, runs in levels) + 40)
    level = np.array([level for level, runs in (*levels, (1.2 * levels[-1][0], 40)) for _ in range(runs)])
    past = never_blind.Past("found", np.log(level) + noise, len(level) - 40)
    assert hostile_pasts.answer_soon(past) in ("told", "said")
