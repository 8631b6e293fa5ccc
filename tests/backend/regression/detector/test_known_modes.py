"""A series that goes to and fro between two levels; and a reference too short to prove anything."""

import numpy as np
import pytest

from backend.regression.detector.density import fit
from backend.regression.detector.evidence import LONG_HELD, backwards, known_modes
from backend.regression.policy import Policy
from backend.regression.series.explain import explain
from backend.regression.series.history import enter, replay
from backend.regression.series.judge import judge_all
from backend.regression.terms import ChangeDirection, ChangeState, Direction, Reason, SeriesKind, Verdict
from tests.backend.regression.judge_histories import points

LOWER = SeriesKind(Direction.LOWER)


def to_and_fro(times, top=11.5, last=None, held=25):
    """`times` stretches at 10 and as many at `top`, the last of them at another level, or after longer, where given."""
    tops = [top] * (times - 1) + [last or top]
    lengths = [25] * (times - 1) + [held]
    levels = [level for high, low in zip(tops, lengths, strict=True) for level in [10.0] * low + [high] * 25]
    return points(levels, np.random.default_rng(4), 0.005)


def told(history):
    return [
        event.onset_position
        for event in replay(enter(history, LOWER), Policy())
        if event.state is ChangeState.CONFIRMED and event.direction is ChangeDirection.REGRESSION
    ]


def test_three_worsenings_between_the_same_levels_are_told_and_the_fourth_is_a_known_mode():
    assert told(to_and_fro(3)) == [25, 75, 125]
    assert told(to_and_fro(4)) == [25, 75, 125]


@pytest.mark.parametrize(("held", "is_told"), [(LONG_HELD - 1, False), (LONG_HELD, True)])
def test_leaving_a_level_that_has_held_for_long_is_told_however_often_it_was_left(held, is_told):
    assert told(to_and_fro(4, held=held)) == [25, 75, 125, *([150 + held] if is_told else [])]


def test_a_level_that_is_new_is_told_however_often_the_series_went_to_and_fro():
    assert told(to_and_fro(4, last=13.5)) == [25, 75, 125, 175]


def test_a_known_mode_is_no_regression_and_says_why():
    judged = judge_all(to_and_fro(4), LOWER, Policy())
    (accepted,) = [j for j in judged[175:] if any(e.state is ChangeState.CONFIRMED for e in j.events)][:1]
    assert (accepted.verdict, accepted.reason) == (Verdict.UNCHANGED, Reason.KNOWN_MODE)
    assert not any(j.red for j in judged[accepted.position : 200])
    said = explain(accepted, "step_ms", "ms")
    assert "left 3 times or more" in said and f"has held for {LONG_HELD} runs, leaving it is reported again" in said


@pytest.mark.parametrize(("seen", "known"), [(3, True), (2, False)])
def test_a_level_is_a_mode_when_it_was_left_three_times(seen, known):
    levels = (0.0, 0.1) * seen
    assert known_modes(levels, 0.0, 0.1, 25, 0.005, Policy()) is known


def test_levels_further_apart_than_the_noise_are_not_one_mode():
    assert known_modes((0.0, 0.1) * 3, 0.0, 0.112, 25, 0.005, Policy())
    assert not known_modes((0.0, 0.1) * 3, 0.0, 0.12, 25, 0.005, Policy())


@pytest.mark.parametrize(("before", "enough"), [(4, False), (40, True)])
def test_a_few_runs_that_were_low_prove_nothing_seen_from_the_block_behind_them(before, enough):
    rng = np.random.default_rng(2)
    y = np.concatenate((0.02 * rng.standard_normal(before) - 0.03, 0.02 * rng.standard_normal(100)))
    model = fit(y[:before], np.empty(0), 0.0, 0.015)
    found = backwards(y, before, 1, np.empty(0), model)
    assert (found >= Policy().evidence_regression) is enough
