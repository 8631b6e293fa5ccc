"""Reads of the joint detector, and its few writes: incidents it reported, questions it asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from backend.regression.incidents import ReportedIncident
from backend.store.sessions.sessions import OPEN

LOCK = "tidemark joint detector"


class JointSeriesRow(NamedTuple):
    """One series, of one testbed and one version of its suite."""

    id: int
    suite: str
    testbed: str
    benchmark: str
    variant_key: str
    preset: str
    metric: str
    unit: str
    role: str
    direction: str
    exact: bool


class ArrivedRun(NamedTuple):
    """A run on the default branch, in its current state."""

    id: str
    suite: str
    testbed: str
    position: int
    received_at: datetime


class JointRunRow(NamedTuple):
    """A run's measurements, and where it ran."""

    id: str
    worker: str | None
    measured_at: datetime
    fingerprint: dict[str, Any] | None
    changed_paths: list[str] | None
    untouched: bool
    """Whether its commit is known to have changed nothing that the suite measures."""
    document: bytes


class AcceptedChange(NamedTuple):
    """A person's word that a change is meant."""

    event_id: int
    at: datetime
    first_bad_position: int
    series: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A requested session, and its outcome."""

    id: int
    suite: str
    testbed: str
    after_run_id: str
    number: int
    base_position: int
    head_position: int
    session_id: str
    session_state: str
    answered_after: str | None


class Stretch(NamedTuple):
    """Commits between which a session is to tell whether the code changed: `base` (without), `head` (with)."""

    suite: str
    testbed: str
    base: int
    head: int


# --- what is read ----------------------------------------------------------------------------------------------------

_TO_READ = text(
    """SELECT p.id FROM project p
       WHERE EXISTS (SELECT FROM testbed t JOIN LATERAL (
                       SELECT 1 FROM run r WHERE r.project_id = p.id AND r.testbed_id = t.id AND r.received_at >= :since
                       LIMIT 1) AS r ON true)
          OR EXISTS (SELECT FROM joint_question a JOIN session x ON x.id = a.session_id
                     WHERE a.project_id = p.id AND a.answered_after IS NULL AND x.state NOT IN ('waiting', 'running'))
          OR EXISTS (SELECT FROM joint_pause f WHERE f.project_id = p.id AND f.until <= :now)
       ORDER BY p.id"""
)
_SERIES = text(
    """SELECT s.id, s.suite, t.name, s.benchmark, s.variant_key, s.preset, s.metric, s.unit, s.role, s.direction,
              s.exact
       FROM series s JOIN testbed t ON t.id = s.testbed_id WHERE s.project_id = :project ORDER BY s.id"""
)
_EXTENT = text("SELECT count(*), max(id) FROM series WHERE project_id = :project")
_OF_DEFAULT_BRANCH = """JOIN project p ON p.id = r.project_id
       JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       JOIN branch_commit bc ON bc.branch_id = b.id AND bc.commit_id = r.commit_id"""
_ARRIVED = text(
    f"""SELECT r.id, r.suite, t.name, bc.position, r.received_at
        FROM testbed t CROSS JOIN LATERAL (
          SELECT * FROM run WHERE project_id = :project AND testbed_id = t.id AND received_at >= :since
            AND status = 'ok' AND session_id IS NULL) AS r
        {_OF_DEFAULT_BRANCH} ORDER BY r.received_at, r.id"""
)
_NEWEST = text(
    f"""SELECT r.id, r.suite, t.name, bc.position, r.received_at
        FROM testbed t CROSS JOIN LATERAL (
          SELECT * FROM run WHERE project_id = :project AND testbed_id = t.id AND suite = :suite
            AND received_at IS NOT NULL AND status = 'ok' AND session_id IS NULL
          ORDER BY received_at DESC LIMIT :most) AS r
        {_OF_DEFAULT_BRANCH} ORDER BY r.received_at, r.id"""
)
_RUNS = text(
    """SELECT r.id, w.name, coalesce(r.started_at, r.received_at), e.fingerprint, k.changed_paths,
              coalesce(r.suite = ANY (k.untouched_suites), false), r.document
       FROM run r JOIN commit k ON k.id = r.commit_id
       LEFT JOIN worker w ON w.id = r.worker_id LEFT JOIN environment e ON e.id = r.environment_id
       WHERE r.id = ANY(:ids) AND r.document IS NOT NULL"""
)
_POSITIONS = text(f"SELECT r.id, bc.position FROM run r {_OF_DEFAULT_BRANCH} WHERE r.id = ANY(:ids)")
_TAKEN_BACK = """EXISTS (SELECT FROM regression_event u WHERE u.regression_id = v.regression_id AND u.id > v.id
         AND (u.kind = 'reopened' OR u.kind = 'undone' AND CAST(u.detail ->> 'event' AS bigint) = v.id))"""
# Baselines that began by themselves are no news to the judge: it found what is behind them.
_ACCEPTED = text(
    f"""SELECT v.id, v.at, g.first_bad_position,
              ARRAY(SELECT DISTINCT series_id FROM change_point WHERE regression_id = g.id ORDER BY 1)
       FROM regression g JOIN regression_event v ON v.regression_id = g.id
       WHERE g.project_id = :project AND v.kind = 'expected' AND v.actor <> 'tidemark' AND v.at >= :since
         AND NOT {_TAKEN_BACK}
       ORDER BY v.at, v.id"""
)
_STILL_ACCEPTED = text(f"SELECT v.id FROM regression_event v WHERE v.id = ANY(:ids) AND NOT {_TAKEN_BACK}")


def lock(c: Connection, project_id: int) -> None:
    """Only one process judges the series of a project jointly, until the end of the transaction."""
    c.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name), :project)"), {"name": LOCK, "project": project_id})


def projects_to_read(c: Connection, since: datetime, now: datetime) -> list[int]:
    """Projects with results since then, with unread answers of sessions, or whose pause is over."""
    return list(c.execute(_TO_READ, {"since": since, "now": now}).scalars())


def extent(c: Connection, project_id: int) -> tuple[int, int]:
    """Changes when a series is new."""
    count, newest = c.execute(_EXTENT, {"project": project_id}).one()
    return int(count), int(newest or 0)


def series_of(c: Connection, project_id: int) -> list[JointSeriesRow]:
    return [JointSeriesRow(*row) for row in c.execute(_SERIES, {"project": project_id})]


def arrived(c: Connection, project_id: int, since: datetime) -> list[ArrivedRun]:
    """Good runs of the default branch that arrived since, in the order of their arrival."""
    return [ArrivedRun(*row) for row in c.execute(_ARRIVED, {"project": project_id, "since": since})]


def newest(c: Connection, project_id: int, suite: str, most: int) -> list[ArrivedRun]:
    """The newest so many runs of a suite on each testbed, in the order of their arrival."""
    return [ArrivedRun(*row) for row in c.execute(_NEWEST, {"project": project_id, "suite": suite, "most": most})]


def runs(c: Connection, ids: Sequence[str]) -> dict[str, JointRunRow]:
    return {row[0]: JointRunRow(*row) for row in c.execute(_RUNS, {"ids": list(ids)})}


def positions(c: Connection, run_ids: Iterable[str]) -> dict[str, int]:
    """Where the commits of runs stand on the default branch today."""
    return {row.id: row.position for row in c.execute(_POSITIONS, {"ids": list(run_ids)})}


def accepted(c: Connection, project_id: int, since: datetime) -> list[AcceptedChange]:
    return [AcceptedChange(*row) for row in c.execute(_ACCEPTED, {"project": project_id, "since": since})]


def still_accepted(c: Connection, event_ids: Iterable[int]) -> set[int]:
    """Those of these decisions that were not undone."""
    return set(c.execute(_STILL_ACCEPTED, {"ids": list(event_ids)}).scalars())


# --- what was reported -----------------------------------------------------------------------------------------------

_COLUMNS = """id, suite, kind, cause, worker, testbeds, series, first_bad_position, range_start, range_end,
       magnitude, drift, closed_position, regression_id"""
_SINCE = text(
    f"""SELECT {_COLUMNS} FROM incident
        WHERE project_id = :project AND kind IN ('regression', 'infra', 'environment')
          AND (first_bad_position >= :since OR kind = 'infra' AND closed_position IS NULL
               OR closed_position >= :since OR drift AND closed_position IS NULL AND range_end >= :since)
        ORDER BY id"""
)
_ALL = text(
    f"""SELECT {_COLUMNS} FROM incident WHERE project_id = :project AND suite = :suite
        ORDER BY id DESC LIMIT 500"""
)
_OF_REGRESSIONS = text(f"SELECT {_COLUMNS} FROM incident WHERE regression_id = ANY(:regressions) ORDER BY id")
_INSERT = text(
    """INSERT INTO incident (project_id, suite, kind, cause, worker, testbeds, series, first_bad_position,
                                   range_start, range_end, magnitude, drift, closed_position, reported_at, updated_at)
       VALUES (:project, :suite, :kind, :cause, :worker, :testbeds, :series, :first_bad, :range_start, :range_end,
               :magnitude, :drift, :closed, :now, :now) RETURNING id"""
)
_UPDATE = text(
    """UPDATE incident SET testbeds = :testbeds, series = :series, first_bad_position = :first_bad,
         range_start = :range_start, range_end = :range_end, magnitude = :magnitude, drift = :drift,
         closed_position = :closed, updated_at = :now
       WHERE id = :id"""
)
_FORGET = text("DELETE FROM incident WHERE project_id = :project AND first_bad_position >= :first")
# One that stays open without a detector that knows it would hold back whatever comes; the detector says how it went on.
_CUT_SHORT = text(
    "UPDATE incident SET closed_position = :first WHERE project_id = :project AND closed_position > :first"
)
_BIND = text("UPDATE incident SET regression_id = :regression WHERE id = :id")


def since(c: Connection, project_id: int, since: int) -> list[ReportedIncident]:
    """Those at commits from a position on, and those that still go on."""
    return [_incident(row) for row in c.execute(_SINCE, {"project": project_id, "since": since})]


def of_suite(c: Connection, project_id: int, suite: str) -> list[ReportedIncident]:
    """The newest, the oldest of them first."""
    return [_incident(row) for row in c.execute(_ALL, {"project": project_id, "suite": suite}).all()[::-1]]


def of_regressions(c: Connection, regression_ids: Iterable[int]) -> dict[int, ReportedIncident]:
    """The newest incident behind each regression that has one."""
    rows = c.execute(_OF_REGRESSIONS, {"regressions": list(regression_ids)})
    return {row.regression_id: _incident(row) for row in rows}


def _incident(row: Any) -> ReportedIncident:
    told = row._asdict()
    return ReportedIncident(**{**told, "testbeds": tuple(told["testbeds"]), "series": frozenset(told["series"])})


def insert(c: Connection, project_id: int, new: ReportedIncident, now: datetime) -> int:
    """Store an incident that is new; its id."""
    values = {**_values(new, now), "project": project_id, "suite": new.suite}
    values |= {"kind": new.kind, "cause": new.cause, "worker": new.worker}
    return int(c.execute(_INSERT, values).scalar_one())


def update(c: Connection, known: ReportedIncident, now: datetime) -> None:
    """Store what more is known of an incident."""
    c.execute(_UPDATE, {**_values(known, now), "id": known.id})


def bind(c: Connection, incident_id: int, regression_id: int) -> None:
    """Store which regression came of an incident."""
    c.execute(_BIND, {"id": incident_id, "regression": regression_id})


def forget_from(c: Connection, project_id: int, position: int) -> None:
    """From this position on, commits have moved: incidents there are forgotten or cut short; the detector, which
    starts over, reports them where they are now."""
    c.execute(_FORGET, {"project": project_id, "first": position})
    c.execute(_CUT_SHORT, {"project": project_id, "first": position})


def _values(incident: ReportedIncident, now: datetime) -> dict[str, Any]:
    return {
        "testbeds": list(incident.testbeds),
        "series": sorted(incident.series),
        "first_bad": incident.first_bad_position,
        "range_start": incident.range_start,
        "range_end": incident.range_end,
        "magnitude": incident.magnitude,
        "drift": incident.drift,
        "closed": incident.closed_position,
        "now": now,
    }


# --- what was asked --------------------------------------------------------------------------------------------------

_QUESTIONS = text(
    """SELECT a.id, a.suite, a.testbed, a.after_run_id, a.number, a.base_position, a.head_position, a.session_id,
              x.state AS session_state, a.answered_after
       FROM joint_question a JOIN session x ON x.id = a.session_id WHERE a.project_id = :project
       ORDER BY a.id DESC LIMIT 500"""
)
_PUT = text(
    """INSERT INTO joint_question (project_id, suite, testbed, after_run_id, number, base_position, head_position,
                              session_id)
       VALUES (:project, :suite, :testbed, :after, :number, :base, :head, :session) RETURNING id"""
)
_ANSWERED = text("UPDATE joint_question SET answered_after = :run WHERE id = :id")
_LEAVE_UNHEARD = text(
    """UPDATE joint_question a SET answered_after = :run FROM session x
       WHERE a.project_id = :project AND a.suite = :suite AND a.answered_after IS NULL AND a.id <> :awaited
         AND x.id = a.session_id AND x.state <> ALL(:open)"""
)
_PLACED = """FROM branch b JOIN project p ON p.id = b.project_id AND p.default_branch = b.name
       JOIN branch_commit base ON base.branch_id = b.id JOIN branch_commit head ON head.branch_id = b.id
       WHERE p.id = a.project_id AND base.commit_id = x.base_commit_id AND head.commit_id = x.head_commit_id
         AND base.position < head.position"""
_MOVED = "a.project_id = :project AND x.id = a.session_id AND greatest(a.base_position, a.head_position) >= :first"
_DROP_LOST = text(
    f"""DELETE FROM joint_question a USING session x WHERE {_MOVED} AND NOT EXISTS (SELECT {_PLACED})
        RETURNING a.session_id, x.state"""
)
_RENUMBER = text(
    f"""UPDATE joint_question a SET (base_position, head_position) = (SELECT base.position, head.position {_PLACED})
        FROM session x WHERE {_MOVED}"""
)
# As for the session of a single suspect: commits to check out, a worker that lives, and how its suite is run.
_ARMS = text(
    """SELECT t.id AS testbed_id, base.commit_id AS base_commit_id, head.commit_id AS head_commit_id, r.spec,
              (SELECT id FROM worker WHERE name = :avoid) AS avoid_worker_id
       FROM project p JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       JOIN testbed t ON t.name = :testbed
       JOIN branch_commit base ON base.branch_id = b.id AND base.position = :base
       JOIN branch_commit head ON head.branch_id = b.id AND head.position = :head
       CROSS JOIN LATERAL (
         SELECT spec FROM run WHERE commit_id = head.commit_id AND testbed_id = t.id AND suite = :suite
           AND session_id IS NULL AND kind <> 'submitted' AND spec <> '{}'::jsonb
         ORDER BY requested_at DESC LIMIT 1) AS r
       WHERE p.id = :project AND p.repository_url IS NOT NULL AND base.commit_id <> head.commit_id
         AND EXISTS (SELECT FROM worker w WHERE w.testbed_id = t.id AND w.last_seen_at >= :alive_since
                       AND w.wanted_state = 'ok' AND coalesce(w.project_id, p.id) = p.id)"""
)
_SAME_QUESTION = text(
    """SELECT x.id FROM regression g JOIN session x ON x.regression_id = g.id AND x.purpose = 'confirm'
         AND x.state = 'waiting'
       JOIN testbed t ON t.id = x.testbed_id AND t.name = :testbed
       WHERE g.project_id = :project AND x.suite = :suite AND g.first_bad_position > :base
         AND g.first_bad_position <= :head
         AND NOT EXISTS (SELECT FROM run r WHERE r.session_id = x.id AND r.state <> 'queued')"""
)


def questions(c: Connection, project_id: int) -> list[Question]:
    """The newest."""
    return [Question(**row._mapping) for row in c.execute(_QUESTIONS, {"project": project_id})]


def put_question(c: Connection, project_id: int, where: Stretch, *, after: str, number: int, session: str) -> int:
    values = {"project": project_id, **where._asdict(), "after": after, "number": number, "session": session}
    return int(c.execute(_PUT, values).scalar_one())


def renumber_questions(c: Connection, project_id: int, first: int) -> list[str]:
    """From this position on commits have moved: questions about them follow, those about lost ones are dropped. Returns
    the sessions that are no longer needed."""
    values = {"project": project_id, "first": first}
    lost = [row.session_id for row in c.execute(_DROP_LOST, values) if row.state in OPEN]
    c.execute(_RENUMBER, values)
    return lost


def answered(c: Connection, question_id: int, run_id: str) -> None:
    c.execute(_ANSWERED, {"id": question_id, "run": run_id})


def leave_unheard(c: Connection, project_id: int, suite: str, run_id: str, *, awaited: int) -> None:
    """Mark answers to all other questions as read after a run: the judge started over and asked something else."""
    values = {"project": project_id, "suite": suite, "run": run_id, "awaited": awaited, "open": list(OPEN)}
    c.execute(_LEAVE_UNHEARD, values)


def arms(c: Connection, project_id: int, where: Stretch, *, avoid: str | None, alive_since: datetime) -> Any | None:
    """The arms of a session between two positions; None where none can be had."""
    values = {"project": project_id, **where._asdict(), "avoid": avoid, "alive_since": alive_since}
    return c.execute(_ARMS, values).one_or_none()


def same_question(c: Connection, project_id: int, where: Stretch) -> list[str]:
    """Sessions of a single suspect between two positions that have not begun."""
    return list(c.execute(_SAME_QUESTION, {"project": project_id, **where._asdict()}).scalars())
