"""Which suites the joint detector cannot read for a while, and how many sessions a project requested automatically."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text


class Pause(NamedTuple):
    """One suite, or with the empty name all of the project's: not read until then, and why."""

    suite: str
    since: datetime
    until: datetime
    why: str


_OF_PROJECT = text("SELECT suite, since, until, why FROM joint_pause WHERE project_id = :project ORDER BY suite")
_FORGET = text("DELETE FROM joint_pause WHERE project_id = :project")
_PUT = text(
    """INSERT INTO joint_pause (project_id, suite, since, until, why)
       VALUES (:project, :suite, :since, :until, :why)"""
)
_COUNTS = text(
    "SELECT p.slug, count(*) FROM joint_pause r JOIN project p ON p.id = r.project_id GROUP BY p.slug ORDER BY p.slug"
)
# The one from which on there are as many as are allowed says when the next may be asked for.
_ASKED = text(
    """SELECT requested_at FROM session
       WHERE project_id = :project AND requested_by = 'tidemark' AND purpose IN ('confirm', 'attribute')
         AND requested_at > :since
       ORDER BY requested_at DESC"""
)


def pauses(c: Connection, project_id: int) -> list[Pause]:
    return [Pause(*row) for row in c.execute(_OF_PROJECT, {"project": project_id})]


def put_pauses(c: Connection, project_id: int, paused: Iterable[Pause]) -> None:
    """These, and no others."""
    c.execute(_FORGET, {"project": project_id})
    for pause in paused:
        c.execute(_PUT, {"project": project_id, **pause._asdict()})


def paused_by_project(c: Connection) -> dict[str, int]:
    """How many suites (or whole projects) pause, by the name of their project."""
    return {slug: count for slug, count in c.execute(_COUNTS)}


def asked_since(c: Connection, project_id: int, since: datetime) -> list[datetime]:
    """When confirming sessions were requested automatically, the newest first."""
    return list(c.execute(_ASKED, {"project": project_id, "since": since}).scalars())
