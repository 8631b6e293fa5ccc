"""What a suspect block is compared with: neighbours that explain each other."""

import math
from dataclasses import replace

import numpy as np
import pytest

from backend.regression.detector import reference
from backend.regression.detector.density import fit
from backend.regression.detector.detector import Detector
from backend.regression.detector.reference import innovate, innovations, reference_of
from backend.regression.policy import Policy

NONE = np.empty(0)


def noise(n, seed=0, scale=0.01, rho=0.0):
    shocks = np.random.default_rng(seed).standard_normal(n + 50) * math.sqrt(1 - rho**2)
    x = np.zeros(n + 50)
    for t in range(1, n + 50):
        x[t] = rho * x[t - 1] + shocks[t]
    return scale * x[50:]


def model_of(y):
    return fit(y, NONE, 0.0, 0.01)


# ---- runs that lean on the one before


@pytest.mark.parametrize(("rho", "used"), [(0.0, False), (0.7, True)])
def test_neighbours_are_used_where_they_explain_the_runs(rho, used):
    y = noise(200, 1, rho=rho)
    assert (innovations(y, NONE, replace(model_of(y), correlation=max(rho, 0.3))) is not None) is used


@pytest.mark.parametrize(("correlation", "used"), [(0.19, False), (0.21, True)])
def test_a_series_hardly_correlated_is_taken_run_by_run(correlation, used):
    y = noise(1000, 1, rho=0.4)
    assert (innovations(y, NONE, replace(model_of(y), correlation=correlation)) is not None) is used


@pytest.mark.parametrize(("runs", "used"), [(19, False), (20, True)])
def test_twenty_runs_are_needed_to_look_at_neighbours(runs, used):
    y = 0.01 * np.repeat([1.0, -1.0], 10)[-runs:] + noise(runs, 2, 0.0005)
    assert (innovations(y, NONE, replace(model_of(y), correlation=0.8)) is not None) is used


@pytest.mark.parametrize(("better", "used"), [(1e-6, True), (1e6, False)])
def test_neighbours_must_explain_the_runs_better_by_some_nats(monkeypatch, better, used):
    y = noise(200, 1, rho=0.6)
    monkeypatch.setattr(reference, "BETTER", better)
    assert (innovations(y, NONE, model_of(y)) is not None) is used


def test_a_run_pulls_the_next_one_along_by_three_standard_deviations_at_most():
    assert innovate(np.array([0.02, 0.0]), 0.5, 0.01) == pytest.approx([-0.01])
    assert innovate(np.array([0.50, 0.0]), 0.5, 0.01) == pytest.approx([-0.015])


def test_the_edge_of_a_step_of_a_correlated_series_shows_within_fewer_runs(monkeypatch):
    def runs_until_told():
        total = 0
        for seed in range(40):
            x = noise(160, seed, 0.03, rho=0.6)
            x[120:] += 0.15
            detector = Detector(assumed_noise=Policy().prior_noise)
            found = [c for c in detector.feed(x, np.arange(160), Policy()) if c.past_threshold and c.size > 0]
            total += min([c.detected for c in found if c.detected >= 120], default=160) - 120
        return total

    with_neighbours = runs_until_told()
    monkeypatch.setattr(reference, "BETTER", math.inf)
    reference._prepared.cache_clear()
    without = runs_until_told()
    reference._prepared.cache_clear()
    assert with_neighbours < 0.95 * without


# ---- which model of the runs before


@pytest.mark.parametrize(
    ("fitted", "runs", "reused"), [(80, 100, True), (80, 101, False), (100, 100, True), (101, 100, False)]
)
def test_the_model_of_the_watch_stands_while_it_is_of_runs_before_the_block_and_new_enough(fitted, runs, reused):
    y = noise(120, 4)
    model = model_of(y[:fitted])
    found = reference_of(y[:runs], model, fitted, NONE, 0.0, 0.01).model
    assert (found.runs == fitted) is (reused or fitted == runs)
    assert (found is model) is reused


def test_what_is_remembered_of_one_series_is_not_taken_for_another():
    one, other = noise(40, 1), noise(40, 2)
    first = reference_of(one, None, 0, NONE, 0.0, 0.01)
    assert reference_of(one.copy(), None, 0, NONE, 0.0, 0.01) is first
    assert reference_of(other, None, 0, NONE, 0.0, 0.01).model.level == model_of(other).level
    assert reference_of(one, None, 0, other, 0.0, 0.01) is not first
    assert reference_of(one, None, 0, NONE, 0.5, 0.01) is not first
    assert reference_of(one, None, 0, NONE, 0.0, 0.02) is not first
