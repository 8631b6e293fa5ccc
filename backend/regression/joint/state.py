"""State of the joint detector for one project, and how it opens and changes incidents. Its parts decide."""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from backend.regression.cause.attribution import CauseName
from backend.regression.joint.health import CanaryNoise, Degraded, Health, HealthSignals
from backend.regression.joint.rows import RowsOfTestbed
from backend.regression.joint.scan import OnsetRange
from backend.regression.joint.terms import (
    Ask,
    Bools,
    Floats,
    Incident,
    IncidentAction,
    IncidentKind,
    IncidentUpdate,
    Ints,
    JointSeries,
)
from backend.regression.terms import Role

MOVED = 0.4
"""Share of the threshold: what moved less is not listed by itself."""
REPORTED_FROM = 0.66
"""Share of the threshold: a suite version that moves nothing by this much is not reported."""


class QuestionPurpose(enum.StrEnum):
    CHANGE = "change"
    MACHINE = "machine"
    UPGRADE = "upgrade"
    DRIFT = "drift"


@dataclass(slots=True)
class CodeChange:
    """A change of the code that was proved, and where it shows."""

    incident: int
    change: Floats
    error: Floats
    listed: Bools
    place: OnsetRange
    shown: dict[str, int] = field(default_factory=dict)
    """Testbed to the number of its rows when the change was found there."""
    reported_between: tuple[int, int] = (0, 0)
    """The commits at which it may have begun, as reported."""
    drift: bool = False
    open: bool = True


@dataclass(slots=True)
class Degradation:
    """A worker that is slower than it was, or busy with something else."""

    incident: int
    kind: Degraded
    since: float
    rows: list[int]
    canary: bool
    change: Floats
    rebased: bool = False
    well: int = 0
    moved: float = 0.0
    """How far its canary moved at first."""


@dataclass(slots=True)
class Upgrade:
    testbed: str
    level: int
    position: int
    incident_id: int | None = None
    """None: none was reported."""
    settled: bool = False
    tries: int = 0
    listed: Bools | None = None
    cleared: int = -1
    """The newest commit of a session that found no change of the code."""
    steady: set[int] = field(default_factory=set)
    """Benchmarks of which a session with long ago showed that it was not the code that made them slower."""
    refits: int = 0
    key: int = 0


@dataclass(slots=True)
class SuiteVersionChange:
    suite: int
    position: int
    settled: bool = False
    incident_id: int | None = None
    """None: none was reported."""
    key: int = 0


@dataclass(slots=True)
class Inquiry:
    """An open question to a session."""

    purpose: QuestionPurpose
    testbed: str
    base: int
    head: int
    pattern: Floats
    rows: Ints
    worker: int | None
    others_disagree: bool = False
    upgrade: Upgrade | None = None
    results: list[Floats] = field(default_factory=list)
    processes: int = 5
    lead: int = 0
    unrest: Floats = field(default_factory=lambda: np.ones(1))
    """Variance between the session's processes over the usual one, per series or of all."""


class JointState:
    """Series, rows of each testbed, what is known of workers, software and code, and the incidents so far.

    One record that all parts of the joint detector share and change.
    """

    def __init__(self, series: Sequence[JointSeries], testbeds: Sequence[str]) -> None:
        self.series = list(series)
        self.size = len(self.series)
        self.smallest: Floats = np.array([s.min_change for s in self.series])
        names = list(dict.fromkeys(s.benchmark for s in series))
        suites = list(dict.fromkeys(s.suite for s in series))
        self.suites = suites
        self.benchmark: Ints = np.array([names.index(s.benchmark) for s in series], dtype=np.int64)
        self.suite: Ints = np.array([suites.index(s.suite) for s in series], dtype=np.int64)
        self.machine_bound: Bools = np.array([s.machine_bound and not s.exact for s in series])
        self.shown: Bools = np.array([s.role in (Role.GATE, Role.DERIVED) for s in series])
        self.gate: Bools = np.array([s.role is Role.GATE for s in series])
        self.rows = {name: RowsOfTestbed(name, series) for name in testbeds}
        self.health: dict[tuple[str, int], Health] = {}
        self.held: dict[tuple[str, int], list[tuple[HealthSignals, int]]] = {}
        """Of every worker the newest runs in a row that had signals, none of them proof, and their rows."""
        self.degraded: dict[tuple[str, int], Degradation] = {}
        self.was_degraded: dict[tuple[str, int], tuple[Degradation, int, float]] = {}
        self.canary_noise = CanaryNoise()
        self.suspicion: dict[tuple[str, int], int] = {}
        self.environments: dict[str, list[tuple[tuple[str, str], ...]]] = {name: [] for name in testbeds}
        self.worker_level: dict[tuple[str, int], int] = {}
        self.upgrades: list[Upgrade] = []
        self.versions: dict[str, str] = {}
        self.version_changes: list[SuiteVersionChange] = []
        self.code_changes: list[CodeChange] = []
        self.incidents: dict[int, Incident] = {}
        self.docs: set[int] = set()
        self.oldest = sys.maxsize
        self.newest = 0
        """The first and the last position that was run."""
        self.pending: Inquiry | None = None
        self.updates: list[IncidentUpdate] = []
        self.keys = 0
        self.drifting: dict[int, int] = {}
        """Benchmark to the commit until which its small losses are those of a drift that was reported."""
        self.steady_until: dict[int, int] = {}
        """Benchmark to the commit until which it is not looked at again: it does not drift, or not enough yet."""
        self.losing: dict[int, int] = {}
        """Benchmark to the commit until which it may be losing bit by bit, and no upgrade is blamed for that."""
        self.drift_checked = 0
        self.looked_back = 0
        """The commit at which the last session with one of long ago was asked for."""
        self.muted: dict[int, int] = {}
        self.muted_on: dict[tuple[str, int], int] = {}
        """Testbed and benchmark to the commit until which nothing is asked about it there: it was refuted too often."""
        self.refuted: dict[tuple[str, int], tuple[int, int]] = {}
        """Testbed and benchmark to the commit at which sessions refuted it last, and how often in a row."""
        self.cleared: dict[int, int] = {}
        self.partner = self.partners()

    def partners(self) -> Ints:
        """Per series the one that people look at in its benchmark, itself where it is one."""
        first = {
            int(b): i for i, b in reversed(list(enumerate(self.benchmark))) if self.gate[i] and self.machine_bound[i]
        }
        return np.array(
            [
                i if self.shown[i] or not self.machine_bound[i] else first.get(int(self.benchmark[i]), i)
                for i in range(self.size)
            ],
            dtype=np.int64,
        )

    # --- the order of things

    def new_key(self) -> int:
        self.keys += 1
        return self.keys

    def unsettled(self, rows: RowsOfTestbed) -> Upgrade | None:
        """The newest upgrade of a testbed of which it is not known yet what it did."""
        open_ones = [u for u in self.upgrades if u.testbed == rows.name and not u.settled]
        return open_ones[-1] if open_ones else None

    def not_docs(self, position: int) -> int:
        """The nearest commit that may be to blame: not one that touched documentation only."""
        return next(
            (p for p in (*range(position, position + 6), *range(position, 0, -1)) if p not in self.docs), position
        )

    # --- series and their benchmarks

    def with_moved(self, moved: Bools) -> Bools:
        """All series of the benchmarks in which something moved."""
        hit: Bools = np.isin(self.benchmark, np.unique(self.benchmark[moved]))
        return hit

    def with_shown(self, moved: Bools) -> Bools:
        """Series of benchmarks in which something that people look at moved: phases alone are not reported."""
        benchmarks = np.unique(self.benchmark[moved & self.shown])
        hit: Bools = np.isin(self.benchmark, benchmarks)
        return hit

    def lead_of(self, change: Floats, listed: Bools) -> int:
        """The gate that moved most among those listed."""
        pool = listed & self.gate if (listed & self.gate).any() else listed if listed.any() else self.gate
        return int(np.argmax(np.where(pool, np.abs(change), -1.0)))

    # --- asking and telling

    def ask(self, inquiry: Inquiry) -> Ask:
        rows = self.rows[inquiry.testbed]
        avoid = None if inquiry.worker is None else rows.workers[inquiry.worker]
        if avoid is None:
            avoid = next((rows.workers[w] for name, w in self.degraded if name == rows.name), None)
        return Ask(
            testbed=inquiry.testbed, base=inquiry.base, head=inquiry.head, series=tuple(range(self.size)), avoid=avoid
        )

    def open_incident(
        self,
        kind: IncidentKind,
        cause: CauseName,
        listed: Bools,
        testbeds: tuple[str, ...],
        place: OnsetRange,
        change: Floats,
        *,
        worker: str | None = None,
        drift: bool = False,
    ) -> int:
        number = self.new_key()
        lead = self.lead_of(change, listed)
        self.incidents[number] = Incident(
            id=number,
            kind=kind,
            cause=cause,
            series=tuple(np.flatnonzero(listed).tolist()),
            testbeds=testbeds,
            worker=worker,
            first_bad=place.commit,
            range_start=place.first,
            range_end=place.last,
            magnitude=float(change[lead]),
            drift=drift,
        )
        self.updates.append(IncidentUpdate(action=IncidentAction.OPEN, incident=self.incidents[number]))
        return number

    def change_incident(self, number: int, **what: object) -> None:
        """More is known: reported only if it differs from before."""
        if "series" in what:
            what["series"] = tuple(int(s) for s in what["series"])  # type: ignore[attr-defined]
        changed = replace(self.incidents[number], **what)  # type: ignore[arg-type]
        first, last = sorted((changed.range_start, changed.range_end))
        changed = replace(changed, range_start=min(first, changed.first_bad), range_end=last)
        if changed != self.incidents[number]:
            self.incidents[number] = changed
            self.updates.append(IncidentUpdate(action=IncidentAction.UPDATE, incident=changed))

    def close_incident(self, number: int, position: int) -> None:
        self.incidents[number] = replace(self.incidents[number], closed_by=position)
        self.updates.append(IncidentUpdate(action=IncidentAction.CLOSE, incident=self.incidents[number]))
