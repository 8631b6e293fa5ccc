"""Workers: registered at their first contact, and told what state they should be in."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, update

from backend.store.base import wire
from backend.store.tables.core import worker


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedWorker:
    """A worker as it describes itself. `token_id`: whose name it has; None may speak for any."""

    name: str
    testbed: str
    project_id: int | None
    token_id: int | None
    version: str
    capabilities: Mapping[str, Any]
    protection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWorker:
    """A worker that has just said something, and the state that it should be in."""

    id: int
    wanted_state: str


_REGISTER = """
WITH there AS (
  INSERT INTO testbed (name) SELECT %(testbed)s WHERE NOT EXISTS (SELECT FROM testbed WHERE name = %(testbed)s)
  ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
), home AS (SELECT id FROM testbed WHERE name = %(testbed)s UNION SELECT id FROM there)
INSERT INTO worker AS w
  (name, testbed_id, project_id, token_id, version, capabilities, protection, started_at, last_seen_at)
SELECT %(name)s, id, %(project)s::int, %(token)s::int, %(version)s, %(capabilities)s::jsonb, %(protection)s, %(now)s,
  %(now)s
FROM home LIMIT 1
ON CONFLICT (name) DO UPDATE SET testbed_id = excluded.testbed_id, project_id = excluded.project_id,
  version = excluded.version, token_id = coalesce(excluded.token_id, w.token_id),
  capabilities = excluded.capabilities, protection = excluded.protection, last_seen_at = excluded.last_seen_at,
  started_at = CASE WHEN %(starting)s THEN excluded.started_at ELSE w.started_at END
WHERE %(token)s::int IS NULL OR w.token_id IS NULL OR w.token_id = %(token)s::int OR NOT EXISTS (
  SELECT FROM api_token t WHERE t.id = w.token_id AND t.revoked_at IS NULL
    AND (t.expires_at IS NULL OR t.expires_at > %(now)s))
RETURNING w.id, w.wanted_state
"""


def worker_statement(seen: DescribedWorker, *, starting: bool, now: datetime) -> wire.Statement:
    """Stores or refreshes a worker (and its testbed, on first sight); answers with a `SeenWorker`, or with none: its
    name belongs to another token that is still good."""
    values = {
        "name": seen.name,
        "testbed": seen.testbed,
        "project": seen.project_id,
        "token": seen.token_id,
        "version": seen.version,
        "capabilities": orjson.dumps(seen.capabilities).decode(),
        "protection": seen.protection,
        "starting": starting,
        "now": now,
    }
    return _REGISTER, values


def register_worker(c: Connection, worker: wire.Statement) -> SeenWorker | None:
    """None: its name belongs to another token."""
    (rows,) = wire.send(c, worker)
    return SeenWorker(**rows[0]._asdict()) if rows else None


def set_wanted_state(c: Connection, name: str, state: str) -> bool:
    return c.execute(update(worker).where(worker.c.name == name).values(wanted_state=state)).rowcount == 1
