"""Bisection under noise names the right commit as often as it claims, in about as many steps as halving takes."""

from __future__ import annotations

import math
import random

import pytest

from backend.regression.bisection import (
    SURE,
    BisectionStatus,
    Candidate,
    Observation,
    looks_bad,
    posterior,
    processes_a_step,
    status_after,
)


def commits(number: int, untouched: tuple[int, ...] = ()) -> list[Candidate]:
    return [Candidate(f"{index:040x}", index in untouched) for index in range(number)]


def bisect(
    number: int, culprit: int, *, shift: float, spread: float, seed: int, broken: tuple[int, ...] = ()
) -> tuple[BisectionStatus, int]:
    """Measures what is asked for until it is over; (where it stands, how many steps)."""
    chance = random.Random(seed)
    processes = processes_a_step(shift, spread)
    error = spread / math.sqrt(processes)
    seen: list[Observation] = []
    unusable: list[int] = []
    for steps in range(100):
        standing = status_after(commits(number), seen, shift, error, unusable)
        if standing.next_index is None:
            return standing, steps
        index = standing.next_index
        if index in broken:
            unusable.append(index)
            continue
        level = shift if index >= culprit else 0.0
        seen.append(Observation(index, chance.gauss(level, error), error))
    raise AssertionError("it does not end")


@pytest.mark.parametrize(("shift", "spread"), [(0.05, 0.01), (0.05, 0.03), (0.2, 0.05)])
def test_it_is_right_as_often_as_it_says(shift: float, spread: float) -> None:
    chance = random.Random(7)
    right, steps = 0, 0
    for seed in range(100):
        culprit = chance.randrange(16)
        standing, taken = bisect(16, culprit, shift=shift, spread=spread, seed=seed)
        assert standing.sure
        right += standing.best == culprit
        steps += taken
    assert right >= 95
    assert steps / 100 <= 6


def test_without_noise_it_halves() -> None:
    for culprit in range(32):
        standing, steps = bisect(32, culprit, shift=0.2, spread=0.0, seed=1)
        assert standing.best == culprit and standing.confidence >= SURE and steps <= 6


def test_one_wild_measurement_does_not_decide() -> None:
    seen = [Observation(7, 0.1, 0.005), Observation(3, 0.0, 0.005)]
    believed = status_after(commits(8), [*seen, Observation(5, 0.1, 0.005)], 0.1, 0.005)
    contradicted = status_after(commits(8), [*seen, Observation(5, 0.1, 0.005), Observation(6, 0.0, 0.005)], 0.1, 0.005)
    assert believed.probabilities[6] < 0.02
    assert not contradicted.sure and contradicted.next_index is not None


def test_a_commit_that_touches_nothing_is_not_the_culprit_and_is_not_needed() -> None:
    standing = status_after(commits(4, untouched=(0, 1, 2)), [], 0.1, 0.01)
    assert standing.best == 3 and standing.sure and standing.next_index is None


def test_where_no_commit_touches_anything_paths_are_not_believed() -> None:
    found = posterior(commits(3, untouched=(0, 1, 2)), [], 0.1)
    assert found.tolist() == pytest.approx([1 / 3] * 3)


def test_broken_neighbours_of_the_culprit_leave_the_answer_open() -> None:
    standing, _ = bisect(8, 4, shift=0.2, spread=0.0, seed=1, broken=(4,))
    assert not standing.sure and standing.next_index is None
    assert standing.probabilities[4] + standing.probabilities[5] > 0.95
    elsewhere, _ = bisect(8, 4, shift=0.2, spread=0.0, seed=1, broken=(1,))
    assert elsewhere.sure and elsewhere.best == 4


def test_worse_than_bad_is_bad_and_better_than_good_is_good() -> None:
    far = posterior(commits(4), [Observation(1, 0.9, 0.01), Observation(0, -0.5, 0.01)], 0.1)
    assert far[1] > 0.95


def test_a_noisy_suite_asks_for_more_processes_a_step_and_no_more_than_twelve() -> None:
    assert processes_a_step(0.2, 0.0) == 1
    assert processes_a_step(0.05, 0.03) > processes_a_step(0.05, 0.01)
    assert processes_a_step(0.01, 0.5) == 12


def test_the_middle_between_both_levels_parts_good_from_bad() -> None:
    assert looks_bad(Observation(0, 0.051, 0.01), 0.1) and not looks_bad(Observation(0, 0.05, 0.01), 0.1)


def test_steps_left_fall_as_it_goes_on() -> None:
    begun = status_after(commits(32), [], 0.2, 0.0)
    later = status_after(commits(32), [Observation(15, 0.2, 0.0), Observation(7, 0.0, 0.0)], 0.2, 0.0)
    assert 4 <= begun.steps_left <= 6 and 0 < later.steps_left < begun.steps_left
    assert (begun.remaining, later.remaining) == (32, 8)
