"""What one more run makes of a suspect, and of a regression that may be ending."""

import numpy as np

from backend.regression.detector.detector import Detector
from backend.regression.policy import Policy
from backend.regression.series.limits import limits_of
from backend.regression.series.suspects import followed, is_near_any, runs_returning

POLICY = Policy()


def limits(*levels, noise=0.005):
    """Those of a series after 30 runs at each of these levels (log cost)."""
    detector = Detector(assumed_noise=POLICY.prior_noise)
    x = np.repeat(levels, 30) + noise * np.random.default_rng(0).standard_normal(30 * len(levels))
    detector.feed(x, np.arange(len(x)), POLICY)
    return limits_of(detector.model, detector, POLICY)


STEADY, WILD, SLOW = limits(0.0), limits(0.0, noise=0.05), limits(0.0, 0.2)


def test_a_run_that_looks_worse_begins_a_suspect_and_others_follow_it():
    first = followed(None, 0.1, 7, 6, STEADY, POLICY)
    assert (first.onset, first.last_good, first.runs, first.baseline, first.worst) == (7, 6, 1, STEADY.model.level, 0.1)
    second = followed(first, 0.2, 8, 7, STEADY, POLICY)
    assert (second.onset, second.runs, second.worst) == (7, 2, 0.2)


def test_a_run_begins_none_below_what_counts_or_inside_the_band():
    assert STEADY.high < 0.045 and followed(None, 0.045, 7, 6, STEADY, POLICY) is None
    assert WILD.high > 0.1 and followed(None, 0.1, 7, 6, WILD, POLICY) is None


def test_an_undecided_run_is_followed_for_a_while_and_a_good_one_ends_it():
    suspect = followed(None, 0.08, 7, 6, STEADY, POLICY)
    assert followed(suspect, 0.01, 8, 7, STEADY, POLICY) is None
    for place in range(8, 7 + 4 * POLICY.sustained_runs):
        suspect = followed(suspect, 0.045, place, place - 1, STEADY, POLICY)
    assert suspect.runs == 4 * POLICY.sustained_runs
    assert followed(suspect, 0.045, 40, 39, STEADY, POLICY) is None


def test_runs_that_look_as_before_an_open_regression_are_counted_in_a_row():
    assert SLOW.opened and not STEADY.opened
    assert runs_returning(0, 0.01, SLOW) == 1 and runs_returning(1, 0.01, SLOW) == 2
    assert runs_returning(2, 0.15, SLOW) == 0
    assert runs_returning(2, 0.0, STEADY) == 0 and runs_returning(2, 0.0, None) == 0


def test_a_place_near_one_that_was_disproved():
    assert is_near_any(10, (12,)) and not is_near_any(10, (13,)) and not is_near_any(10, ())
