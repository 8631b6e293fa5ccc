"""Events that change a regression, and the result of applying one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.regression.cause.attribution import Cause
from backend.regression.grouping import Group
from backend.regression.incidents import ReportedIncident
from backend.regression.regression_state import Action, RegressionState, TrackedRegression
from backend.regression.restatements import Restatement

BY_ITSELF = "tidemark"
"""The actor of automatic decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSeen:
    """A run, a session or moved commits have changed its change points."""

    run_id: str
    position: int
    """Of the run."""
    cause: Cause | None
    """Of what `leading` returns; None where that is None."""
    noise: float | None
    """Of the series that leads: relative spread between runs."""
    incident: ReportedIncident | None = None
    """That it is part of."""
    newly_confirmed: frozenset[int] = frozenset()
    """Series whose change points this very event confirmed."""
    part_of: int | None = None
    """The regression that took over its change points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentChanged(ChangeSeen):
    """The joint detector has reported the incident again: all judgements of its change points follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAgain:
    """An ended regression is back, in these change points. `cause`: of an alarm that is not about the code."""

    run_id: str
    found: Group
    cause: Cause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDecided:
    """A confirming session has ended. What it says of change points is seen by their series (`ChangeSeen`)."""

    session_id: str
    state: str
    decision: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonDecided:
    """A person, or Tidemark because an alarm lasts, has done something with it."""

    action: Action
    actor: str
    reason: str | None = None
    note: str | None = None
    owner: str | None = None
    """Of an acknowledgement: who has it from now on, where that is not the actor."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Of a decision: the newest position of each series then, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmEnded:
    """An alarm that is not about the code is over."""

    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRegrouped:
    """A person has split a regression or merged two: change points went from one to another, and this is either."""

    kind: str
    """`split`, `merged`, or `undone`."""
    actor: str
    moved: Mapping[str, Any]
    """The change `points` that went `from` one regression `to` another."""
    is_proved: bool = False
    """The regression they come from was confirmed by evidence."""
    undoes: int | None = None
    """The event that is undone with it."""
    is_undoable_here: bool = False


Event = ChangeSeen | ShownAgain | SessionDecided | PersonDecided | PersonRegrouped | AlarmEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A further entry in the history of a regression. The commit of `detail["position"]` is named by who stores it."""

    kind: str
    state: RegressionState
    actor: str = BY_ITSELF
    note: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Result of applying an event. The regression is the same object where the event changes nothing."""

    regression: TrackedRegression
    restatements: tuple[Restatement, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    is_located: bool = False
    """Its evidence was weighed again, and with it where it began."""
    fixed_position: int | None = None
    """Where it has just ended."""
    alarms_confirmed: tuple[int, ...] = ()
    """Series that have just given a true alarm …"""
    alarms_withdrawn: tuple[int, ...] = ()
    """… or a false one: the detector keeps score of itself."""
