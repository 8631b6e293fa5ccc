"""The states of a regression, and the one table of the transitions between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.regression.cause.attribution import Cause, CauseName


class RegressionState(enum.StrEnum):
    SUSPECT = "suspect"
    CONFIRMED = "confirmed"
    ACKNOWLEDGED = "acknowledged"
    FIXED = "fixed"
    EXPECTED = "expected"
    INVALID = "invalid"
    WITHDRAWN = "withdrawn"


S = RegressionState
OPEN = frozenset({S.SUSPECT, S.CONFIRMED, S.ACKNOWLEDGED})
"""States that new evidence may change; the others are over, or were decided."""
ANNOUNCED = frozenset({S.CONFIRMED, S.ACKNOWLEDGED})
"""The open states of which people were notified."""
DECIDED = frozenset({S.EXPECTED, S.INVALID})
"""By a person, or because a new baseline began automatically."""


class Action(enum.StrEnum):
    """Actions of people on a regression."""

    ACKNOWLEDGE = "acknowledge"  # and own it
    RELEASE = "release"  # nobody owns it any more
    EXPECTED = "expected"  # accepted with a reason: the present level is the baseline
    INVALID = "invalid"  # not real
    REOPEN = "reopen"
    NOTE = "note"
    UNDO = "undo"


class Step(enum.StrEnum):
    """A transition from state to state: by evidence, or by the actions of people that change a state."""

    PROVE = "prove"  # its change points, or an incident, show it, and the code is to blame
    TAKE_BACK = "take back"  # an incident finds another cause
    FIX = "fix"
    WITHDRAW = "withdraw"
    SHOW_AGAIN = "show again"
    END_INFRA_ALARM = "end infra alarm"  # one that is not about the code, and that nobody was told of as a regression
    ACKNOWLEDGE = "acknowledge"
    RELEASE = "release"
    EXPECTED = "expected"
    INVALID = "invalid"
    REOPEN = "reopen"
    UNDO = "undo"
    MERGE = "merge"  # a person says that it is part of another
    REGROUP = "regroup"  # a person has moved change points to it, or some of its own away


class Target(enum.StrEnum):
    """The target of a transition that depends on more than the state."""

    UNDECIDED = "undecided"
    """The state without a decision: acknowledged while it has an owner, else confirmed if it was proved."""
    AS_IT_WAS = "as it was"
    """The state before the action that is undone."""


TRANSITIONS: Mapping[Step, Mapping[RegressionState, RegressionState | Target]] = {
    Step.PROVE: {S.SUSPECT: S.CONFIRMED},
    Step.TAKE_BACK: {S.CONFIRMED: S.SUSPECT},
    # The end of what was decided is noted, and changes no decision.
    Step.FIX: {**dict.fromkeys(OPEN, S.FIXED), S.EXPECTED: S.EXPECTED, S.INVALID: S.INVALID},
    Step.WITHDRAW: {**dict.fromkeys(OPEN, S.WITHDRAWN), S.EXPECTED: S.EXPECTED, S.INVALID: S.INVALID},
    Step.SHOW_AGAIN: {S.FIXED: S.SUSPECT, S.WITHDRAWN: S.SUSPECT},
    Step.END_INFRA_ALARM: {S.SUSPECT: S.WITHDRAWN},
    Step.ACKNOWLEDGE: dict.fromkeys(OPEN, S.ACKNOWLEDGED),
    Step.RELEASE: dict.fromkeys(OPEN, Target.UNDECIDED),
    Step.EXPECTED: dict.fromkeys(OPEN, S.EXPECTED),
    Step.INVALID: dict.fromkeys(OPEN, S.INVALID),
    Step.REOPEN: dict.fromkeys(DECIDED, Target.UNDECIDED),
    Step.UNDO: dict.fromkeys(OPEN | DECIDED, Target.AS_IT_WAS),
    Step.MERGE: dict.fromkeys(OPEN, S.WITHDRAWN),
    Step.REGROUP: {**{state: state for state in OPEN}, S.WITHDRAWN: Target.UNDECIDED},
}
"""Every transition, the states in which it is possible, and its target. Anything else is refused."""


class StepRefused(ValueError):
    """A transition that is not possible in this state."""

    def __init__(self, state: RegressionState, step: str) -> None:
        super().__init__(f"a regression that is {state} cannot take the step {step!r}")
        self.state, self.step = state, step


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoableAction:
    """The last action by a person that changed a regression's state and was not undone."""

    event_id: int
    was: Mapping[str, Any]
    """`state`, `owner` and `reason` before it …"""
    became: Mapping[str, Any]
    """… and after it."""
    moved: Mapping[str, Any] | None = None
    """For a split or a merge: the change `points` that moved `from` one regression `to` another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRegression:
    """A regression with what the rules that change it need. Changes are fractions of cost."""

    id: int = 0
    """0: not stored yet."""
    testbed_id: int
    """Of the leading series."""
    state: RegressionState
    kind: str
    cause: str | None
    evidence: tuple[str, ...]
    first_bad_position: int
    last_good_position: int | None
    lead_series_id: int | None
    lead_change: float | None
    lead_change_low: float | None = None
    lead_change_high: float | None = None
    still_bad: bool = True
    held_back: bool = False
    """One of its changes is certain, but code is not to blame: nobody is notified of slower code."""
    owner: str | None = None
    reason: str | None = None
    is_proved: bool = False
    """It was confirmed by evidence that was not withdrawn."""
    is_infra_alarm: bool = False
    """It was reported as an infra alarm: caused by a machine, an environment or a method."""
    undoable: UndoableAction | None = None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def is_decided(self) -> bool:
        return self.state in DECIDED

    @property
    def known_cause(self) -> Cause | None:
        """The cause that was found last; None: there was none."""
        if self.cause is None:
            return None
        name = CauseName(self.cause)
        return Cause(name, self.evidence, suppress=name is not CauseName.CODE)


def is_possible(regression: TrackedRegression, step: Step) -> bool:
    try:
        state_after(regression, step)
    except StepRefused:
        return False
    return True


def state_after(regression: TrackedRegression, step: Step) -> RegressionState:
    """The state after a transition. Raises `StepRefused`."""
    target = TRANSITIONS[step].get(regression.state)
    match target:
        case None:
            raise StepRefused(regression.state, step)
        case RegressionState():
            return target
        case Target.UNDECIDED:
            if regression.owner is not None:
                return S.ACKNOWLEDGED
            return S.CONFIRMED if regression.is_proved else S.SUSPECT
        case Target.AS_IT_WAS:
            undoable = regression.undoable
            if undoable is None or undoable.became["state"] != regression.state:
                raise StepRefused(regression.state, step)
            return RegressionState(undoable.was["state"])
