"""A project is removed: its rows, its mirror, its artifacts. Only the audit trail still says that it was there."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection

from backend.services.base.artifacts import directory_of
from backend.services.base.config import ServiceConfig
from backend.services.base.confine import require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import Principal, Scope
from backend.services.base.projects import find_project
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.base import removal as store
from backend.store.base.removal import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Counts of the rows and files that went, or would go."""

    project: str
    removed: bool
    contents: Contents


def preview(c: Connection, by: Principal, slug: str) -> Removed:
    """Counts of the rows and files that would go with the project."""
    require_of(c, by, Scope.ADMIN, "project", slug)
    return Removed(project=slug, removed=False, contents=store.contents(c, find_project(c, slug).id))


def remove(
    c: Connection, by: Principal, slug: str, *, confirm: str | None, config: ServiceConfig, now: datetime
) -> tuple[Removed, list[Path]]:
    """Remove the rows. The files that are left over are removed when this is committed, and not before."""
    require_of(c, by, Scope.ADMIN, "project", slug)
    project = find_project(c, slug)
    if confirm != slug:
        raise BadRequest.field("confirm", confirm, f"the project's name, {slug}: this cannot be undone")
    if not store.lock(c, project.id):
        raise NotFound.of("project", slug)
    if busy := store.at_work(c, project.id):
        raise Conflict(f"workers are measuring {busy} of its runs; cancel them, or wait for them")
    found = store.contents(c, project.id)
    runs = store.run_ids(c, project.id)
    store.remove(c, project.id)
    audit.record(c, by, Did.REMOVED_PROJECT, slug, now=now, project=slug, runs=found.runs, series=found.series)
    files = [
        config.mirrors_dir / f"{project.id}.git",
        config.archive_dir / f"project={quote(slug, safe='')}",
        *(directory_of(config, run_id) for run_id in runs),
    ]
    return Removed(project=slug, removed=True, contents=found), files


def remove_stray_mirrors(c: Connection, config: ServiceConfig) -> int:
    """Remove the mirrors of projects that are gone: of one that was just read when it was removed, or where the service
    stopped between the two. How many there were."""
    mirrors = list(config.mirrors_dir.glob("*.git"))  # first: that of a project made meanwhile is not among them
    kept = {f"{project_id}.git" for project_id in store.project_ids(c)}
    stray = [path for path in mirrors if path.name not in kept]
    remove_files(stray)
    return len(stray)


def remove_files(paths: Sequence[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
