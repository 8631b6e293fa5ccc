"""Terms of the joint detector: its input (runs, sessions), its questions, and what it reports (incidents)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from backend.regression.cause.attribution import CauseName
from backend.regression.policy import Policy
from backend.regression.terms import Role

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

SIZES = frozenset({"B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"})
"""Units of what a slow machine does not change; what is exact it does not change either."""
HARMLESS_THROTTLE = frozenset({"sw_power_cap", "gpu_idle", "applications_clocks_setting"})
"""Reasons that cards give in everyday life."""


class IncidentKind(enum.StrEnum):
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    INFRA = "infra"
    ENVIRONMENT = "environment"
    METHOD = "method"


class IncidentAction(enum.StrEnum):
    OPEN = "open"
    UPDATE = "update"
    WITHDRAW = "withdraw"
    CLOSE = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSeries:
    """One series as the joint detector needs it; the same series is measured on every testbed."""

    id: str
    suite: str
    benchmark: str
    role: Role
    sign: float
    """+1 where lower is better, -1 where higher is: what makes a logarithm a cost."""
    exact: bool = False
    machine_bound: bool = True
    """False for counts and sizes: a slow machine does not change them."""
    min_change: float = Policy().min_change
    """The threshold of its policy: smaller changes are not reported. The layers' limits are shares of it (log cost)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRun:
    """One run of all suites on one worker. `cost` and `spread` follow the series; NaN where a benchmark failed."""

    position: int
    testbed: str
    worker: str
    timestamp: float
    cost: Floats
    """Mean log cost over the processes."""
    spread: Floats
    """Variance of the log cost between processes."""
    environment: Mapping[str, str] = field(default_factory=dict)
    suite_version: Mapping[str, str] = field(default_factory=dict)
    canary: Mapping[str, float] = field(default_factory=dict)
    """Log cost of each canary: up is slower."""
    throttle: frozenset[str] = frozenset()
    clock_mhz: float | None = None
    temperature_c: float | None = None
    foreign_processes: int = 0
    load: float | None = None
    docs_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A confirming session: two commits interleaved on one worker, so that only the code differs."""

    testbed: str
    base: int
    head: int
    series: tuple[int, ...]
    avoid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """Log cost of head minus base per series (NaN where one is missing), and how many processes a side ran."""

    testbed: str
    base: int
    head: int
    change: Floats
    spread: Floats
    """Variance of the log cost between processes of one arm: a busy machine shows here."""
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One event, as reported."""

    id: int
    kind: IncidentKind
    cause: CauseName
    series: tuple[int, ...]
    testbeds: tuple[str, ...]
    worker: str | None
    first_bad: int
    range_start: int
    range_end: int
    magnitude: float
    """Log cost of the gate that moved most."""
    drift: bool = False
    closed_by: int | None = None
    """The first good position again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentUpdate:
    """One line of an incident's story."""

    action: IncidentAction
    incident: Incident
