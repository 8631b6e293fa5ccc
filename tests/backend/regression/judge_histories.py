"""Histories that the tests of the judge share: ladders, plateaus, steps and fixes with known noise."""

from __future__ import annotations

import numpy as np

from backend.regression.terms import Point


def points(levels, rng=None, noise=0.0, within=0.0, processes=3, worker="w0", start=0):
    """One point a level; values are `processes` draws around it."""
    rng = rng or np.random.default_rng(0)
    made = []
    for i, level in enumerate(levels):
        run = level * (1 + noise * rng.standard_normal())
        values = tuple(float(run * (1 + within * e)) for e in rng.standard_normal(processes))
        made.append(Point(start + i, f"c{start + i}", values, "env", worker))
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
