"""The queue as groups (a project's runs of one kind on a testbed): who waits, what each was given, which runs are next.

However long the queue is, reading it costs a few index probes for each group that waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from backend.store.base import wire
from backend.store.queue.queue import UNHURRIED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Runs of one project and kind that wait for the same testbed. `waiting` counts no further than is of interest."""

    project_id: int
    kind: str
    trusted: bool
    waiting: int
    oldest_at: datetime
    served_at: datetime | None


# The distinct groups are walked from one to the next along ix_run_waiting, not counted over all that waits.
GROUPS = """
WITH RECURSIVE seen AS (
  (SELECT project_id, kind FROM run WHERE state = 'queued' AND testbed_id = %(testbed)s
   ORDER BY project_id, kind LIMIT 1)
  UNION ALL
  SELECT next.project_id, next.kind FROM seen s CROSS JOIN LATERAL (
    SELECT r.project_id, r.kind FROM run r
    WHERE r.state = 'queued' AND r.testbed_id = %(testbed)s AND (r.project_id, r.kind) > (s.project_id, s.kind)
    ORDER BY r.project_id, r.kind LIMIT 1) AS next
)
SELECT s.project_id, s.kind, p.trusted, f.waiting, f.oldest_at, greatest(q.served_at, o.offered_at) AS served_at
FROM seen s
JOIN project p ON p.id = s.project_id
LEFT JOIN queue_share q ON q.testbed_id = %(testbed)s AND q.project_id = s.project_id AND q.kind = s.kind
-- What is offered counts as served for as long as the offer stands; one that nobody took has changed nothing.
LEFT JOIN (
  SELECT project_id, kind, max(published_at) AS offered_at FROM run
  WHERE state = 'queued' AND testbed_id = %(testbed)s AND published_at >= %(again_before)s GROUP BY 1, 2
) AS o ON o.project_id = s.project_id AND o.kind = s.kind
CROSS JOIN LATERAL (
  SELECT count(*)::int AS waiting, min(requested_at) AS oldest_at FROM (
    SELECT r.requested_at FROM run r
    WHERE r.state = 'queued' AND r.testbed_id = %(testbed)s AND r.project_id = s.project_id AND r.kind = s.kind
      AND (r.published_at IS NULL OR r.published_at < %(again_before)s)
    ORDER BY r.requested_at, r.id LIMIT %(limit)s) AS first) AS f
WHERE f.waiting > 0
"""

# What projects used lately, and what they hold at this moment.
USE = """
SELECT project_id, sum(seconds)::float8 AS seconds FROM (
  SELECT project_id, used_s * 0.5 ^ (greatest(0, extract(epoch FROM %(now)s - counted_at)) / %(halves)s) AS seconds
  FROM queue_share WHERE testbed_id = %(testbed)s AND counted_at IS NOT NULL
  UNION ALL
  SELECT project_id, %(a_run)s FROM run WHERE testbed_id = %(testbed)s AND state IN ('leased', 'running')
  UNION ALL
  SELECT project_id, %(a_run)s FROM run
  WHERE testbed_id = %(testbed)s AND state = 'queued' AND published_at >= %(again_before)s
) AS used GROUP BY project_id
"""

PICK = """
SELECT picked.id, g.project_id FROM unnest(%(projects)s::int[], %(kinds)s::text[], %(runs)s::int[], %(newest)s::bool[])
  WITH ORDINALITY AS g (project_id, kind, runs, newest, place)
CROSS JOIN LATERAL (
  (SELECT r.id, r.requested_at FROM run r
   WHERE NOT g.newest AND r.state = 'queued' AND r.testbed_id = %(testbed)s AND r.project_id = g.project_id
     AND r.kind = g.kind AND (r.published_at IS NULL OR r.published_at < %(again_before)s)
   ORDER BY r.requested_at, r.id LIMIT g.runs)
  UNION ALL
  (SELECT r.id, r.requested_at FROM run r
   WHERE g.newest AND r.state = 'queued' AND r.testbed_id = %(testbed)s AND r.project_id = g.project_id
     AND r.kind = g.kind AND (r.published_at IS NULL OR r.published_at < %(again_before)s)
   ORDER BY r.requested_at DESC, r.id DESC LIMIT g.runs)
) AS picked
ORDER BY g.place, picked.requested_at, picked.id
"""

# One that is being leased or cancelled this very moment is left to whoever does it.
_PUBLISH = """
UPDATE run SET published_at = %(now)s
WHERE id IN (SELECT id FROM run WHERE id = ANY(%(ids)s) AND state = 'queued' FOR UPDATE SKIP LOCKED)
RETURNING id
"""
_SERVED = """
INSERT INTO queue_share (testbed_id, project_id, kind, served_at)
VALUES (%(testbed)s, %(project)s, %(kind)s, %(now)s)
ON CONFLICT (testbed_id, project_id, kind) DO UPDATE SET served_at = excluded.served_at
"""

# Every held run adds the seconds since it was last counted (or leased), and what was counted before fades.
_COUNT_USE = """
INSERT INTO queue_share AS q (testbed_id, project_id, kind, used_s, counted_at)
SELECT r.testbed_id, r.project_id, r.kind,
  sum(greatest(0, extract(epoch FROM %(now)s - greatest(r.leased_at, s.counted_at)))), %(now)s
FROM run r
LEFT JOIN queue_share s ON s.testbed_id = r.testbed_id AND s.project_id = r.project_id AND s.kind = r.kind
WHERE r.state IN ('leased', 'running') AND (s.counted_at IS NULL OR s.counted_at < %(counted_before)s)
GROUP BY r.testbed_id, r.project_id, r.kind
ORDER BY 1, 2, 3
ON CONFLICT (testbed_id, project_id, kind) DO UPDATE SET
  used_s = excluded.used_s
    + q.used_s * 0.5 ^ (greatest(0, extract(epoch FROM excluded.counted_at - coalesce(q.counted_at, excluded.counted_at))) / %(halves)s),
  counted_at = excluded.counted_at
"""  # noqa: E501

# Another suite of the commit that this worker has just measured; nothing more urgent may be kept waiting by it. What
# waits is walked as above: asked whether any run is more urgent, PostgreSQL would look through all of them.
_SIBLING = """
WITH RECURSIVE sibling AS (
  SELECT s.id, r.testbed_id, r.priority
  FROM run r JOIN worker w ON w.id = r.worker_id AND w.name = %(worker)s AND w.wanted_state = 'ok'
  JOIN run s ON s.commit_id = r.commit_id AND s.testbed_id = r.testbed_id AND s.kind = r.kind AND s.state = 'queued'
  WHERE r.id = %(after)s AND r.state IN ('done', 'failed') AND r.kind <> 'confirm'
  ORDER BY s.requested_at, s.id LIMIT 1
), seen AS (
  SELECT first.* FROM sibling b CROSS JOIN LATERAL (
    SELECT r.testbed_id, r.project_id, r.kind FROM run r WHERE r.state = 'queued' AND r.testbed_id = b.testbed_id
    ORDER BY r.project_id, r.kind LIMIT 1) AS first
  UNION ALL
  SELECT next.* FROM seen s CROSS JOIN LATERAL (
    SELECT r.testbed_id, r.project_id, r.kind FROM run r
    WHERE r.state = 'queued' AND r.testbed_id = s.testbed_id AND (r.project_id, r.kind) > (s.project_id, s.kind)
    ORDER BY r.project_id, r.kind LIMIT 1) AS next
)
SELECT b.id FROM sibling b WHERE NOT EXISTS (
  SELECT FROM seen JOIN unnest(%(kinds)s::text[], %(priorities)s::int[]) AS k (kind, priority) ON k.kind = seen.kind
  WHERE k.priority > b.priority)
"""


def read_groups(
    c: Connection,
    wanted: Sequence[tuple[int, int]],
    *,
    again_before: datetime,
    now: datetime,
    halves_after_s: float,
    a_run_s: float,
) -> list[tuple[list[RunGroup], dict[int, float]]]:
    """For each (testbed, limit): its groups with runs to publish (`waiting` up to the limit), and the use of it by each
    project, in seconds. One round trip, however many testbeds."""
    statements: list[wire.Statement] = []
    for testbed_id, limit in wanted:
        values = {"testbed": testbed_id, "again_before": again_before}
        statements.append((GROUPS, {**values, "limit": limit}))
        statements.append((USE, {**values, "now": now, "halves": halves_after_s, "a_run": a_run_s}))
    answers = wire.send(c, *statements)
    return [
        ([RunGroup(**row._asdict()) for row in groups], {row.project_id: row.seconds for row in use})
        for groups, use in zip(answers[::2], answers[1::2], strict=True)
    ]


def pick(
    c: Connection, turns: Mapping[int, Sequence[tuple[int, str, int, bool]]], *, again_before: datetime
) -> dict[int, list[tuple[str, int]]]:
    """By testbed: the next runs of each (project, kind, how many, newest first), in that order, with their projects."""
    statements = []
    for testbed_id, asked in turns.items():
        projects, kinds, runs, newest = (list(column) for column in zip(*asked, strict=True))
        values = {"projects": projects, "kinds": kinds, "runs": runs, "newest": newest}
        statements.append((PICK, {**values, "testbed": testbed_id, "again_before": again_before}))
    answers = wire.send(c, *statements)
    runs = [[(row.id, row.project_id) for row in rows] for rows in answers]
    return dict(zip(turns, runs, strict=True))


def publish(c: Connection, ids: Sequence[str], now: datetime) -> set[str]:
    """Mark runs as offered to workers; those that were still there."""
    (published,) = wire.send(c, (_PUBLISH, {"ids": list(ids), "now": now}))
    return {row.id for row in published}


def served_statement(testbed_id: int, project_id: int, kind: str, now: datetime) -> wire.Statement:
    """A run of this group is in a worker's hands."""
    return _SERVED, {"testbed": testbed_id, "project": project_id, "kind": kind, "now": now}


def count_use(c: Connection, *, now: datetime, counted_before: datetime, halves_after_s: float) -> None:
    """Add what runs in progress have used since they were last counted."""
    wire.send(c, UNHURRIED, (_COUNT_USE, {"now": now, "counted_before": counted_before, "halves": halves_after_s}))


def sibling(c: Connection, worker: str, after: str, *, priorities: Mapping[str, int], now: datetime) -> str | None:
    """Another queued suite of the commit of the run that this worker has just ended, kept from others for a moment.
    None also while a run of a more urgent kind (`priorities`) than that one waits for this testbed."""
    kinds, ranks = list(priorities), list(priorities.values())
    (found,) = wire.send(c, (_SIBLING, {"worker": worker, "after": after, "kinds": kinds, "priorities": ranks}))
    if not found:
        return None
    (published,) = wire.send(c, (_PUBLISH, {"ids": [found[0].id], "now": now}))
    return str(found[0].id) if published else None
