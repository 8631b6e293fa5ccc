"""The demo as a project of the service: its repository made, its project saved, its commits waiting to be measured."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from backend.services.base import projects
from backend.services.base.errors import NotFound
from backend.store.base import projects as store
from tidemark.demo import repository

SLUG = projects.DEMO


def ensure_demo_project(connection: Connection, data_dir: Path) -> str | None:
    """The demo's project, made at the first start; None when the person has deleted it since."""
    place = data_dir / "demo" / "tinygpt"
    try:
        return projects.find_project(connection, SLUG).slug
    except NotFound:
        # A new database under an old data directory gets its demo again.
        if place.exists() and store.slugs(connection, 1):
            return None
    if not place.exists():
        repository.build(place)
    # Trusted: we wrote every line of it, and file:// is allowed to trusted projects alone.
    projects.save_project(
        connection,
        SLUG,
        repository_url=place.as_uri(),
        default_branch=repository.BRANCH,
        trusted=True,
        now=datetime.now(UTC),
    )
    return SLUG
