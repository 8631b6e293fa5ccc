"""The joint detector in the service: per project and suite, one that has read all stored runs, and its reports.

It stores no state of its own. When a process starts, a series is new or commits change position,
the newest runs are read again in the order of their arrival, with people's decisions and sessions' answers where
they came, and the same incidents result. What its incidents do to regressions is defined
in `backend.services.joint.incidents`; which sessions are requested, in `backend.services.joint.questions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from backend.regression.joint.detector import FIRST_ROWS, JointDetector
from backend.regression.joint.terms import Ask, Incident, IncidentUpdate
from backend.regression.policy import PolicyBook
from backend.services.base.savepoints import is_lost
from backend.services.joint.incidents import SuiteIncidents, report
from backend.services.joint.questions import Questions
from backend.services.joint.reading import Columns, joint_run
from backend.services.joint.status import note_pauses, why_of
from backend.services.policy.resolve import policy_book
from backend.store.base import projects as project_store
from backend.store.joint import incidents as store
from backend.store.joint.incidents import AcceptedChange, ArrivedRun, JointRunRow, Question

log = logging.getLogger("tidemark.joint")

REPLAYED = 300
"""Newest runs of a suite on each testbed that a new detector reads."""
MOST_ROWS = 1200
"""Runs of one testbed after which a detector starts over."""
LATEST = timedelta(minutes=10)
"""A run is stored with the time at which its delivery began, so it may become visible this much later."""
RECENT = 60
"""Commits: anything older when a detector starts is history, and is not reported any more."""
AT_A_TIME = 100
"""Runs whose documents are read together."""
PAUSE = timedelta(minutes=1)
"""Pause of a project whose reading failed: starting over takes seconds."""
BROKEN_PAUSE = timedelta(hours=1)
"""Pause of a suite with something that cannot be processed."""
IDLE = timedelta(hours=6)
"""Time without a run after which a project's detectors are dropped: the next run recreates them, in seconds."""
MOST_VALUES = 5_000_000
"""The most points that all detectors hold: beyond it, those idle for longer than `LATEST` are dropped."""


class SuiteDetector:
    """One suite of a project on all its testbeds: its joint detector, and how far it has read."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.detector = JointDetector(columns.series, columns.testbeds)
        self.read: set[str] = set()
        self.accepted: set[int] = set()
        self.first: ArrivedRun | None = None
        self.last: ArrivedRun | None = None
        self.numbers: dict[int, int] = {}
        """Id of an incident within the detector → its id in the store."""
        self.changed: dict[int, Incident] = {}
        """Incidents with news that nobody was told yet."""
        self.waits_for: Question | None = None
        self.broken_at: datetime | None = None
        """Something in what it reads it cannot take in: it pauses, and is begun anew."""
        self.why = ""
        self._asked = 0

    @property
    def is_broken(self) -> bool:
        return self.broken_at is not None

    def is_pause_over(self, now: datetime) -> bool:
        """Whether what it could not process may be fixed, or has become too old to be read."""
        return self.broken_at is not None and now - self.broken_at >= BROKEN_PAUSE

    @property
    def pause(self) -> tuple[datetime, str]:
        """Until when it pauses, and why."""
        assert self.broken_at is not None
        return self.broken_at + BROKEN_PAUSE, self.why

    @property
    def values(self) -> int:
        """How many points of series it holds."""
        return len(self.columns.series) * sum(rows.n for rows in self.detector.state.rows.values())

    @property
    def is_full(self) -> bool:
        return any(rows.n > MOST_ROWS for rows in self.detector.state.rows.values())

    def stands(self, c: Connection) -> bool:
        """Whether the commits of what was read still have their positions, and people's decisions still apply."""
        ends = [run for run in (self.first, self.last) if run is not None]
        placed = store.positions(c, [run.id for run in ends]) if ends else {}
        holding = store.still_accepted(c, self.accepted) if self.accepted else set()
        return all(placed.get(run.id) == run.position for run in ends) and holding == self.accepted

    def accept(self, decision: AcceptedChange) -> None:
        """A person accepted a change."""
        self.accepted.add(decision.event_id)
        places = [place for place in map(self.columns.place_of, decision.series) if place is not None]
        if places:
            testbeds = sorted({testbed for _, testbed in places})
            series = sorted({column for column, _ in places})
            self._note(self.detector.accept(decision.first_bad_position, testbeds, series))

    def take(self, arrived: ArrivedRun, stored: JointRunRow, questions: Questions) -> None:
        """Add a run; returns the session that it makes necessary, if any."""
        self.read.add(arrived.id)
        self.first, self.last, self._asked = self.first or arrived, arrived, 0
        updates, ask = self.detector.run(joint_run(self.columns, arrived, stored))
        self._note(updates)
        self._ask(ask, questions)
        self.hear(questions)

    def hear(self, questions: Questions, *, at_end: bool = False) -> None:
        """Read the awaited answer, if it is there. `at_end`: all runs have been read."""
        while self.waits_for is not None and self.last is not None:
            if not questions.is_answered(self.waits_for, self.read, last=self.last.id if at_end else None):
                return
            answer, self.waits_for = questions.answer(self.waits_for, self.columns), None
            updates, ask = self.detector.session(answer)
            self._note(updates)
            self._ask(ask, questions)

    def leave_unheard(self, questions: Questions) -> None:
        """Mark answers that are no longer awaited as read."""
        if self.last is not None:
            questions.leave_unheard(self.columns.suite, self.last.id, awaited=self.waits_for)

    def _ask(self, ask: Ask | None, questions: Questions) -> None:
        while ask is not None:
            assert self.last is not None  # only runs raise questions
            self.waits_for = questions.ask(ask, self.columns.suite, self.last.id, self._asked)
            self._asked += 1
            if self.waits_for is not None:
                return
            updates, ask = self.detector.session(None)
            self._note(updates)

    def _note(self, updates: Iterable[IncidentUpdate]) -> None:
        """A testbed of few runs is only learnt from: the rule of one series at a time decides there."""
        for update in updates:
            incident = update.incident
            if all(self.detector.state.rows[name].n >= FIRST_ROWS for name in incident.testbeds):
                self.changed[incident.id] = incident


class JointDetectors:
    """The joint detectors of all projects, in the memory of one process.

    `most_values`: points of series that they may hold before the longest idle detectors are dropped.
    """

    def __init__(self, most_values: int = MOST_VALUES) -> None:
        self._most_values = most_values
        self._suites: dict[int, dict[str, SuiteDetector]] = {}
        self._extents: dict[int, tuple[Any, ...]] = {}
        self._read_at: dict[int, datetime] = {}
        """When each project was read last: what arrived since is read next, however long that was ago."""
        self._looked_at: datetime | None = None
        """When it was last asked which projects have news."""
        self._rests_until: dict[int, datetime] = {}
        """Projects whose last reading failed."""

    def catch_up_all(self, engine: Engine, now: Callable[[], datetime], is_stopping: Callable[[], bool]) -> None:
        """Read new runs in every project, each in its own transaction; a failure in one does not affect the others."""
        began = now()
        with engine.connect() as c:
            waiting = store.projects_to_read(c, _unseen_since(self._looked_at, began), began)
        for project_id in waiting:
            if is_stopping():
                return
            if self._rests_until.get(project_id, began) <= began:
                self._catch_up_alone(engine, project_id, now())
        self._looked_at = began
        self._forget_idle(waiting, began)

    def _forget_idle(self, waiting: Container[int], now: datetime) -> None:
        """Drop the detectors of projects without news, which begin anew when there is some: after a while, and where
        memory is short those first that have been idle longest."""
        held = {project_id: sum(detector.values for detector in self.suites(project_id)) for project_id in self._suites}
        idle = [project_id for project_id in self._read_at if project_id not in waiting]
        for project_id in sorted(idle, key=lambda number: self._read_at[number]):
            if any(detector.is_broken for detector in self.suites(project_id)):
                continue  # it is to be tried again
            if now - self._read_at[project_id] >= IDLE or sum(held.values()) > self._most_values:
                self.forget(project_id)
                del held[project_id]

    def _catch_up_alone(self, engine: Engine, project_id: int, now: datetime) -> None:
        with engine.connect() as c:
            try:
                with c.begin():
                    self.catch_up(c, project_id, now)
            except Exception as error:
                self.forget(project_id)  # what was read in a transaction that failed was not told
                if is_lost(c):
                    raise
                self._rests_until[project_id] = now + PAUSE
                log.exception("the runs of project %d could not be judged jointly; it is tried again", project_id)
                with c.begin():
                    note_pauses(c, project_id, {"": (now + PAUSE, why_of(error))}, now)
            else:
                self._rests_until.pop(project_id, None)

    def forget(self, project_id: int) -> None:
        for known in (self._suites, self._extents, self._read_at):
            known.pop(project_id, None)

    def incidents(self, project_id: int) -> dict[str, list[Incident]]:
        """All incidents that its detectors know, by suite."""
        return {
            detector.columns.suite: list(detector.detector.state.incidents.values())
            for detector in self.suites(project_id)
        }

    def suites(self, project_id: int) -> list[SuiteDetector]:
        return list(self._suites.get(project_id, {}).values())

    def catch_up(self, c: Connection, project_id: int, now: datetime) -> list[int]:
        """Read new runs, report the results, and request open sessions. Returns regressions that changed."""
        store.lock(c, project_id)
        self._refresh(c, project_id, now)
        arrived = store.arrived(c, project_id, _unseen_since(self._read_at.get(project_id), now))
        found, asked = [], []
        for suite, detector in self._suites[project_id].items():
            if not detector.is_broken:
                with _pausing_on_failure(c, now, detector):
                    incidents, questions = _advance(
                        c, project_id, detector, [r for r in arrived if r.suite == suite], now
                    )
                    found += incidents
                    asked.append(questions)
        self._read_at[project_id] = now
        changed: list[int] = []
        with _pausing_on_failure(c, now, *self._suites[project_id].values()):
            changed = report(c, project_id, found, now) if found else []
        for questions in asked:
            questions.give_way()
        note_pauses(c, project_id, {f.columns.suite: f.pause for f in self.suites(project_id) if f.is_broken}, now)
        return changed

    def _refresh(self, c: Connection, project_id: int, now: datetime) -> None:
        """A suite whose series or testbeds grew, or whose past is no longer what was read, is begun anew."""
        known = self._suites.setdefault(project_id, {})
        policies = _policies(c, project_id)
        extent = *store.extent(c, project_id), policies.overrides
        if self._extents.get(project_id) != extent:
            rows = store.series_of(c, project_id)
            for suite in dict.fromkeys(row.suite for row in rows):
                columns = Columns(suite, [row for row in rows if row.suite == suite], policies)
                old = known.get(suite)
                if old is None or not old.columns.same_as(columns):
                    known[suite] = SuiteDetector(columns)
                else:
                    old.columns = columns  # a new version of the suite: other series, the same columns
            self._extents[project_id] = extent
        for suite, detector in known.items():
            if detector.is_full or detector.is_pause_over(now) or not detector.stands(c):
                known[suite] = SuiteDetector(detector.columns)


def _policies(c: Connection, project_id: int) -> PolicyBook:
    project = project_store.by_id(c, project_id)
    return PolicyBook("") if project is None else policy_book(c, project.slug)


def _unseen_since(read_at: datetime | None, now: datetime) -> datetime:
    """From when on runs may have arrived that were not there to be read then."""
    return min(now, read_at or now) - LATEST


@contextmanager
def _pausing_on_failure(c: Connection, now: datetime, *detectors: SuiteDetector) -> Iterator[None]:
    """Catch a failure of a suite's joint judging: it is logged, and the suite pauses."""
    try:
        with c.begin_nested():
            yield
    except (psycopg.Error, SQLAlchemyError):
        raise
    except Exception as error:
        for detector in detectors:
            detector.broken_at, detector.why = now, why_of(error)
        suites = [detector.columns.suite for detector in detectors]
        log.exception("suites %s cannot be judged together; each series still is, and it is tried again", suites)


def _advance(
    c: Connection, project_id: int, detector: SuiteDetector, arrived: Sequence[ArrivedRun], now: datetime
) -> tuple[list[SuiteIncidents], Questions]:
    """Read what has arrived; what it says that nobody was told yet, and what was asked."""
    begins = detector.last is None
    if begins:
        arrived = store.newest(c, project_id, detector.columns.suite, REPLAYED)
    fresh = [run for run in arrived if run.id not in detector.read]
    # When a detector begins it asks nothing about the past: what mattered there was asked, and its answer is stored.
    questions = Questions(c, project_id, now, since_run=fresh[-1].id if fresh and begins else None)
    if fresh:
        _read(c, project_id, detector, fresh, questions)
    detector.hear(questions, at_end=True)
    detector.leave_unheard(questions)
    if not detector.changed:
        return [], questions
    changed = tuple(detector.changed.values())
    detector.changed.clear()
    since = detector.detector.state.newest - RECENT if begins else None
    return [
        SuiteIncidents(columns=detector.columns, incidents=changed, numbers=detector.numbers, since=since)
    ], questions


def _read(
    c: Connection, project_id: int, detector: SuiteDetector, fresh: Sequence[ArrivedRun], questions: Questions
) -> None:
    """Runs and decisions, in the order in which they came."""
    since = (detector.last or fresh[0]).received_at
    decisions = [d for d in store.accepted(c, project_id, since) if d.event_id not in detector.accepted]
    for start in range(0, len(fresh), AT_A_TIME):
        batch = fresh[start : start + AT_A_TIME]
        stored = store.runs(c, [run.id for run in batch])
        for run in batch:
            while decisions and decisions[0].at < run.received_at:
                detector.accept(decisions.pop(0))
            detector.take(run, stored[run.id], questions)
    for decision in decisions:
        detector.accept(decision)
