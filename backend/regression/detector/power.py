"""The smallest change that so many runs of a new level would bring to light most times."""

from __future__ import annotations

import math

import numpy as np

from backend.regression.detector.close_look import SHORT
from backend.regression.detector.density import Floats, NoiseModel, inflation
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
    return math.expm1(float(shown_by_each(model, policy, np.array([float(runs)]), known)[0]))


def shown_by_each(model: NoiseModel, policy: Policy, runs: Floats, known: int | None = None) -> Floats:
    """The same for several numbers of runs, in log cost."""
    before = np.array([float(min(model.runs if known is None else known, KNOWN_RUNS))])
    nats = demanded(1, int(runs[0]), model, policy) * model.spread * (before + SHORT) / before
    if before[0] < LATE_RUNS:
        nats = nats * 2
    error = inflation(model.correlation, runs) / runs + inflation(model.correlation, before) / before
    shown: Floats = model.scale * np.sqrt(error) * (np.sqrt(2 * nats) + MARGIN)
    return shown


def is_unsteady(model: NoiseModel, policy: Policy) -> bool:
    """A change of the policy's smallest size would not show within 30 runs however long the series were, or one of
    four times that size not within 8: the silence of its judge does not mean that all is well."""
    if shown_by(model, policy, LATE, max(model.runs, LATE_RUNS)) > policy.min_change:
        return True
    return shown_by(model, policy, SOON) > CLEAR * policy.min_change
