"""Reads of the queue's page: runs in progress, the front of every waiting group, and how long suites take."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from backend.store.queue.groups import USE


class QueueRow(NamedTuple):
    id: str
    project_id: int
    project: str
    trusted: bool
    suite: str
    testbed_id: int
    testbed: str
    sha: str
    message: str
    branch: str | None
    pull_request: int | None
    state: str
    kind: str
    priority: int
    attempt: int
    requested_by: str
    requested_at: datetime
    started_at: datetime | None
    published_at: datetime | None
    worker: str | None
    progress: dict[str, Any] | None
    cancel_requested: bool
    usual_s: float | None
    served_at: datetime | None


class WorkersRow(NamedTuple):
    """The workers of a testbed: how many take runs, how many of them isolate, and why the others do not. `bound`: of
    each that takes runs of one project only, which."""

    testbed: str
    takes: int
    isolated: int
    gone: int
    held: int
    bound: list[int]


# Of each group only the front: whoever stands far behind wants to know how many are before, not which.
_OPEN = text(
    """WITH RECURSIVE seen AS (
         (SELECT testbed_id, project_id, kind FROM run WHERE state = 'queued'
          ORDER BY testbed_id, project_id, kind LIMIT 1)
         UNION ALL
         SELECT n.testbed_id, n.project_id, n.kind FROM seen s CROSS JOIN LATERAL (
           SELECT r.testbed_id, r.project_id, r.kind FROM run r
           WHERE r.state = 'queued' AND (r.testbed_id, r.project_id, r.kind) > (s.testbed_id, s.project_id, s.kind)
           ORDER BY r.testbed_id, r.project_id, r.kind LIMIT 1) AS n),
       open AS (
         SELECT id FROM run WHERE state IN ('leased', 'running')
         UNION ALL
         SELECT f.id FROM seen s CROSS JOIN LATERAL (
           SELECT r.id FROM run r WHERE r.state = 'queued' AND r.testbed_id = s.testbed_id
             AND r.project_id = s.project_id AND r.kind = s.kind
           ORDER BY r.requested_at, r.id LIMIT :of_each) AS f),
       usual AS (
         SELECT k.project_id, k.testbed_id, k.suite, (
           SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM o.finished_at - o.started_at))
           FROM (SELECT started_at, finished_at FROM run
                 WHERE project_id = k.project_id AND testbed_id = k.testbed_id AND suite = k.suite AND status = 'ok'
                   AND received_at IS NOT NULL
                 ORDER BY received_at DESC LIMIT 5) AS o) AS seconds
         FROM (SELECT DISTINCT project_id, testbed_id, suite FROM run JOIN open USING (id)) AS k)
       SELECT r.id, p.id, p.slug, p.trusted, r.suite, t.id, t.name, c.sha, split_part(c.message, E'\\n', 1),
         r.branch_name, coalesce(r.pull_request, c.pull_request), r.state, r.kind, r.priority, r.attempt,
         r.requested_by, r.requested_at, r.leased_at, r.published_at, w.name, r.progress, r.cancel_requested,
         u.seconds, q.served_at
       FROM open JOIN run r ON r.id = open.id
       JOIN project p ON p.id = r.project_id JOIN testbed t ON t.id = r.testbed_id JOIN commit c ON c.id = r.commit_id
       LEFT JOIN worker w ON w.id = r.worker_id
       LEFT JOIN usual u ON u.project_id = r.project_id AND u.testbed_id = r.testbed_id AND u.suite = r.suite
       LEFT JOIN queue_share q ON q.testbed_id = r.testbed_id AND q.project_id = r.project_id AND q.kind = r.kind
       ORDER BY r.state = 'queued', r.leased_at, r.requested_at, r.id"""
)
_WORKERS = text(
    """SELECT t.name, count(*) FILTER (WHERE alive AND w.wanted_state = 'ok'),
         count(*) FILTER (WHERE alive AND w.wanted_state = 'ok' AND w.protection <> 'none'),
         count(*) FILTER (WHERE NOT alive), count(*) FILTER (WHERE alive AND w.wanted_state <> 'ok'),
         coalesce(array_agg(w.project_id) FILTER (
           WHERE alive AND w.wanted_state = 'ok' AND w.project_id IS NOT NULL), '{}')
       FROM worker w JOIN testbed t ON t.id = w.testbed_id
       CROSS JOIN LATERAL (SELECT w.last_seen_at >= :seen_since AS alive) AS a
       WHERE w.last_seen_at IS NOT NULL GROUP BY t.name"""
)
_USE = text(
    USE.replace("%(now)s", ":now").replace("%(halves)s", ":halves").replace("%(testbed)s", ":testbed")
    .replace("%(a_run)s", ":a_run").replace("%(again_before)s", ":again_before")
)  # fmt: skip


def open_runs(c: Connection, of_each: int) -> list[QueueRow]:
    """Runs in progress, then those that wait, `of_each` of every group, in the order of the group."""
    return [QueueRow._make(row) for row in c.execute(_OPEN, {"of_each": of_each}).all()]


def workers(c: Connection, seen_since: datetime) -> dict[str, WorkersRow]:
    return {row[0]: WorkersRow._make(row) for row in c.execute(_WORKERS, {"seen_since": seen_since}).all()}


def used_s(
    c: Connection, testbed_id: int, *, again_before: datetime, now: datetime, halves_after_s: float, a_run_s: float
) -> dict[int, float]:
    """Recent use of a testbed by project, in worker seconds."""
    values = {"testbed": testbed_id, "again_before": again_before, "now": now}
    rows = c.execute(_USE, {**values, "halves": halves_after_s, "a_run": a_run_s}).all()
    return {row[0]: row[1] for row in rows}
