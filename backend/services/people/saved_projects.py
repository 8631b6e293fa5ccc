"""Projects, as people make and change them: who administers the service all, who administers one most of that one."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from sqlalchemy import Connection

from backend.services.base import projects
from backend.services.base.confine import require_all, require_of
from backend.services.base.errors import Forbidden
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import ProjectChange, Saved
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.base import projects as store

OF_THE_SERVICE: Mapping[str, str] = {
    "repository_url": "where the repository of a project is",
    "trusted": "whether the commits of a project may run unprotected",
}


def save(c: Connection, by: Principal, slug: str, *, now: datetime, **change: Unpack[ProjectChange]) -> Saved:
    """Create or change a project. Only administrators of the service may set where its repository is and whether its
    commits may run unprotected: the service reads repositories with its own rights."""
    known = store.find(c, slug)
    if known is None:
        require_all(c, by, Scope.ADMIN)
    else:
        require_of(c, by, Scope.ADMIN, "project", slug)
        for name, what in OF_THE_SERVICE.items():
            if not by.may(Scope.ADMIN) and change.get(name, getattr(known, name)) != getattr(known, name):
                raise Forbidden(f"{what} is for administrators of the service")
    saved = projects.save_project(c, slug, now=now, **change)
    audit.record(c, by, Did.SAVED_PROJECT, slug, now=now, project=slug, made=saved.created, change=_shown(change))
    return saved


def _shown(change: Mapping[str, Any]) -> dict[str, Any]:
    """Without secrets."""
    github = {name: "…" if name == "webhook_secret" and value else value for name, value in _of(change, "github")}
    return {**change, "github": github} if "github" in change else dict(change)


def _of(change: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    return list((change.get(name) or {}).items())


def has_webhook_secret(c: Connection, project_id: int) -> bool:
    """Whether its webhook is signed by its own secret."""
    return project_id in store.webhook_secrets(c)
