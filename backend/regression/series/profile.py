"""The noise of a series: its kind, the changes that it hides, and how often its judge was right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.regression.detector.density import Floats, NoiseModel
from backend.regression.detector.power import shown_by, shown_by_each
from backend.regression.detector.workers import seldom_return
from backend.regression.policy import Policy
from backend.regression.series.explain import more_runs, percent
from backend.regression.series.state import SeriesState

LEAST_RUNS = 20
"""With fewer runs, one mode cannot be distinguished from two."""
TWO_MODES = 2.0
"""Two modes: if the runs are split in two, the groups are this many times their own spread apart."""


@dataclass(frozen=True, slots=True)
class Calibrating:
    """A worker whose results the series does not judge yet."""

    worker: str
    needed_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The noise of one series, and its judge's record. Fractions are of the level; None: not known yet."""

    runs: int
    """Of the current level."""
    needed_runs: int
    """Runs still needed until points are judged; 0: they are."""
    noise: float | None
    minimum_detectable_effect: float | None
    """The smallest change that the sustained number of runs would show."""
    autocorrelation: float | None
    bimodal: bool | None
    mode_gap: float | None
    """Distance between the two modes; 0 if there is only one."""
    needed_for_modes: int
    """Runs still needed to distinguish one mode from two."""
    sustained_runs: int
    """How many bad runs make a regression of this series if no session confirms it …"""
    extra_runs: int
    """… and how many of them are required because of its own false alarms."""
    evidence_nats: float | None
    """The evidence required from runs, also raised by false alarms."""
    runs_to_show_min_change: int | None
    """Bad runs needed until a regression of the policy's smallest size is clear."""
    calibrating: tuple[Calibrating, ...]
    confirmed: int
    """Regressions that the judge confirmed in the history it remembers …"""
    withdrawn: int
    """… and suspects and regressions that were withdrawn."""
    disproved: int
    """How many of the confirmed ones a session or a person found to be nothing."""
    precision: float | None
    """Share of the confirmed regressions that were not disproved; None before the first."""
    text: str
    """All this in words."""


def profile(state: SeriesState, policy: Policy) -> Profile:
    """The noise of a series as the judge knows it, under the current policy."""
    asked = policy.after_false_alarms(state.record.disproved)
    found = _of_counter(state, policy) if state.kind.exact else _of_noise(state, asked)
    record = state.record
    known = {
        **found,
        "extra_runs": 0 if state.kind.exact else asked.sustained_runs - policy.sustained_runs,
        "calibrating": tuple(
            Calibrating(worker.name, max(0, policy.calibration_runs - len(worker.residuals)))
            for worker in state.workers
            if not worker.ready and not seldom_return(state.workers)
        ),
        "confirmed": record.confirmed,
        "withdrawn": record.withdrawn,
        "disproved": record.disproved,
        "precision": None if record.confirmed == 0 else max(0.0, 1 - record.disproved / record.confirmed),
    }
    told = Profile(**known, text="")
    return Profile(**known, text=_in_words(told, policy, state))


def _of_counter(state: SeriesState, policy: Policy) -> dict[str, Any]:
    """A counter has no noise: a single run shows any change."""
    needed = 0 if state.counter.settled(policy) else policy.exact_baseline_runs - state.counter.held
    return {
        "runs": state.counter.held,
        "needed_runs": needed,
        "noise": 0.0,
        "minimum_detectable_effect": None if needed else policy.exact_min_change,
        "autocorrelation": None,
        "bimodal": None,
        "mode_gap": None,
        "needed_for_modes": 0,
        "sustained_runs": 1,
        "evidence_nats": None,
        "runs_to_show_min_change": None if needed else 1,
    }


def _of_noise(state: SeriesState, asked: Policy) -> dict[str, Any]:
    detector = state.detector
    model = detector.model if detector.settled(asked) else None
    gap: float | None = None
    seen = 0
    if model is not None:
        residuals = np.concatenate((detector.segment - model.level, detector.carried))
        seen = len(residuals)
        gap = mode_gap(residuals) if seen >= LEAST_RUNS else None
    return {
        "runs": len(detector.segment),
        "needed_runs": 0 if model is not None else max(1, detector.least(asked) - len(detector.segment)),
        "noise": None if model is None else model.scale,
        "minimum_detectable_effect": None if model is None else shown_by(model, asked, asked.sustained_runs),
        "autocorrelation": None if model is None else model.correlation,
        "bimodal": None if gap is None else gap > 0,
        "mode_gap": gap,
        "needed_for_modes": max(0, LEAST_RUNS - (seen or len(detector.segment))),
        "sustained_runs": asked.sustained_runs,
        "evidence_nats": asked.evidence_regression,
        "runs_to_show_min_change": None if model is None else _runs_needed(model, asked),
    }


def mode_gap(residuals: Floats) -> float:
    """Distance between two modes of the residuals, or 0 if one mode explains them."""
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


def _runs_needed(model: NoiseModel, policy: Policy) -> int:
    runs = np.arange(policy.sustained_runs, policy.memory_runs, dtype=np.float64)
    enough = np.flatnonzero(shown_by_each(model, policy, runs) <= math.log1p(policy.min_change))
    return int(runs[enough[0]]) if len(enough) else policy.memory_runs


def _in_words(p: Profile, policy: Policy, state: SeriesState) -> str:
    parts = [_noise_in_words(p, policy, state)]
    if p.extra_runs:
        alarms = f"{p.disproved} false alarm{'' if p.disproved == 1 else 's'}"
        parts.append(f"After {alarms} it asks for {p.sustained_runs} bad runs instead of {policy.sustained_runs}.")
    if seldom_return(state.workers):
        parts.append("Its workers seldom return: what they differ by is part of its noise.")
    for waiting in p.calibrating:
        parts.append(f"Worker {waiting.worker} is calibrated first: {more_runs(waiting.needed_runs)}.")
    if p.confirmed:
        parts.append(f"Of {p.confirmed} confirmed here, {p.disproved} turned out to be none.")
    return " ".join(parts)


def _noise_in_words(p: Profile, policy: Policy, state: SeriesState) -> str:
    if p.needed_runs:
        return f"Insufficient: {more_runs(p.needed_runs)} of this level needed before anything is judged."
    if state.kind.exact:
        return "An exact counter: a single run shows any change."
    assert p.noise is not None and p.minimum_detectable_effect is not None
    shown, gate = percent(p.minimum_detectable_effect, sign=False), percent(policy.min_change, sign=False)
    said = (
        f"Noise {percent(p.noise, sign=False)}; {p.sustained_runs} runs show a change of {shown}, "
        f"and one of {gate} takes {p.runs_to_show_min_change}."
    )
    if p.bimodal and p.mode_gap is not None:
        said += f" It goes back and forth between two levels {percent(math.expm1(p.mode_gap), sign=False)} apart."
    return said
