"""Reads for the page of one run: the run with its surroundings, what it said while it ran, what it delivered."""

import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, text

from backend.store.base.commits import WAITS_FOR_COMMIT


class RunRow(NamedTuple):
    id: str
    project_id: int
    project: str
    testbed_id: int
    testbed: str
    suite: str
    suite_version: str | None
    commit_id: int
    sha: str
    parents: list[str]
    message: str
    author: str
    committed_at: datetime | None
    branch: str | None
    pull_request: int | None
    state: str
    kind: str
    priority: int
    spec: dict[str, Any]
    attempt: int
    attempts: list[dict[str, Any]]
    requested_by: str
    requested_at: datetime
    published_at: datetime | None
    leased_at: datetime | None
    lease_expires_at: datetime | None
    worker: str | None
    worker_seen_at: datetime | None
    protection: str | None
    cancel_requested: bool
    progress: dict[str, Any] | None
    status: str | None
    error: str | None
    log_tail: str | None
    environment_id: int | None
    environment: dict[str, Any] | None
    started_at: datetime | None
    finished_at: datetime | None
    received_at: datetime | None
    measured_at: datetime | None
    position: int | None
    """On the default branch, else on its own."""
    waits_for_commit: bool
    gone_branch: str | None


class EventRow(NamedTuple):
    id: int
    attempt: int
    at: datetime
    kind: str
    detail: dict[str, Any]


class NeighbourRow(NamedTuple):
    """Another run of the same suite on the same testbed."""

    id: str
    sha: str
    position: int
    measured_at: datetime | None
    environment_id: int | None
    environment: dict[str, Any] | None
    worker: str | None


class MeasuredRow(NamedTuple):
    """Where a measurement of the document lies, and which series it belongs to."""

    series_id: int
    result_index: int
    measurement_index: int
    value: float


class ResultRow(NamedTuple):
    number: int
    benchmark: str
    variant: dict[str, Any]
    variant_key: str
    preset: str
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Artifact:
    name: str
    content_type: str
    size: int
    sha256: str
    received_at: datetime


# Looked up by the commit (OFFSET keeps it so): a branch may be tens of thousands long.
_POSITIONS = "SELECT y.branch_id, y.position FROM branch_commit y WHERE y.commit_id = r.commit_id OFFSET 0"
_RUN = text(
    f"""SELECT r.id, r.project_id, p.slug, r.testbed_id, t.name, r.suite, r.suite_version, r.commit_id, c.sha,
         c.parents, c.message, c.author_name, c.committed_at,
         coalesce(r.branch_name, CASE WHEN r.pull_request IS NULL AND r.session_id IS NULL
           AND (r.received_at IS NOT NULL OR trunk.position IS NOT NULL) THEN p.default_branch END),
         coalesce(r.pull_request, c.pull_request), r.state,
         r.kind, r.priority, r.spec, r.attempt, r.attempts, r.requested_by, r.requested_at, r.published_at, r.leased_at,
         r.lease_expires_at, w.name, w.last_seen_at, w.protection, r.cancel_requested, r.progress, r.status, r.error,
         r.log_tail, r.environment_id, e.fingerprint, r.started_at, r.finished_at, r.received_at,
         coalesce(r.started_at, r.received_at), coalesce(trunk.position, own.position), {WAITS_FOR_COMMIT},
         CASE WHEN own.deleted_at IS NOT NULL AND trunk.position IS NULL THEN own.name END
       FROM run r
       JOIN project p ON p.id = r.project_id JOIN testbed t ON t.id = r.testbed_id JOIN commit c ON c.id = r.commit_id
       LEFT JOIN worker w ON w.id = r.worker_id LEFT JOIN environment e ON e.id = r.environment_id
       LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       LEFT JOIN LATERAL ({_POSITIONS}) AS trunk ON trunk.branch_id = b.id
       LEFT JOIN LATERAL (
         SELECT o.name, o.deleted_at, placed.position
         FROM branch o LEFT JOIN LATERAL ({_POSITIONS}) AS placed ON placed.branch_id = o.id
         WHERE o.project_id = p.id AND o.name IN (r.branch_name, 'pull/' || r.pull_request)
         ORDER BY placed.position IS NULL, o.name = r.branch_name DESC LIMIT 1) AS own ON true
       WHERE r.id = :run"""
)
# The nearest good run of the suite at an earlier commit of the run's own branch; of a commit on no branch, its parent.
# Both are looked up in the branches commit by commit (OFFSET keeps it so): a branch may be tens of thousands long.
_PREVIOUS = text(
    """SELECT o.id, c.sha, o.position, coalesce(o.started_at, o.received_at), o.environment_id, e.fingerprint, w.name
       FROM run r JOIN project p ON p.id = r.project_id
       JOIN LATERAL (
         SELECT b.id, x.position FROM (
           SELECT r.commit_id AS id
           UNION ALL
           SELECT k.id FROM commit own JOIN commit k ON k.project_id = own.project_id AND k.sha = own.parents[1]
           WHERE own.id = r.commit_id) AS k
         JOIN LATERAL (
           SELECT y.branch_id, y.position FROM branch_commit y WHERE y.commit_id = k.id OFFSET 0) AS x ON true
         JOIN branch b ON b.id = x.branch_id AND b.project_id = r.project_id
         ORDER BY k.id = r.commit_id DESC, b.name = coalesce(r.branch_name, p.default_branch) DESC,
           b.name = p.default_branch DESC LIMIT 1) AS here ON true
       CROSS JOIN LATERAL (
         SELECT bc.position, near.* FROM branch_commit bc
         CROSS JOIN LATERAL (
           SELECT o.id, o.commit_id, o.started_at, o.received_at, o.environment_id, o.worker_id FROM run o
           WHERE o.commit_id = bc.commit_id AND o.testbed_id = r.testbed_id AND o.suite = r.suite
             AND o.state = 'done' AND o.status = 'ok'
           ORDER BY o.received_at DESC LIMIT 1) AS near
         WHERE bc.branch_id = here.id AND bc.position <= here.position AND bc.commit_id <> r.commit_id
         ORDER BY bc.position DESC LIMIT 1) AS o
       JOIN commit c ON c.id = o.commit_id
       LEFT JOIN environment e ON e.id = o.environment_id LEFT JOIN worker w ON w.id = o.worker_id
       WHERE r.id = :run"""
)
_EVENTS = text(
    """SELECT id, attempt, at, kind, detail FROM run_event
       WHERE run_id = :run AND kind = 'state' ORDER BY id DESC LIMIT 500"""
)
_LOG_NEWEST = text(
    """SELECT id, attempt, at, kind, detail FROM run_event
       WHERE run_id = :run AND kind = 'log' AND id < :before ORDER BY id DESC LIMIT :limit"""
)
_LOG_AFTER = text(
    """SELECT id, attempt, at, kind, detail FROM run_event
       WHERE run_id = :run AND kind = 'log' AND id > :after ORDER BY id LIMIT :limit"""
)
_MEASURED = text(
    """SELECT series_id, result_index, measurement_index, value FROM measurement
       WHERE run_id = :run AND measured_at = :measured_at"""
)
_RESULTS = text(
    """SELECT index, benchmark, variant, variant_key, preset, status, error FROM result
       WHERE run_id = :run ORDER BY index"""
)
_ARTIFACTS = text(
    """SELECT name, content_type, size, encode(sha256, 'hex'), received_at FROM artifact
       WHERE run_id = :run ORDER BY name"""
)
_DOCUMENT = text("SELECT document FROM run WHERE id = :run")
NEWEST = 2**62


def load_run(c: Connection, run_id: str) -> RunRow | None:
    row = c.execute(_RUN, {"run": run_id}).one_or_none()
    return None if row is None else RunRow._make(row)


def previous_run(c: Connection, run_id: str) -> NeighbourRow | None:
    row = c.execute(_PREVIOUS, {"run": run_id}).one_or_none()
    return None if row is None else NeighbourRow._make(row)


def events(c: Connection, run_id: str) -> list[EventRow]:
    """Events that the worker sent, oldest first."""
    return [EventRow._make(row) for row in c.execute(_EVENTS, {"run": run_id}).all()][::-1]


def newest_log(c: Connection, run_id: str, limit: int, before: int = NEWEST) -> list[EventRow]:
    """The newest batches of log lines before an event, oldest first."""
    rows = c.execute(_LOG_NEWEST, {"run": run_id, "before": before, "limit": limit})
    return [EventRow._make(row) for row in rows.all()][::-1]


def log_after(c: Connection, run_id: str, after: int, limit: int) -> list[EventRow]:
    rows = c.execute(_LOG_AFTER, {"run": run_id, "after": after, "limit": limit})
    return [EventRow._make(row) for row in rows.all()]


def measured(c: Connection, run_id: str, measured_at: datetime) -> list[MeasuredRow]:
    rows = c.execute(_MEASURED, {"run": run_id, "measured_at": measured_at})
    return [MeasuredRow._make(row) for row in rows.all()]


def results(c: Connection, run_id: str) -> list[ResultRow]:
    return [ResultRow._make(row) for row in c.execute(_RESULTS, {"run": run_id}).all()]


def artifacts(c: Connection, run_id: str) -> list[Artifact]:
    return [Artifact(*row) for row in c.execute(_ARTIFACTS, {"run": run_id}).all()]


def document(c: Connection, run_id: str) -> dict[str, Any]:
    """The run as it was delivered, without the samples; empty when nothing was."""
    packed = c.scalar(_DOCUMENT, {"run": run_id})
    found: dict[str, Any] = orjson.loads(zlib.decompress(packed)) if packed else {}
    return found
