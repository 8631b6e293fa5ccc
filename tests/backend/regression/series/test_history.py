"""A history taken at once tells exactly what point by point tells, whatever the series looks like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.regression.policy import Policy
from backend.regression.series.history import enter, replay
from backend.regression.series.judge import judge_all
from backend.regression.terms import ChangeState, Direction, Point, SeriesKind

NOISY = SeriesKind(Direction.LOWER)


def point_by_point(points, kind, policy):
    told = [event for judgement in judge_all(points, kind, policy) for event in judgement.events]
    return [e for e in told if e.past_threshold and e.state in (ChangeState.CONFIRMED, ChangeState.FIXED)]


def history(seed, noise, processes, steps, workers=1):
    rng = np.random.default_rng(seed)
    level = np.ones(220)
    for at, factor in steps:
        level[at:] *= factor
    made = []
    for i, value in enumerate(level):
        run = value * np.exp(noise * rng.standard_t(4))
        values = tuple(float(run * np.exp(0.01 * e)) for e in rng.standard_normal(processes))
        made.append(Point(3 * i, f"c{i}", values, f"w{int(rng.integers(workers)) if i > 40 else 0}"))
    return made


steps = st.lists(st.tuples(st.integers(5, 215), st.sampled_from([0.7, 0.93, 1.04, 1.08, 1.3])), max_size=4)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**16),
    st.sampled_from([0.002, 0.01, 0.04]),
    st.sampled_from([1, 2, 5]),
    steps,
    st.sampled_from([1, 3]),
    st.sampled_from([Direction.LOWER, Direction.HIGHER]),
    st.sampled_from([Policy(), Policy(min_change=0.02, sustained_runs=5)]),
)
def test_a_history_at_once_tells_what_point_by_point_tells(seed, noise, processes, steps, workers, direction, policy):
    kind = SeriesKind(direction)
    points = history(seed, noise, processes, steps, workers)
    assert replay(enter(points, kind), policy) == point_by_point(points, kind, policy)


def test_the_first_runs_may_have_one_process_and_the_later_ones_several():
    points = history(1, 0.01, 1, [(60, 1.2)])[:100]
    points += history(2, 0.01, 5, [(0, 1.2), (150, 1.3)])[100:]
    assert replay(enter(points, NOISY), Policy()) == point_by_point(points, NOISY, Policy()) != []


@pytest.mark.parametrize("values", [[5.0] * 10 + [8.0] * 5, [5.0] * 3])
def test_counters_are_replayed_as_well(values):
    points = [Point(i, f"c{i}", (value,)) for i, value in enumerate(values)]
    kind = SeriesKind(Direction.LOWER, exact=True)
    assert replay(enter(points, kind), Policy()) == point_by_point(points, kind, Policy())
