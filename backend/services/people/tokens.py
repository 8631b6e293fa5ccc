"""API tokens, made and revoked: by who administers a project those of it, by who administers the service all."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from backend.services.base import access
from backend.services.base.access import NewToken
from backend.services.base.confine import require_all, require_of, visible_projects
from backend.services.base.errors import NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.base.access import TokenRow


def make(
    c: Connection,
    by: Principal,
    name: str,
    scopes: Sequence[str],
    *,
    now: datetime,
    project: str | None = None,
    expires_at: datetime | None = None,
) -> NewToken:
    """Make a token: of a project, or without one of the whole service."""
    if project is None:
        require_all(c, by, Scope.ADMIN)
    else:
        require_of(c, by, Scope.ADMIN, "project", project)
    project_id = None if project is None else find_project(c, project).id
    made = access.create_token(c, name, scopes, now=now, project_id=project_id, expires_at=expires_at)
    subject = f"{made.name} (#{made.id})"
    audit.record(c, by, Did.MADE_TOKEN, subject, now=now, project=project, scopes=made.scopes, expires_at=expires_at)
    return made


def listed(c: Connection, by: Principal) -> list[TokenRow]:
    """The tokens that they may revoke, without secrets."""
    by.require(Scope.ADMIN)
    rows = access.list_tokens(c)
    if by.project_id is None and by.may(Scope.ADMIN):
        return rows
    mine = {number for number, held in by.in_projects.items() if Scope.ADMIN in held}
    seen = visible_projects(c, by) or frozenset()
    return [row for row in rows if row.project_id in mine & seen]


def revoke(c: Connection, by: Principal, token_id: int, *, now: datetime) -> None:
    """From now on."""
    found = next((row for row in listed(c, by) if row.id == token_id), None)
    if found is None:
        raise NotFound.of("active token", token_id)
    access.revoke_token(c, token_id, now)
    audit.record(c, by, Did.REVOKED_TOKEN, f"{found.name} (#{found.id})", now=now, project=found.project)
