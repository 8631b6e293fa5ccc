"""Which suites the joint detector cannot read for a while, and how many sessions a project asked for by itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text


class Rest(NamedTuple):
    """One suite, or with the empty name all of the project's: not read until then, and why."""

    suite: str
    since: datetime
    until: datetime
    why: str


_OF_PROJECT = text("SELECT suite, since, until, why FROM fleet_rest WHERE project_id = :project ORDER BY suite")
_FORGET = text("DELETE FROM fleet_rest WHERE project_id = :project")
_PUT = text(
    """INSERT INTO fleet_rest (project_id, suite, since, until, why)
       VALUES (:project, :suite, :since, :until, :why)"""
)
_COUNTS = text(
    "SELECT p.slug, count(*) FROM fleet_rest r JOIN project p ON p.id = r.project_id GROUP BY p.slug ORDER BY p.slug"
)
# The one from which on there are as many as are allowed says when the next may be asked for.
_ASKED = text(
    """SELECT requested_at FROM session
       WHERE project_id = :project AND requested_by = 'tidemark' AND purpose IN ('confirm', 'attribute')
         AND requested_at > :since
       ORDER BY requested_at DESC"""
)


def rests(c: Connection, project_id: int) -> list[Rest]:
    return [Rest(*row) for row in c.execute(_OF_PROJECT, {"project": project_id})]


def put_rests(c: Connection, project_id: int, resting: Iterable[Rest]) -> None:
    """These, and no others."""
    c.execute(_FORGET, {"project": project_id})
    for rest in resting:
        c.execute(_PUT, {"project": project_id, **rest._asdict()})


def resting_by_project(c: Connection) -> dict[str, int]:
    """How many suites (or whole projects) rest, by the name of their project."""
    return {slug: count for slug, count in c.execute(_COUNTS)}


def asked_since(c: Connection, project_id: int, since: datetime) -> list[datetime]:
    """When confirming sessions were asked for that nobody but the service wanted, the newest first."""
    return list(c.execute(_ASKED, {"project": project_id, "since": since}).scalars())
