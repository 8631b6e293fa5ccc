"""The smallest change that so many runs of a new level would bring to light most times."""

from __future__ import annotations

import math

import numpy as np

from backend.regression.detector.close_look import SHORT
from backend.regression.detector.density import Floats, NoiseModel, inflation, inflation_of
from backend.regression.detector.evidence import LATE_RUNS, demanded
from backend.regression.policy import Policy

KNOWN_RUNS = 150
"""More runs than these do not make a level better known."""
MARGIN = 2.5
"""Standard errors by which a change must exceed what gives the evidence on average, to be reported most of the time."""
SOON, LATE = 8, 30
"""Runs within which a clear step, and one of the policy's smallest size, should be reported."""
CLEAR = 4
"""A clear step is so many times the policy's smallest regression."""


def shown_by(model: NoiseModel, policy: Policy, runs: int, known: int | None = None) -> float:
    """The smallest change (fraction of cost) that so many runs show, four times of five, after `known` of a level."""
    deviations, of_level = _beyond_chance(model, policy, runs, known)
    return math.expm1(deviations * math.sqrt(inflation_of(model.correlation, runs) / runs + of_level))


def shown_by_each(model: NoiseModel, policy: Policy, runs: Floats) -> Floats:
    """The same for several numbers of runs, in log cost."""
    deviations, of_level = _beyond_chance(model, policy, int(runs[0]), None)
    shown: Floats = deviations * np.sqrt(inflation(model.correlation, runs) / runs + of_level)
    return shown


def _beyond_chance(model: NoiseModel, policy: Policy, runs: int, known: int | None) -> tuple[float, float]:
    """How far a mean of runs must lie off, in log cost for an error of 1, and the variance of the level before them."""
    before = min(model.runs if known is None else known, KNOWN_RUNS)
    nats = demanded(1, runs, model, policy) * model.spread * (before + SHORT) / before
    if before < LATE_RUNS:
        nats *= 2
    return model.scale * (math.sqrt(2 * nats) + MARGIN), inflation_of(model.correlation, before) / before


def is_unsteady(model: NoiseModel, policy: Policy) -> bool:
    """A change of the policy's smallest size would not show within 30 runs however long the series were, or one of
    four times that size not within 8: the silence of its judge does not mean that all is well."""
    if shown_by(model, policy, LATE, max(model.runs, LATE_RUNS)) > policy.min_change:
        return True
    return shown_by(model, policy, SOON) > CLEAR * policy.min_change
