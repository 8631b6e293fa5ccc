"""The numbers of many runs are those of each run by itself, to the last bit, whatever stands beside it."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.regression.cost import added, log_costs, typical
from backend.regression.series.run_numbers import RunValues, numbers_of_each
from backend.regression.terms import Direction, Point

values = st.floats(1e-300, 1e300)
runs = st.lists(st.lists(values, min_size=1, max_size=9), max_size=12)
directions = st.sampled_from(list(Direction))


def points_of(runs):
    return [Point(number, f"c{number}", tuple(values)) for number, values in enumerate(runs)]


def numbers_of(points, direction):
    (numbers,) = numbers_of_each([(points, direction)])
    return numbers


def by_itself(values, direction):
    raw = log_costs(values, direction)
    mean = added(raw) / len(raw)
    variance = added([(v - mean) * (v - mean) for v in raw]) / (len(raw) - 1) if len(raw) > 1 else 0.0
    return statistics.median(values), typical(raw), variance, len(values)


def as_rows(numbers):
    columns = numbers.medians, numbers.costs, numbers.variances, numbers.processes
    return list(zip(*columns, strict=True))


def test_a_stored_cost_has_single_precision():
    numbers = numbers_of(points_of([[1.1], [2.7, 3.1]]), Direction.LOWER)
    assert numbers.stored == [float(np.float32(cost)) for cost in numbers.costs]


def to_the_bit(rows):
    return [tuple(float(number).hex() for number in row) for row in rows]


@given(st.lists(st.tuples(runs, directions), max_size=4))
def test_numbers_of_many_series_are_those_of_each_run_by_itself(series):
    found = numbers_of_each([(points_of(runs), direction) for runs, direction in series])
    assert [to_the_bit(as_rows(numbers)) for numbers in found] == [
        to_the_bit([by_itself(values, direction) for values in runs]) for runs, direction in series
    ]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_value_without_a_relative_change_is_refused(value):
    with pytest.raises(ValueError, match="has no relative change"):
        numbers_of(points_of([[1.0, 2.0], [3.0, value]]), Direction.LOWER)


def test_a_point_without_values_is_named():
    with pytest.raises(ValueError, match="point at position 1 has no values"):
        numbers_of(points_of([[1.0], [], [2.0]]), Direction.LOWER)


def test_values_near_the_largest_number_are_no_infinity():
    numbers = numbers_of(points_of([[1.7e308, 1.7e308, 1.7e308], [1.7e308, 1.7e308]]), Direction.HIGHER)
    assert numbers.medians == [1.7e308, 1.7e308]
    assert np.allclose(numbers.costs, -math.log(1.7e308))


def test_whole_numbers_are_numbers_like_others():
    assert numbers_of(points_of([[5 * 10**18, 6 * 10**18]]), Direction.LOWER).medians == [5.5e18]


def test_runs_with_a_value_that_has_no_cost_are_left_out_of_columns():
    runs = RunValues.of(points_of([[1.0, 2.0], [3.0], [4.0, 0.0, 5.0], [-1.0], [6.0, 7.0]])).that_have_costs()
    assert runs.places.tolist() == [0, 1, 4]
    assert runs.processes.tolist() == [2, 1, 2]
    assert runs.values.tolist() == [1.0, 2.0, 3.0, 6.0, 7.0]
    assert RunValues.of([]).that_have_costs().places.tolist() == []
