"""Reads across projects: the list of them, how far a new one has come, workers, the queue."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from backend.store.base import wire


@dataclass(frozen=True, slots=True)
class Project:
    """`waiting`: runs that are queued or in progress."""

    id: int
    slug: str
    repository_url: str | None
    default_branch: str
    trusted: bool
    private: bool
    created_at: datetime
    synced_at: datetime | None
    sync_error: str | None
    open_regressions: int
    unowned: int
    suspects: int
    waiting: int
    last_result_at: datetime | None


class KnownProject(NamedTuple):
    """A project as every page needs it of all of them: nothing that its runs or regressions must be read for."""

    id: int
    slug: str
    repository_url: str | None
    private: bool


class FirstRunRow(NamedTuple):
    """What a project has had so far of commits, runs and results."""

    commits: int
    newest_sha: str | None
    skipped: int
    manifest_error: str | None
    requested: int
    waiting: int
    wanted_testbeds: list[str]
    running_id: str | None
    progress: dict[str, Any]
    failed: int
    failed_error: str | None
    first_result_id: str | None
    first_result_at: datetime | None


class WorkerRow(NamedTuple):
    id: int
    name: str
    testbed: str
    version: str
    capabilities: dict[str, Any]
    protection: str
    wanted_state: str
    started_at: datetime
    last_seen_at: datetime
    run_id: str | None
    run_project: str | None
    run_suite: str | None
    run_sha: str | None
    run_state: str | None
    run_since: datetime | None
    run_progress: dict[str, Any] | None
    done: int
    failed: int
    quarantined: int
    last_run_id: str | None
    last_run_at: datetime | None
    belongs_to: str | None
    """The only project whose runs it takes; None: it takes those of all."""


@dataclass(frozen=True, slots=True)
class WorkerRun:
    """A delivered run of a worker.

    `status` is a run's; a round of a session, which delivers none, says its state there (done, failed).
    """

    id: str
    project: str
    suite: str
    sha: str
    status: str
    error: str | None
    started_at: datetime | None


class SilentRow(NamedTuple):
    testbed: str
    last_seen_at: datetime | None
    waiting: int


_KNOWN = "SELECT id, slug, repository_url, private FROM project ORDER BY slug"
_PROJECTS = """
SELECT p.id, p.slug, p.repository_url, p.default_branch, p.trusted, p.private, p.created_at, p.synced_at,
  p.sync_error,
  g.open, g.unowned, g.suspects,
  (SELECT count(*) FROM run r WHERE r.project_id = p.id AND r.state IN ('queued', 'leased', 'running')),
  (SELECT max(newest.received_at) FROM testbed t CROSS JOIN LATERAL (
     SELECT r.received_at FROM run r
     WHERE r.project_id = p.id AND r.testbed_id = t.id AND r.received_at IS NOT NULL
     ORDER BY r.received_at DESC LIMIT 1) AS newest)
FROM project p CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE state <> 'suspect') AS open,
    count(*) FILTER (WHERE state = 'confirmed' AND owner IS NULL) AS unowned,
    count(*) FILTER (WHERE state = 'suspect') AS suspects
  FROM regression
  WHERE project_id = p.id AND state IN ('suspect', 'confirmed', 'acknowledged')) AS g
WHERE %(project)s::int4 IS NULL OR p.id = %(project)s
ORDER BY p.slug
"""
_FIRST_RUN = text(
    """SELECT
         (SELECT count(*) FROM commit WHERE project_id = :project),
         (SELECT sha FROM commit WHERE project_id = :project ORDER BY id DESC LIMIT 1),
         (SELECT count(*) FROM commit WHERE project_id = :project AND skipped_reason IS NOT NULL),
         (SELECT manifest_error FROM commit WHERE project_id = :project AND manifest_error IS NOT NULL
          ORDER BY id DESC LIMIT 1),
         (SELECT count(*) FROM run WHERE project_id = :project),
         (SELECT count(*) FROM run WHERE project_id = :project AND state = 'queued'),
         (SELECT coalesce(array_agg(DISTINCT t.name), '{}') FROM run r JOIN testbed t ON t.id = r.testbed_id
          WHERE r.project_id = :project AND r.state = 'queued'),
         running.id, coalesce(running.progress, '{}'),
         (SELECT count(*) FROM run WHERE project_id = :project AND state = 'failed'),
         failed.error, first.id, first.received_at
       FROM (SELECT) AS one
       LEFT JOIN LATERAL (SELECT id, progress FROM run WHERE project_id = :project AND state IN ('leased', 'running')
                          ORDER BY leased_at LIMIT 1) AS running ON true
       LEFT JOIN LATERAL (SELECT error FROM run WHERE project_id = :project AND state = 'failed'
                          ORDER BY received_at DESC NULLS LAST LIMIT 1) AS failed ON true
       LEFT JOIN LATERAL (SELECT id, received_at FROM run WHERE project_id = :project AND status = 'ok'
                          ORDER BY received_at, started_at LIMIT 1) AS first ON true"""
)
_SHOWN = "(CAST(:of AS text[]) IS NULL OR project_id IN (SELECT id FROM project WHERE slug = ANY(:of)))"
_WORKERS = text(
    f"""SELECT w.id, w.name, t.name, w.version, w.capabilities, w.protection, w.wanted_state, w.started_at,
         coalesce(w.last_seen_at, last.received_at, w.started_at),
         now.id, now.slug, now.suite, now.sha, now.state, now.leased_at, now.progress,
         recent.done, recent.failed, recent.quarantined, last.id, last.received_at,
         (SELECT slug FROM project WHERE id = w.project_id)
       FROM worker w JOIN testbed t ON t.id = w.testbed_id
       LEFT JOIN LATERAL (
         SELECT r.id, p.slug, r.suite, c.sha, r.state, r.leased_at, r.progress
         FROM run r JOIN project p ON p.id = r.project_id JOIN commit c ON c.id = r.commit_id
         WHERE r.worker_id = w.id AND r.state IN ('leased', 'running') ORDER BY r.leased_at DESC LIMIT 1) AS now ON true
       CROSS JOIN LATERAL (
         SELECT count(*) FILTER (WHERE status = 'ok') AS done,
           count(*) FILTER (WHERE status IN ('failed', 'incomplete')) AS failed,
           count(*) FILTER (WHERE status = 'quarantined') AS quarantined
         FROM run WHERE worker_id = w.id AND received_at >= :since AND {_SHOWN}) AS recent
       LEFT JOIN LATERAL (
         SELECT id, received_at FROM run WHERE worker_id = w.id AND received_at IS NOT NULL AND {_SHOWN}
         ORDER BY received_at DESC LIMIT 1) AS last ON true
       WHERE CASE WHEN CAST(:name AS text) IS NULL THEN w.last_seen_at IS NOT NULL ELSE w.name = :name END
       ORDER BY t.name, w.name"""
)
_WORKER_RUNS = text(
    """SELECT r.id, p.slug, r.suite, c.sha, coalesce(r.status, r.state) AS status, r.error, r.started_at, r.document
       FROM run r JOIN project p ON p.id = r.project_id JOIN commit c ON c.id = r.commit_id
       WHERE r.worker_id = :worker AND r.received_at IS NOT NULL AND (CAST(:of AS text[]) IS NULL OR p.slug = ANY(:of))
       ORDER BY r.received_at DESC LIMIT :limit"""
)
_SILENT = text(
    f"""SELECT t.name, max(w.last_seen_at), coalesce(q.waiting, 0)
       FROM testbed t
       LEFT JOIN worker w ON w.testbed_id = t.id AND (w.project_id IS NULL OR {_SHOWN})
       LEFT JOIN (SELECT testbed_id, count(*) AS waiting FROM run WHERE state = 'queued' AND {_SHOWN} GROUP BY 1) AS q
         ON q.testbed_id = t.id
       GROUP BY t.name, q.waiting
       HAVING coalesce(max(w.last_seen_at) < :seen_since, coalesce(q.waiting, 0) > 0)
       ORDER BY t.name"""
)
_COUNTS = text(
    f"""SELECT state, count(*) FROM (
         SELECT state, project_id FROM run WHERE state IN ('queued', 'leased', 'running')
         UNION ALL
         SELECT state, project_id FROM run
         WHERE requested_at >= :since AND state NOT IN ('queued', 'leased', 'running')) AS counted
       WHERE {_SHOWN} GROUP BY state"""
)


def known_projects(c: Connection) -> list[KnownProject]:
    (rows,) = wire.send(c, (_KNOWN, {}))
    return [KnownProject._make(row) for row in rows]


def projects(c: Connection, project_id: int | None = None) -> list[Project]:
    """All of them, or this one."""
    (rows,) = wire.send(c, (_PROJECTS, {"project": project_id}))
    return [Project(*row) for row in rows]


def first_run(c: Connection, project_id: int) -> FirstRunRow:
    return FirstRunRow._make(c.execute(_FIRST_RUN, {"project": project_id}).one())


def workers(
    c: Connection, since: datetime, name: str | None = None, *, of: Collection[str] | None = None
) -> list[WorkerRow]:
    """Workers with what they do now, and how many runs, of these projects or of all, ended how since a moment."""
    values = {"since": since, "name": name, "of": None if of is None else list(of)}
    return [WorkerRow._make(row) for row in c.execute(_WORKERS, values).all()]


def worker_runs(
    c: Connection, worker_id: int, limit: int, *, of: Collection[str] | None = None
) -> list[tuple[WorkerRun, bytes | None]]:
    """The newest delivered runs of a worker, newest first, each with its document (zlib) if it has one. `of`: of these
    projects; None: of all."""
    rows = c.execute(_WORKER_RUNS, {"worker": worker_id, "limit": limit, "of": None if of is None else list(of)})
    return [(WorkerRun(*row), document) for *row, document in rows]


def silent_testbeds(c: Connection, seen_since: datetime, *, of: Collection[str] | None = None) -> list[SilentRow]:
    """Testbeds none of whose workers was heard since; those that never had a worker only while runs wait for one.
    `of`: the projects whose workers and runs count; None: all."""
    values = {"seen_since": seen_since, "of": None if of is None else list(of)}
    return [SilentRow._make(row) for row in c.execute(_SILENT, values).all()]


def run_counts(c: Connection, since: datetime, *, of: Collection[str] | None) -> dict[str, int]:
    """How many runs, of these projects or of all, are in each state: all that are open, and those requested since a
    moment."""
    values = {"since": since, "of": None if of is None else list(of)}
    return {row[0]: row[1] for row in c.execute(_COUNTS, values).all()}
