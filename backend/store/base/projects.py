"""Projects as rows: found, created, marked to be synchronized."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, ScalarSelect, Table, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.tables.core import project


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRow:
    id: int
    slug: str
    default_branch: str
    repository_url: str | None
    trusted: bool
    private: bool
    policy: dict[str, Any]
    settings: dict[str, Any]
    sync_requested_at: datetime | None
    synced_at: datetime | None
    sync_error: str | None


PROJECTS = select(
    project.c.id,
    project.c.slug,
    project.c.default_branch,
    project.c.repository_url,
    project.c.trusted,
    project.c.private,
    project.c.policy,
    project.c.settings,
    project.c.sync_requested_at,
    project.c.synced_at,
    project.c.sync_error,
)


def project_of(table: Table, number: object) -> ScalarSelect[Any]:
    """The project of a row, for what belongs to that row."""
    return select(table.c.project_id).where(table.c.id == number).scalar_subquery()


def find(c: Connection, slug: str) -> ProjectRow | None:
    row = c.execute(PROJECTS.where(project.c.slug == slug)).one_or_none()
    return None if row is None else ProjectRow(**row._mapping)


def by_id(c: Connection, project_id: int, *, lock: bool = False) -> ProjectRow | None:
    """`lock`: nobody else can change its settings until the end of the transaction."""
    wanted = PROJECTS.where(project.c.id == project_id)
    row = c.execute(wanted.with_for_update(key_share=True) if lock else wanted).one_or_none()
    return None if row is None else ProjectRow(**row._mapping)


def set_setting(c: Connection, project_id: int, name: str, value: Any) -> None:
    """Change one of a project's settings; None removes it."""
    row = c.execute(select(project.c.settings).where(project.c.id == project_id).with_for_update()).scalar_one()
    changed = {key: kept for key, kept in row.items() if key != name} | ({} if value is None else {name: value})
    c.execute(update(project).where(project.c.id == project_id).values(settings=changed))


def set_webhook_secret(c: Connection, project_id: int, secret: str | None) -> None:
    c.execute(update(project).where(project.c.id == project_id).values(webhook_secret=secret))


def webhook_secrets(c: Connection) -> dict[int, str]:
    """Those of projects that have one of their own."""
    rows = c.execute(select(project.c.id, project.c.webhook_secret).where(project.c.webhook_secret.is_not(None)))
    return {row.id: row.webhook_secret for row in rows}


def forget_installation(c: Connection, installation_id: int) -> int:
    """The app was removed there: its projects are not connected to GitHub any more. What people chose stays."""
    stated = project.c.settings["github"]["installation_id"].as_string()
    less = text("settings #- '{github,installation_id}' #- '{github,repository}'")
    return c.execute(update(project).where(stated == str(installation_id)).values(settings=less)).rowcount


def slugs(c: Connection, limit: int) -> list[str]:
    """Of projects whose name is no secret."""
    named = select(project.c.slug).where(~project.c.private)
    return list(c.execute(named.order_by(project.c.slug).limit(limit)).scalars())


def save(c: Connection, slug: str, values: Mapping[str, Any], now: datetime) -> tuple[int, bool]:
    """Make a project, or change what `values` names of it. Returns (its id, whether it was made)."""
    there = c.execute(select(project.c.id).where(project.c.slug == slug)).scalar_one_or_none()
    statement = upsert(project).values(slug=slug, created_at=now, **values)
    # Something has to be set for the row to be returned.
    statement = statement.on_conflict_do_update(index_elements=["slug"], set_=dict(values) or {"slug": slug})
    return int(c.execute(statement.returning(project.c.id)).scalar_one()), there is None


def request_sync(c: Connection, project_id: int, now: datetime) -> None:
    c.execute(update(project).where(project.c.id == project_id).values(sync_requested_at=now))


def to_sync(c: Connection, failed_before: datetime) -> list[ProjectRow]:
    """Projects to be synchronized, the longest waiting first; one that has just failed pauses."""
    statement = PROJECTS.where(
        project.c.sync_requested_at.is_not(None),
        project.c.repository_url.is_not(None),
        project.c.sync_error.is_(None) | (project.c.synced_at < failed_before),
    )
    return [ProjectRow(**row._mapping) for row in c.execute(statement.order_by(project.c.sync_requested_at))]


def set_synced(c: Connection, project_id: int, *, asked_at: datetime | None, now: datetime) -> None:
    """The sync requested at `asked_at` is done; one requested meanwhile stays requested."""
    statement = update(project).where(project.c.id == project_id)
    c.execute(statement.values(synced_at=now, sync_error=None))
    c.execute(statement.where(project.c.sync_requested_at == asked_at).values(sync_requested_at=None))


def set_sync_failed(c: Connection, project_id: int, error: str, now: datetime) -> None:
    """It stays requested, and is retried after a pause."""
    c.execute(update(project).where(project.c.id == project_id).values(synced_at=now, sync_error=error))


def of_repository(c: Connection, names: list[str], urls: list[str]) -> list[ProjectRow]:
    """Projects that watch this repository: by the URL they were given, or by name. Case does not matter."""
    statement = PROJECTS.where(
        func.lower(project.c.repository_url).in_([url.lower() for url in urls])
        | func.lower(project.c.slug).in_([name.lower() for name in names])
    )
    return [ProjectRow(**row._mapping) for row in c.execute(statement.order_by(project.c.id))]


def with_oidc_repository(c: Connection, name: str) -> list[ProjectRow]:
    """Projects whose rules name another repository than their own as the one whose workflows deliver."""
    stated = func.lower(project.c.settings["oidc"]["repository"].as_string())
    rows = c.execute(PROJECTS.where(stated == name.lower()).order_by(project.c.id))
    return [ProjectRow(**row._mapping) for row in rows]


def request_overdue_syncs(c: Connection, *, synced_before: datetime, now: datetime) -> int:
    """Request the sync of projects without any news for a long time; webhooks get lost."""
    statement = update(project).where(
        project.c.repository_url.is_not(None),
        project.c.sync_requested_at.is_(None),
        project.c.synced_at < synced_before,
    )
    return c.execute(statement.values(sync_requested_at=now)).rowcount
