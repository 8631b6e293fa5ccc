"""The detector's state of one series between two runs, and the changes that it accepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Self

import numpy as np

from backend.regression.detector.density import NAT, Floats, Ints, NoiseModel
from backend.regression.detector.evidence import SHIFTS
from backend.regression.policy import Policy

NOTICE = 6 * NAT
"""A CUSUM beyond this triggers a close look."""
OPEN_ONES = 40
"""Reported regressions without an end that a series remembers; beyond that, the oldest is forgotten and never ends."""


@dataclass(frozen=True, slots=True)
class Change:
    """An accepted change of level. Places are first-parent positions (or indices of a history)."""

    onset: int
    first: int
    last: int
    """The onset lies between these, as far as the data can tell."""
    last_good: int | None
    detected: int
    size: float
    """Log cost: above 0 is worse."""
    before: float
    after: float
    evidence: float
    drift: bool = False
    past_threshold: bool = True
    """At least the policy's smallest regression (or improvement)."""
    known: bool = False
    """The series alternates between these two levels: not reported again."""
    fixed: tuple[Opened, ...] = ()
    """Regressions that ended here, because the level returned."""

    @classmethod
    def at(cls, places: Ints, run: int, before: float, after: float, evidence: float) -> Change:
        """A change that began at exactly this run of those at these places, and is accepted at the last of them."""
        return cls(
            onset=int(places[run]),
            first=int(places[run]),
            last=int(places[run]),
            last_good=int(places[run - 1]),
            detected=int(places[-1]),
            size=after - before,
            before=before,
            after=after,
            evidence=evidence,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A reported regression that has not ended, and what the series was like before it."""

    onset: int
    last_good: int | None
    before: float
    after: float
    drift: bool
    runs: Floats
    """The newest runs before the onset."""
    places: Ints


def empty() -> Floats:
    """No runs."""
    return np.empty(0)


def nowhere() -> Ints:
    """The places of no runs."""
    return np.empty(0, dtype=np.int64)


def at_rest() -> Ints:
    """CUSUMs that have seen nothing."""
    return np.zeros(2 * len(SHIFTS), dtype=np.int64)


@dataclass(slots=True, eq=False)
class Memory:
    """State of one series. Arrays are replaced, never written into, so a shallow copy is a snapshot.

    Counts (`started`, `next_look`, `next_fit`) are indices into the segment.
    """

    segment: Floats = field(default_factory=empty)
    places: Ints = field(default_factory=nowhere)
    carried: Floats = field(default_factory=empty)
    correlation: float = 0.0
    assumed_noise: float = 0.0
    replicated: bool = False
    """Runs have several processes, so that their spread is known from the first."""
    model: NoiseModel | None = None
    cusum: Ints = field(default_factory=at_rest)
    started: Ints = field(default_factory=at_rest)
    """Index of the first run of each CUSUM's excursion."""
    notice: int = NOTICE
    """A CUSUM this high gets a close look; raised after a look that refused."""
    next_look: int = 0
    next_fit: int = 0
    fitted: int = 0
    """Runs of the segment in the model."""
    anchor: float | None = None
    """The level that small losses accumulate against: that before the first of them since the last reported change."""
    levels: tuple[float, ...] = ()
    """Levels of the last few segments, oldest first."""
    opened: tuple[Opened, ...] = ()
    borrowed: int = 0
    """Runs at the head of the segment that are older than the level: those before a regression that was fixed."""

    def snapshot(self) -> Self:
        """A copy that later feeding of this one does not change."""
        return type(self)(*_ALL(self))

    def least(self, policy: Policy) -> int:
        """Runs a level must have before anything is compared with it."""
        return min(3, policy.min_baseline_runs) if self.levels else policy.min_baseline_runs

    def settled(self, policy: Policy) -> bool:
        """True when there is a baseline to compare with."""
        return self.model is not None and len(self.segment) >= self.least(policy)


FIELDS = tuple(Memory.__dataclass_fields__)
_ALL = attrgetter(*FIELDS)
