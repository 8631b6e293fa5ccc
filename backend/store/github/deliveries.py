"""Webhook deliveries already seen, so that one that comes twice is acted on once."""

from datetime import datetime

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.tables.github import webhook_delivery


def claim(c: Connection, delivery_id: str, event: str, now: datetime) -> bool:
    """True for the first to come with this id. A second one at the same moment waits for the first one's end."""
    statement = upsert(webhook_delivery).values(delivery_id=delivery_id, event=event, received_at=now)
    statement = statement.on_conflict_do_nothing(index_elements=["delivery_id"])
    return c.execute(statement.returning(webhook_delivery.c.delivery_id)).one_or_none() is not None


def outcome_of(c: Connection, delivery_id: str) -> str:
    statement = select(webhook_delivery.c.outcome).where(webhook_delivery.c.delivery_id == delivery_id)
    return str(c.execute(statement).scalar_one_or_none() or "")


def set_outcome(c: Connection, delivery_id: str, outcome: str, project_id: int | None) -> None:
    statement = update(webhook_delivery).where(webhook_delivery.c.delivery_id == delivery_id)
    c.execute(statement.values(outcome=outcome, project_id=project_id))


def prune(c: Connection, before: datetime) -> int:
    return c.execute(delete(webhook_delivery).where(webhook_delivery.c.received_at < before)).rowcount
