"""Series side by side: carried over gaps, as performance against a base, and averaged geometrically."""

import numpy as np
import pytest

from backend.services.reports.trend_grid import Grid, changes, grid_of, level, mean_of, moved
from backend.store.reports.trends import POINT, TrendSeries


def one(number: int, direction: str = "lower", *, noise: float | None = 0.001) -> TrendSeries:
    return TrendSeries(
        id=number, suite="gpt", benchmark="gpt.train", variant={}, variant_key="", preset="full",
        metric="step_ms", unit="ms", direction=direction, role="gate", exact=False, noise=noise, state_position=None,
    )  # fmt: skip


def grid(*values: list[float | None], directions: tuple[str, ...] = ("lower", "lower")) -> Grid:
    points = np.array(
        [(number, at, at, value) for number, row in enumerate(values) for at, value in enumerate(row) if value],
        dtype=POINT,
    )
    found = grid_of([one(number, direction) for number, direction in enumerate(directions)], points, 0, 10)
    assert found is not None
    return found


def test_a_series_stands_where_it_last_stood() -> None:
    assert grid([10.0, None, None], [10.0, 10.0, 12.0]).value[0].tolist() == [10.0, 10.0, 10.0]


def test_nothing_measured_is_no_grid() -> None:
    assert grid_of([one(1)], np.array([], dtype=POINT), 0, 10) is None


def test_slower_is_less_performance_whichever_way_a_metric_points() -> None:
    both = changes(grid([10.0, 20.0], [10.0, 5.0], directions=("lower", "higher")))
    assert both == pytest.approx([-0.5, -0.5])


def test_a_series_without_a_value_at_the_base_is_not_compared() -> None:
    assert mean_of(grid([10.0, 20.0], [None, 5.0]), 0.05).compared == 1


def test_a_mean_of_twice_as_fast_and_half_as_fast_is_no_change() -> None:
    mean = mean_of(grid([10.0, 20.0], [10.0, 5.0]), 0.05)
    assert mean.change == pytest.approx(0.0)
    assert (mean.slower, mean.faster) == (1, 1)


def test_a_change_below_the_policys_is_none() -> None:
    slower, faster = moved(grid([10.0, 10.4], [10.0, 9.6]), 0.05)
    assert not slower.any()
    assert not faster.any()


def test_the_level_is_the_geometric_mean_at_the_head() -> None:
    assert level(grid([1.0, 2.0], [1.0, 8.0]), [0, 1]) == pytest.approx(4.0)


def test_the_band_is_the_middle_of_the_series_that_are_known_by_then() -> None:
    values = np.random.default_rng(1).normal(10, 1, (9, 6))
    values[3:7, :3] = np.nan
    of_nine = tuple(range(9))
    found = Grid([one(n) for n in of_nine], np.arange(6), np.arange(6), values, 3, 5)
    mean = mean_of(found, 0.05)
    logs = np.log(values[:, 3:4] / values)
    low, high = np.exp(np.nanquantile(logs, (0.1, 0.9), axis=0))
    assert mean.band_low == pytest.approx(low, abs=1e-5)
    assert mean.band_high == pytest.approx(high, abs=1e-5)
