"""Messages to GitHub: added by whatever changes something, sent by the housekeeping loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, and_, delete, or_, select, text, update

from backend.store.base import wire
from backend.store.tables.core import project
from backend.store.tables.github import github_outbox


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    project_id: int
    kind: str
    key: str
    state: str
    wanted_at: datetime
    send_after: datetime | None
    attempts: int
    error: str | None
    remote_id: str | None
    memory: dict[str, Any]
    sent_at: datetime | None


ROWS = select(*(github_outbox.c[name] for name in OutboxRow.__dataclass_fields__))

# Projects that no webhook has vouched for are connected to nothing, and leave nothing here.
_WANT = """
INSERT INTO github_outbox (project_id, kind, key, state, wanted_at)
SELECT id, kind, key, 'waiting', clock_timestamp() FROM (
  SELECT DISTINCT p.id, w.kind, w.key
  FROM run r JOIN project p ON p.id = r.project_id AND p.settings #> '{github,repository}' IS NOT NULL
  JOIN commit k ON k.id = r.commit_id
  LEFT JOIN pull_request pr ON pr.project_id = p.id AND pr.head_sha = k.sha AND pr.state = 'open'
  CROSS JOIN LATERAL (VALUES ('check', k.sha), ('comment', pr.number::text)) AS w (kind, key)
  WHERE r.id = ANY(%(runs)s) AND w.key IS NOT NULL) AS wanted
ORDER BY 2, 3
ON CONFLICT (project_id, kind, key)
DO UPDATE SET state = 'waiting', wanted_at = excluded.wanted_at, attempts = 0, error = NULL
"""
# Of one run, as every lease and every delivery says it: with a list PostgreSQL plans the statement anew each time.
_WANT_OF_ONE = _WANT.replace("= ANY(%(runs)s)", "= %(run)s")
_WANT_CHECK = text(
    """INSERT INTO github_outbox (project_id, kind, key, state, wanted_at)
       SELECT id, 'check', :sha, 'waiting', clock_timestamp() FROM project
       WHERE id = :project AND settings #> '{github,repository}' IS NOT NULL
       ON CONFLICT (project_id, kind, key)
       DO UPDATE SET state = 'waiting', wanted_at = excluded.wanted_at, attempts = 0, error = NULL"""
)


def want_statement(run_id: str) -> wire.Statement:
    """The check of this run's commit, and the comment of its pull request, are to be brought up to date."""
    return _WANT_OF_ONE, {"run": run_id}


def want(c: Connection, run_ids: Sequence[str]) -> None:
    """The same for several runs."""
    wire.send(c, want_statement(run_ids[0]) if len(run_ids) == 1 else (_WANT, {"runs": list(run_ids)}))


def want_check(c: Connection, project_id: int, sha: str) -> None:
    """The same for a commit that has no run (and may need none)."""
    c.execute(_WANT_CHECK, {"project": project_id, "sha": sha})


_WANT_REPLY = text(
    """INSERT INTO github_outbox (project_id, kind, key, state, wanted_at, memory)
       VALUES (:project, 'reply', :comment, 'waiting', clock_timestamp(), CAST(:memory AS jsonb))
       ON CONFLICT (project_id, kind, key) DO NOTHING"""
)
# A regression is told anew when it has changed since; those that were never confirmed have no issue.
_WANT_ISSUES = text(
    """INSERT INTO github_outbox (project_id, kind, key, state, wanted_at, memory)
       SELECT p.id, 'issue', g.id::text, 'waiting', clock_timestamp(),
         jsonb_build_object('seen', g.state || ' ' || g.updated_at)
       FROM regression g
       JOIN project p ON p.id = g.project_id AND p.settings #>> '{github,issues}' = 'true'
         AND p.settings #> '{github,repository}' IS NOT NULL
       LEFT JOIN github_outbox o ON o.project_id = p.id AND o.kind = 'issue' AND o.key = g.id::text
       WHERE CASE WHEN o.key IS NULL THEN g.state IN ('confirmed', 'acknowledged')
                  ELSE o.memory ->> 'seen' IS DISTINCT FROM g.state || ' ' || g.updated_at END
       ON CONFLICT (project_id, kind, key)
       DO UPDATE SET state = 'waiting', wanted_at = excluded.wanted_at, attempts = 0, error = NULL,
         memory = github_outbox.memory || excluded.memory"""
)


def want_reply(c: Connection, project_id: int, comment_id: str, memory: Mapping[str, Any]) -> None:
    """A command was given in a comment. Each comment is recorded only once."""
    c.execute(_WANT_REPLY, {"project": project_id, "comment": comment_id, "memory": orjson.dumps(memory).decode()})


def want_issues(c: Connection) -> int:
    """The issues of regressions that were confirmed, or have changed since they were last sent."""
    return c.execute(_WANT_ISSUES).rowcount


def remember(c: Connection, row: "OutboxRow", memory: Mapping[str, Any]) -> None:
    """Store what was done, before it is sent."""
    c.execute(update(github_outbox).where(_this(row)).values(memory=dict(memory)))


def remote_id(c: Connection, project_id: int, kind: str, key: str) -> str | None:
    """The id that GitHub gave it."""
    statement = select(github_outbox.c.remote_id).where(
        github_outbox.c.project_id == project_id, github_outbox.c.kind == kind, github_outbox.c.key == key
    )
    found: str | None = c.execute(statement).scalar_one_or_none()
    return found


def due(c: Connection, now: datetime, limit: int) -> list[OutboxRow]:
    """Rows that are to be sent now, the longest waiting first."""
    statement = ROWS.where(
        github_outbox.c.state == "waiting",
        or_(github_outbox.c.send_after.is_(None), github_outbox.c.send_after <= now),
    )
    rows = c.execute(statement.order_by(github_outbox.c.wanted_at).limit(limit))
    return [OutboxRow(**row._mapping) for row in rows]


def listed(c: Connection, project_id: int, limit: int) -> list[OutboxRow]:
    statement = ROWS.where(github_outbox.c.project_id == project_id)
    rows = c.execute(statement.order_by(github_outbox.c.wanted_at.desc()).limit(limit))
    return [OutboxRow(**row._mapping) for row in rows]


def _this(row: OutboxRow) -> Any:
    return and_(
        github_outbox.c.project_id == row.project_id,
        github_outbox.c.kind == row.kind,
        github_outbox.c.key == row.key,
    )


def set_sent(c: Connection, row: OutboxRow, *, remote_id: str | None, memory: Mapping[str, Any], now: datetime) -> None:
    """It was sent. What was requested meanwhile stays requested."""
    statement = update(github_outbox).where(_this(row))
    c.execute(statement.values(remote_id=remote_id, memory=dict(memory), sent_at=now, attempts=0, error=None))
    unchanged = github_outbox.c.wanted_at == row.wanted_at
    c.execute(statement.where(unchanged).values(state="sent", send_after=None))


def set_failed(c: Connection, row: OutboxRow, error: str, send_after: datetime | None) -> None:
    """Not sent: retried at `send_after`, or given up (None). What was requested meanwhile is tried anyway."""
    state = "gave_up" if send_after is None else "waiting"
    values = {"state": state, "error": error[:2000], "send_after": send_after, "attempts": row.attempts + 1}
    unchanged = github_outbox.c.wanted_at == row.wanted_at
    c.execute(update(github_outbox).where(_this(row), unchanged).values(values))


def prune(c: Connection, before: datetime) -> int:
    """Delete what was sent long ago. Not issues: a regression may stay open for years, and has only one."""
    old = and_(github_outbox.c.wanted_at < before, github_outbox.c.kind != "issue")
    return c.execute(delete(github_outbox).where(old)).rowcount


def connected(c: Connection, project_id: int) -> Mapping[str, Any] | None:
    """GitHub settings of a project; None: it is not connected."""
    statement = select(project.c.settings).where(project.c.id == project_id)
    found = (c.execute(statement).scalar_one_or_none() or {}).get("github")
    return found if isinstance(found, dict) and found.get("repository") else None
