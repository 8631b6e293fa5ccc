"""Exact counters: they have no noise, so any change is a change point, and a regression only past the policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backend.regression.detector.memory import OPEN_ONES
from backend.regression.policy import Policy
from backend.regression.terms import Direction

REMEMBERED = 8
FLAPPING = 3
"""A value left this often before may be one that the counter alternates between; until then every rise is reported."""
LONG_HELD = 80
"""Leaving a value that has held for this many runs is reported, however often it was left."""


@dataclass(frozen=True, slots=True)
class ExactOpened:
    """A reported worsening of a counter that has not ended."""

    onset: int
    last_good: int | None
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class ExactChange:
    """The counter has another value than the run before."""

    onset: int
    last_good: int
    before: float
    after: float
    change: float
    past_threshold: bool
    judged: bool
    """False while the earlier value was too young to be a baseline."""
    known: bool
    """It keeps going back and forth between the same values."""
    fixed: tuple[ExactOpened, ...] = ()


@dataclass(frozen=True, slots=True)
class Counter:
    """State of one exact series."""

    value: float | None = None
    held: int = 0
    last: int = 0
    anchor: float | None = None
    earlier: tuple[float, ...] = ()
    """Values of the last few levels, oldest first, without the present one."""
    opened: tuple[ExactOpened, ...] = ()

    def settled(self, policy: Policy) -> bool:
        """True when the present value can be a baseline."""
        return self.held >= policy.exact_baseline_runs or bool(self.opened)

    def take(
        self, value: float, place: int, direction: Direction, policy: Policy
    ) -> tuple[Counter, ExactChange | None]:
        """The counter after one more run, and the change if there is one."""
        if self.value is None:
            return Counter(value, 1, place, value), None
        if value == self.value:
            anchor = value if self.held + 1 == policy.exact_baseline_runs and not self.earlier else self.anchor
            return replace(self, held=self.held + 1, last=place, anchor=anchor), None
        return self._changed(value, place, direction, policy)

    def _changed(self, value: float, place: int, direction: Direction, policy: Policy) -> tuple[Counter, ExactChange]:
        assert self.value is not None
        change = exact_change(self.value, value, direction)
        smallest = policy.exact_min_change
        settled = self.settled(policy)
        known = self.earlier.count(value) >= FLAPPING and self.held < LONG_HELD
        anchor = self.value if self.anchor is None else self.anchor
        added_up = exact_change(anchor, value, direction)
        fixed: tuple[ExactOpened, ...] = ()
        if change > 0:
            past_threshold = settled and not known and (change > smallest or added_up > smallest)
        else:
            fixed = tuple(o for o in self.opened if exact_change(o.before, value, direction) <= smallest)
            past_threshold = settled and not known and -change > smallest
        opened = tuple(o for o in self.opened if o not in fixed)
        if past_threshold and change > 0:
            opened = (*opened[1 - OPEN_ONES :], ExactOpened(place, self.last, self.value, value))
        moved = past_threshold or bool(fixed) or not settled or (change < 0 and added_up < 0)
        after = Counter(
            value, 1, place, value if moved else self.anchor, (*self.earlier[-(REMEMBERED - 1) :], self.value), opened
        )
        return after, ExactChange(place, self.last, self.value, value, change, past_threshold, settled, known, fixed)

    def forget(self, onset: int) -> Counter:
        """A person accepted this change, or said that it is none: the present value is the baseline."""
        return replace(self, opened=tuple(o for o in self.opened if o.onset != onset), anchor=self.value)


def exact_change(base: float, head: float, direction: Direction) -> float:
    """Cost change of a counter, which may be zero: from zero, one more counts as 100 %."""
    old, new = (base, head) if direction is Direction.LOWER else (head, base)
    return (new - old) / max(abs(old), 1.0 if old == 0 else abs(old))
