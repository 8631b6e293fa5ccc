"""Events of runs, as their workers report them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from backend.store.tables.core import run_event


def insert_run_events(c: Connection, rows: Sequence[dict[str, Any]]) -> list[int]:
    statement = insert(run_event).returning(run_event.c.id, sort_by_parameter_order=True)
    return list(c.execute(statement, list(rows)).scalars())


def run_events_after(c: Connection, run_id: str, after: int, limit: int) -> list[dict[str, Any]]:
    statement = (
        select(run_event.c.id, run_event.c.attempt, run_event.c.at, run_event.c.kind, run_event.c.detail)
        .where(run_event.c.run_id == run_id, run_event.c.id > after)
        .order_by(run_event.c.id)
        .limit(limit)
    )
    return [dict(row._mapping) for row in c.execute(statement)]


def prune_run_events(c: Connection, before: datetime) -> int:
    return c.execute(delete(run_event).where(run_event.c.at < before)).rowcount
