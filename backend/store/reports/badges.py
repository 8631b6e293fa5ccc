"""Reads of a badge: a project's open regressions, and whether it has any result."""

from typing import NamedTuple

from sqlalchemy import Connection, text


class BadgeStatus(NamedTuple):
    open_regressions: int
    suspects: int
    has_results: bool


_STANDING = text(
    """SELECT count(*) FILTER (WHERE r.state IN ('confirmed', 'acknowledged')),
         count(*) FILTER (WHERE r.state = 'suspect'),
         EXISTS (SELECT FROM series s WHERE s.project_id = :project)
       FROM regression r WHERE r.project_id = :project AND r.still_bad AND r.cause IS DISTINCT FROM 'noise'
         AND r.state IN ('confirmed', 'acknowledged', 'suspect')"""
)


def badge_status(c: Connection, project_id: int) -> BadgeStatus:
    return BadgeStatus(*c.execute(_STANDING, {"project": project_id}).one())
