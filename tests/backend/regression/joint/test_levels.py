"""Levels and noise of a testbed: one unsteady worker, benchmarks that were never seen, processes that disagree."""

import numpy as np
import pytest

from backend.regression.joint.rows import MEDIAN_OF_VARIANCES, RowsOfTestbed, mean_of, middle
from backend.regression.joint.terms import JointRun, JointSeries
from backend.regression.terms import Role

SERIES = [JointSeries(id=f"b{n}/step_ms", suite="s", benchmark=f"b{n}", role=Role.GATE, sign=1.0) for n in range(2)]


def rows_of(count, *, noise=0.004, to_and_fro=0.0, missing=(), spread=1e-4):
    """Three workers in turn; the third one goes to and fro between two levels."""
    rows = RowsOfTestbed("t", SERIES)
    for position in range(count):
        rng = np.random.default_rng([3, position])
        worker = position % 3
        cost = 1.0 + noise * rng.standard_normal(2) + (to_and_fro * rng.choice((-1, 1)) if worker == 2 else 0.0)
        cost[list(missing)] = np.nan
        found = np.full(2, spread if worker < 2 else 100 * spread)
        found[list(missing)] = np.nan
        run = JointRun(
            position=position, testbed="t", worker=f"w{worker}", timestamp=float(position), cost=cost, spread=found
        )  # fmt: skip
        rows.add(run, 0)
        rows.learn()
    rows.learn_noise()
    return rows


@pytest.mark.parametrize("to_and_fro", [0.0, 0.05])
def test_a_worker_with_two_levels_says_nothing_of_the_noise_of_the_others(to_and_fro):
    rows = rows_of(90, to_and_fro=to_and_fro)
    assert (rows.sigma >= 0.003).all()
    assert (rows.sigma <= 0.006).all()
    assert (rows.sigma_of[0] <= 0.007).all()


def test_a_worker_with_two_levels_is_itself_known_to_be_unsteady():
    assert (rows_of(90, to_and_fro=0.05).sigma_of[2] >= 0.04).all()


def test_processes_that_disagree_on_one_worker_do_not_make_sessions_doubtful():
    rows = rows_of(60, spread=1e-4)
    assert rows.process_variance == pytest.approx(1e-4 / MEDIAN_OF_VARIANCES)


@pytest.mark.filterwarnings("error")
def test_a_benchmark_that_never_ran_has_no_level_and_no_warning():
    rows = rows_of(40, missing=[1])
    change, error = rows.mean(rows.by_position(5))
    assert np.isfinite(change).all()
    assert np.isfinite(error[0])
    assert np.isinf(error[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("column", "median", "mean"),
    [([3.0, 1.0, 8.0], 3.0, 4.0), ([4.0, np.nan, 2.0], 3.0, 3.0), ([np.nan] * 3, np.nan, np.nan)],
)
def test_median_and_mean_are_of_what_is_there(column, median, mean):
    values = np.array(column)[:, None]
    assert middle(values)[0] == pytest.approx(median, nan_ok=True)
    assert mean_of(values)[0] == pytest.approx(mean, nan_ok=True)


@pytest.mark.parametrize(("runs", "known"), [(3, False), (4, True)])
def test_a_series_that_begins_later_is_judged_after_four_runs_of_a_worker(runs, known):
    rows = rows_of(40, missing=[1])
    for position in range(40, 40 + runs):
        rows.add(
            JointRun(
                position=position, testbed="t", worker="w0", timestamp=float(position), cost=np.ones(2),
                spread=np.full(2, 1e-4),
            ),
            0,
        )  # fmt: skip
    rows.learn_level(0, young=0)
    residual = rows.tail(np.array([rows.n - 1])).mask[0]
    assert residual.tolist() == [True, known]
