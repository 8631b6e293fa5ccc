"""Rules of projects: who is notified of what, and where."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from backend.store.tables.core import project
from backend.store.tables.notify import notify_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRuleRow:
    """One rule. `address` holds secrets: it is shown nowhere, not even in an error message."""

    id: int
    project_id: int
    project: str
    name: str
    address: str = field(repr=False)
    shown_address: str
    suites: list[str]
    causes: list[str]
    states: list[str]
    owners: list[str]
    min_change: float | None
    digest: str | None
    time_zone: str
    quiet_from: str | None
    quiet_until: str | None
    created_at: datetime


RULES = select(
    *(notify_rule.c[name] for name in NotifyRuleRow.__dataclass_fields__ if name != "project"),
    project.c.slug.label("project"),
).join(project, project.c.id == notify_rule.c.project_id)


def of_project(c: Connection, project_id: int) -> list[NotifyRuleRow]:
    rows = c.execute(RULES.where(notify_rule.c.project_id == project_id).order_by(notify_rule.c.id))
    return [NotifyRuleRow(**row._mapping) for row in rows]


def find(c: Connection, rule_id: int) -> NotifyRuleRow | None:
    row = c.execute(RULES.where(notify_rule.c.id == rule_id)).one_or_none()
    return None if row is None else NotifyRuleRow(**row._mapping)


def with_digest(c: Connection) -> list[NotifyRuleRow]:
    rows = c.execute(RULES.where(notify_rule.c.digest.is_not(None)).order_by(notify_rule.c.id))
    return [NotifyRuleRow(**row._mapping) for row in rows]


def add(c: Connection, project_id: int, values: Mapping[str, Any], now: datetime) -> int:
    statement = insert(notify_rule).values(project_id=project_id, created_at=now, **values)
    return int(c.execute(statement.returning(notify_rule.c.id)).scalar_one())


def change(c: Connection, rule_id: int, values: Mapping[str, Any]) -> None:
    c.execute(update(notify_rule).where(notify_rule.c.id == rule_id).values(**values))


def remove(c: Connection, rule_id: int) -> None:
    c.execute(delete(notify_rule).where(notify_rule.c.id == rule_id))
