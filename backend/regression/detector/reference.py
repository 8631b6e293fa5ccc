"""What a suspect block is compared with: the runs strictly before it, as a close look sees them.

Where each run explains part of the next, what is judged is the surprise of a run given the one before: the edge of a
step is then sharp, and many runs that lean on each other are not taken for many. Whether a series is of that kind its
own likelihood says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from backend.regression.detector.density import NAT, REACH, Floats, Ints, NoiseModel, fit, fit_density

REUSE = 1.25
"""A model of the first runs of a level represents at most this many times as many."""
CORRELATED = 0.2
LEAST_RUNS = 20
"""Neighbours are only compared in series at least so correlated and so long …"""
BETTER = 3.0
"""… and used where they explain the runs better by so many nats."""
CLIP = 3.0
"""A run pulls the next one along by no more than so many standard deviations: a spike pulls none."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The noise that a block is judged by."""

    model: NoiseModel
    innovations: NoiseModel | None = None
    """Of what a run adds to its share of the one before (level 0); None where runs are judged by themselves."""

    def innovate(self, y: Floats) -> Floats:
        """The innovations of the runs y after the first: each less its share of the one before."""
        return innovate(y - self.model.level, self.model.correlation, self.model.scale)


def reference_of(
    y: Floats, known: NoiseModel | None, fitted: int, carried: Floats, correlation: float, assumed_noise: float
) -> Reference:
    """The reference of the runs y; `known` is a model of the first `fitted` of them, used while it is new enough."""
    reused = known if fitted <= len(y) <= REUSE * fitted else None
    return _prepared(y.tobytes(), reused, carried.tobytes(), correlation, assumed_noise)


@lru_cache(maxsize=32)
def _prepared(
    y: bytes, model: NoiseModel | None, carried: bytes, correlation: float, assumed_noise: float
) -> Reference:
    """Remembered, because the runs before a suspect block stay the same from one look at it to the next."""
    runs, residuals = np.frombuffer(y), np.frombuffer(carried)
    model = model or fit(runs, residuals, correlation, assumed_noise)
    return Reference(model, innovations(runs, residuals, model))


def innovations(y: Floats, carried: Floats, model: NoiseModel) -> NoiseModel | None:
    """A model of what each run adds to its share of the one before, where that explains the runs y better."""
    rho = model.correlation
    if rho < CORRELATED or len(y) < LEAST_RUNS:
        return None
    own = innovate(y - model.level, rho, model.scale)
    scale, density = fit_density(np.concatenate((own, innovate(carried, rho, model.scale))), len(own), model.scale)
    found = replace(model, level=0.0, scale=scale, density=density, bands={})
    gain = (_explained(found, own) - _explained(model, y[1:])) / NAT - len(own) * math.log(scale / model.scale)
    return found if gain >= BETTER else None


def innovate(residual: Floats, rho: float, scale: float) -> Floats:
    """The innovations of the residuals after the first: each less its share of the one before."""
    added: Floats = residual[1:] - rho * np.maximum(np.minimum(residual[:-1], CLIP * scale), -CLIP * scale)
    return added


def _explained(model: NoiseModel, y: Floats) -> int:
    cell: Ints = model.cells(y).astype(np.int64) + REACH
    return int(model.density.take(cell, mode="clip").sum())
