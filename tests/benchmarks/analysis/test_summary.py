"""Statistics of repetitions, against figures worked out elsewhere."""

import random

import pytest

from benchmarks.analysis.summary import (
    as_told,
    coefficient_of_variation,
    is_bimodal,
    minimum_detectable_change,
    repeats_needed,
    robust_sd,
    thin,
)


@pytest.mark.parametrize(
    ("spread", "change", "repeats"),
    [(0.001, 0.005, 2), (0.003, 0.01, 5), (0.003, 0.005, 18), (0.005, 0.01, 13), (0.01, 0.02, 13), (0.01, 0.01, 49)],
)
def test_repeats_for_a_change_agree_with_the_published_table(spread, change, repeats):
    assert repeats_needed(spread, change) == repeats


def test_the_detectable_change_is_the_inverse_of_the_repeats():
    change = minimum_detectable_change(0.01, 13)
    assert repeats_needed(0.01, change * 1.0001) == 13


def test_a_change_of_nothing_needs_no_finite_number_of_repeats():
    with pytest.raises(ValueError, match="positive"):
        repeats_needed(0.01, 0.0)


def test_one_straggler_does_not_move_the_robust_spread():
    calm = [10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.02]
    assert robust_sd([*calm, 30.0]) < 3 * robust_sd(calm)


def test_a_single_value_has_no_spread():
    assert coefficient_of_variation([1.0]) is None


def test_two_clock_states_are_bimodal_and_noise_is_not():
    rng = random.Random(5)
    one = [rng.gauss(10, 0.05) for _ in range(60)]
    two = [rng.gauss(10 if i % 3 else 10.8, 0.05) for i in range(60)]
    assert is_bimodal(two)
    assert not is_bimodal(one)
    assert not is_bimodal([*one, 14.0]), "a straggler is no second mode"


def test_thinning_keeps_the_ends_of_a_run_in_sight():
    kept = thin(list(range(5000)))
    assert len(kept) == 1000
    assert kept[0] == 0
    assert kept[-1] >= 4990
    assert thin([1.0, 2.0]) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("sample", "told"), [(5.440328174, 5.440328), (0.0123456789, 0.01234568), (24159191041.0, 24159191041.0)]
)
def test_a_sample_is_told_with_the_digits_of_a_clock_and_a_count_with_all(sample, told):
    assert as_told(sample) == told
