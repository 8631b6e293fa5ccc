"""The audit trail as rows: added, read, and never changed; a trigger of the database sees to that."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, insert, select

from backend.store.tables.access import audit_event


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """Who did what, when, by what means. `subject` is what it was done to."""

    id: int
    at: datetime
    actor: str
    via: str
    project: str | None
    action: str
    subject: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """A filter of the trail; None: all. `projects` limits it to these, `before` to events older than that id."""

    projects: tuple[str, ...] | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None


def add(c: Connection, **event: Any) -> None:
    c.execute(insert(audit_event).values(**event))


def read(c: Connection, wanted: AuditFilter, limit: int) -> list[AuditRow]:
    """The newest first."""
    return [_row(row._mapping) for row in c.execute(_of(wanted).limit(limit))]


def read_all(c: Connection, wanted: AuditFilter) -> Iterator[AuditRow]:
    """The newest first, from the server as they are used."""
    for row in c.execution_options(yield_per=1000).execute(_of(wanted)):
        yield _row(row._mapping)


def _row(fields: Mapping[Any, Any]) -> AuditRow:
    return AuditRow(**{str(name): value for name, value in fields.items()})


def _of(wanted: AuditFilter) -> Select[Any]:
    found = select(audit_event).order_by(audit_event.c.id.desc())
    if wanted.projects is not None:
        found = found.where(audit_event.c.project.in_(wanted.projects))
    if wanted.actor is not None:
        found = found.where(audit_event.c.actor.icontains(wanted.actor, autoescape=True))
    if wanted.action is not None:
        found = found.where(audit_event.c.action.startswith(wanted.action, autoescape=True))
    if wanted.since is not None:
        found = found.where(audit_event.c.at >= wanted.since)
    if wanted.until is not None:
        found = found.where(audit_event.c.at <= wanted.until)
    if wanted.before is not None:
        found = found.where(audit_event.c.id < wanted.before)
    return found
