"""What kind of noise a series has, and what that means for the changes it can show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from backend.regression.density import Floats, inflation_of
from backend.regression.judge import Record, SeriesState
from backend.regression.policy import Policy

LEAST_RUNS = 20
TWO_MODES = 2.0
"""Two modes: splitting the runs in two leaves groups this many of their own spreads to each side apart."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The noise of one series. Fractions are of the level."""

    noise: float
    autocorrelation: float
    bimodal: bool
    mode_gap: float
    """Distance between the two modes; 0 where there is one."""
    minimum_detectable_effect: float
    """What the sustained number of runs would show."""
    runs_to_show_min_change: int
    """Bad runs needed until a regression of the policy's smallest size is clear."""
    record: Record
    precision: float | None
    """Share of the confirmed regressions that nobody disproved; None before the first."""


def profile(state: SeriesState, policy: Policy) -> Profile | None:
    """The profile of a noisy series with enough runs, else None."""
    model = state.detector.model
    if model is None or len(state.detector.segment) < policy.min_baseline_runs:
        return None
    residuals = np.concatenate((state.detector.segment - model.level, state.detector.carried))
    gap = mode_gap(residuals)
    confirmed = state.record.confirmed
    effective = policy.after_false_alarms(state.record.disproved)
    return Profile(
        noise=model.scale,
        autocorrelation=model.correlation,
        bimodal=gap > 0,
        mode_gap=gap,
        minimum_detectable_effect=math.expm1(_effect(state, effective, effective.sustained_runs)),
        runs_to_show_min_change=_runs_needed(state, effective),
        record=state.record,
        precision=None if confirmed == 0 else max(0.0, 1 - state.record.disproved / confirmed),
    )


def mode_gap(residuals: Floats) -> float:
    """Distance between two modes of the residuals, or 0 where one explains them."""
    n = len(residuals)
    if n < LEAST_RUNS:
        return 0.0
    ordered = np.sort(residuals)
    edge = max(3, n // 10)
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    k = np.arange(edge, n - edge)
    low, high = sums[k - 1] / k, (sums[-1] - sums[k - 1]) / (n - k)
    inside = squares[-1] - k * low**2 - (n - k) * high**2
    best = int(np.argmin(inside))
    spread = math.sqrt(max(float(inside[best]) / n, 1e-16))
    gap = float(high[best] - low[best])
    return gap if gap > 2 * TWO_MODES * spread else 0.0


def _effect(state: SeriesState, policy: Policy, runs: int) -> float:
    model = state.detector.model
    assert model is not None
    known = float(min(model.runs, 150))
    spread = inflation_of(model.correlation, runs) / runs + inflation_of(model.correlation, known) / known
    return model.scale * math.sqrt(2 * policy.evidence_regression * spread)


def _runs_needed(state: SeriesState, policy: Policy) -> int:
    wanted = math.log1p(policy.min_change)
    for runs in range(policy.sustained_runs, policy.memory_runs):
        if _effect(state, policy, runs) <= wanted:
            return runs
    return policy.memory_runs
