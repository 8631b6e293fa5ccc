"""Histories that the tests of the judge share: ladders, plateaus, steps and fixes with known noise."""

from __future__ import annotations

import numpy as np

from backend.regression.policy import Policy
from backend.regression.terms import Point


def points(levels, rng=None, noise=0.0, within=0.0, processes=3, worker="w0", start=0):
    """One point a level; values are `processes` draws around it."""
    rng = rng or np.random.default_rng(0)
    made = []
    for i, level in enumerate(levels):
        run = level * (1 + noise * rng.standard_normal())
        values = tuple(float(run * (1 + within * e)) for e in rng.standard_normal(processes))
        made.append(Point(start + i, f"c{start + i}", values, worker))
    return made


def demo_levels(rng, short=False, size=0.5):
    """Climb a ladder, stay on the plateau, get slower, be fixed; returns levels, onset and fix."""
    levels = [1.0]
    for _ in range(2 if short else int(rng.integers(5, 7))):
        levels.append(levels[-1] * (1 - rng.uniform(0.05, 0.4)))
    top = levels[-1]
    levels += [top] * (4 if short else int(rng.integers(6, 9)))
    onset = len(levels)
    levels += [top * (1 + size)] * (3 if short else int(rng.integers(3, 5)))
    fix = len(levels)
    levels += [top] * (2 if short else int(rng.integers(2, 5)))
    return levels, onset, fix


def any_history(seed, runs, exact=False):
    """Runs of one series such as machines make them: noise of any size around levels that step, drift, spike and
    return; rough ones change their noise and their mode, and are measured by several workers."""
    chance = np.random.default_rng(seed)
    if exact:
        return [
            Point(2 * n, "c", (100.0 + 10 * int(step),))
            for n, step in enumerate(np.cumsum(chance.random(runs) < 0.05) % 3)
        ]
    noise = np.full(runs, 10 ** chance.uniform(-4, -1.3))
    cost = np.zeros(runs)
    for _ in range(chance.integers(0, 4)):
        cost[chance.integers(0, runs) :] += chance.normal(0, 0.1)
    cost += np.linspace(0, chance.choice([0, 0, 0.3]), runs)
    cost += np.where(chance.random(runs) < 0.02, chance.exponential(0.8, runs), 0)
    workers = np.full(runs, "box-1", dtype=object)
    if chance.random() < 0.5:  # rough
        noise[chance.integers(0, runs) :] *= chance.uniform(3, 20)
        cost += 0.08 * (np.cumsum(chance.random(runs) < 0.05) % 2)
        away = chance.integers(0, runs)
        cost[away : away + 7] += 0.5
        workers[chance.random(runs) < 0.2] = "box-2"
        if chance.random() < 0.3:
            workers[1:] = [f"pool-{n}" for n in range(1, runs)]
    values = np.exp((cost + noise * chance.standard_normal(runs))[:, None])
    values = values * np.exp(noise[:, None] * chance.standard_normal((runs, chance.integers(1, 6))))
    return [Point(2 * n, "c", tuple(map(float, of_run)), str(workers[n])) for n, of_run in enumerate(values)]


POLICIES = (
    Policy(),
    Policy(memory_runs=60),
    Policy(min_baseline_runs=8, sustained_runs=4, drift_recent_runs=10, drift_reference_runs=15),
    Policy(min_change=0.02, evidence_regression=6.0),
)
