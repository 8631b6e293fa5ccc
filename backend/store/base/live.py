"""The outbox of the event stream: rows that outlive a broken connection, and the NOTIFY that tells of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, delete, func, insert, select, text

from backend.store.base import wire
from backend.store.tables.core import live_event

CHANNEL = "tidemark"  # pages listen here
WORK_CHANNEL = "tidemark_work"  # the housekeeping loop listens here


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEventRow:
    id: int
    at: datetime
    kind: str
    project_id: int | None
    payload: dict[str, Any]


EVENTS = select(live_event.c.id, live_event.c.at, live_event.c.kind, live_event.c.project_id, live_event.c.payload)


def insert_event(c: Connection, kind: str, project_id: int | None, payload: dict[str, Any]) -> int:
    """Store an event; listeners receive it when the transaction commits."""
    statement = insert(live_event).values(kind=kind, project_id=project_id, payload=payload)
    event_id = int(c.execute(statement.returning(live_event.c.id)).scalar_one())
    c.execute(select(func.pg_notify(CHANNEL, str(event_id))))
    return event_id


_INSERT_EVENT = """
WITH event AS (
  INSERT INTO live_event (kind, project_id, payload) VALUES (%(kind)s, %(project)s, %(payload)s::jsonb) RETURNING id
)
SELECT pg_notify(%(channel)s, id::text) FROM event
"""


def event_statement(kind: str, project_id: int | None, payload: Mapping[str, Any]) -> wire.Statement:
    """`insert_event` as a statement that a batch can carry."""
    values = {"kind": kind, "project": project_id, "channel": CHANNEL, "payload": orjson.dumps(payload).decode()}
    return _INSERT_EVENT, values


_KEEP_EVENT = "INSERT INTO live_event (kind, project_id, payload) VALUES (%(kind)s, %(project)s, %(payload)s::jsonb)"
_TELL_KEPT = """
SELECT pg_notify(%(channel)s, currval('live_event_id_seq')::text), pg_notify(%(work_channel)s, '')
"""


def kept_event(kind: str, project_id: int | None, payload: Mapping[str, Any]) -> tuple[wire.Statement, wire.Statement]:
    """An event as two statements: the one keeps it, the other, which may come when that is committed, tells of it and
    that there is something to do."""
    values = {"kind": kind, "project": project_id, "payload": orjson.dumps(payload).decode()}
    return (_KEEP_EVENT, values), (_TELL_KEPT, {"channel": CHANNEL, "work_channel": WORK_CHANNEL})


def notify_work(c: Connection) -> None:
    """Tell the housekeeping loop that there is something to do (when this transaction commits)."""
    wire.send(c, ("SELECT pg_notify(%(channel)s, '')", {"channel": WORK_CHANNEL}))


def events_by_id(c: Connection, ids: Sequence[int]) -> list[LiveEventRow]:
    return [LiveEventRow(**row._mapping) for row in c.execute(EVENTS.where(live_event.c.id.in_(ids)))]


def events_after(c: Connection, after: int, limit: int) -> list[LiveEventRow]:
    """Events after event `after`, oldest first."""
    statement = EVENTS.where(live_event.c.id > after).order_by(live_event.c.id).limit(limit)
    return [LiveEventRow(**row._mapping) for row in c.execute(statement)]


def ids_after(c: Connection, after: int, limit: int) -> list[int]:
    """The newest events after event `after`, oldest first."""
    statement = select(live_event.c.id).where(live_event.c.id > after).order_by(live_event.c.id.desc()).limit(limit)
    return sorted(c.execute(statement).scalars())


def newest_event(c: Connection) -> int:
    return int(c.execute(select(func.coalesce(func.max(live_event.c.id), 0))).scalar_one())


def prune(c: Connection, before: datetime) -> int:
    return c.execute(delete(live_event).where(live_event.c.at < before)).rowcount


def lock(c: Connection, name: str, number: int = 0) -> None:
    """Wait for an advisory lock, held for the rest of this transaction."""
    c.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name), :number)"), {"name": name, "number": number})
