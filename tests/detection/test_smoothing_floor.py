"""The smoothed value may not get noisier or slower than this, nor worse than the two lines everybody knows."""

import pytest
import smoothing_table as table


@pytest.fixture(scope="module")
def figures():
    return {name: table.measured(smooth, 12) for name, smooth in table.LINES.items()}


def test_it_leaves_less_than_a_third_of_the_noise_and_follows_a_step_within_three_runs(figures):
    quiet, spiky, after_step, lag = figures["Tidemark"]
    assert quiet <= 0.33
    assert spiky <= 0.45
    assert after_step <= 0.8
    assert lag <= 3


@pytest.mark.parametrize("other", ["running median of 7", "EWMA, gain 0.2"])
def test_it_is_steadier_and_no_slower_than(figures, other):
    assert all(ours <= theirs for ours, theirs in zip(figures["Tidemark"], figures[other], strict=True))
