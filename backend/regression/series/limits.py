"""Limits that the runs of a level are compared with: baseline, band, noise. They stay the same between refits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from backend.regression.cost import value_of
from backend.regression.detector.density import NoiseModel
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Opened
from backend.regression.detector.power import SOON, is_unsteady, shown_by
from backend.regression.policy import Policy
from backend.regression.terms import Direction


class Values(NamedTuple):
    """Limits as they apply to a worker's runs, in the metric's own unit."""

    baseline: float
    band_low: float
    band_high: float
    anchor: float


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Limits from detector and policy for every run; logs are log cost."""

    model: NoiseModel
    opened: tuple[Opened, ...]
    policy: Policy
    policy_version: str
    least_change: float
    """The policy's smallest regression."""
    level: float
    """The level from which changes are measured: the one before the oldest open regression."""
    detector_anchor: float | None
    anchor: float
    """The reference against which small losses accumulate."""
    low: float
    high: float
    """The band of harmless runs, relative to the level."""
    half: float
    """Half the confidence interval of a run."""
    n_baseline: int
    shown: float
    """The smallest change that the sustained number of runs would show, as a fraction."""
    sees: float | None
    """For a series too unsteady to be judged, or to see another step beside an open one: what some runs would show."""
    numbers: dict[str, float]
    _values: dict[tuple[float, Direction], Values] = field(default_factory=dict)

    def hold(self, detector: Detector, policy: Policy) -> bool:
        """Whether these limits still apply to this detector and policy."""
        return (
            self.model is detector.model
            and self.opened is detector.opened
            and self.detector_anchor == detector.anchor
            and (self.policy is policy or self.policy == policy)
        )

    def values(self, offset: float, direction: Direction) -> Values:
        """In the metric's unit, for a worker with this offset."""
        key = offset, direction
        found = self._values.get(key)
        if found is None:
            low, high = ends(self.level + offset + self.low, self.level + offset + self.high, direction)
            baseline, anchor = value_of(self.level + offset, direction), value_of(self.anchor + offset, direction)
            found = self._values[key] = Values(baseline, low, high, anchor)
        return found


def limits_of(model: NoiseModel, detector: Detector, policy: Policy) -> Limits:
    """The limits of a detector that has a model."""
    opened = detector.opened
    level = opened[0].before if opened else model.level
    low, high = model.band(policy.alpha)
    return Limits(
        model=model,
        opened=opened,
        policy=policy,
        policy_version=policy.version,
        least_change=math.log1p(policy.min_change),
        level=level,
        detector_anchor=detector.anchor,
        anchor=level if detector.anchor is None else detector.anchor,
        low=low,
        high=high,
        half=1.96 * model.scale * math.sqrt(1 + 1 / model.runs),
        n_baseline=len(opened[0].runs) if opened else model.runs,
        shown=shown_by(model, policy, policy.sustained_runs),
        sees=shown_by(model, policy, SOON) if is_unsteady(model, policy) else None,
        numbers={"min_change": policy.min_change, "sustained_runs": float(policy.sustained_runs)},
    )


def ends(low: float, high: float, direction: Direction) -> tuple[float, float]:
    """Two bounds of log cost as values of the metric, the smaller one first."""
    one, other = value_of(low, direction), value_of(high, direction)
    return (one, other) if one <= other else (other, one)
