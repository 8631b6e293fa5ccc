"""Reads and writes of a project's policy: its tables, its load, the series and runs it was judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from backend.store.base import wire
from backend.store.judging.series import SeriesRow


@dataclass(frozen=True, slots=True)
class Gate:
    """A series that was measured in some stretch of time, and where."""

    series: SeriesRow
    testbed: str


@dataclass(frozen=True, slots=True)
class Watched(Gate):
    """A series with a standing point in some stretch of time."""

    first_position: int
    """Of its points in that time."""


class Tables(NamedTuple):
    """Where the thresholds of a project come from."""

    declared: dict[str, Any]
    """By its tidemark.toml."""
    chosen: dict[str, Any]
    """Chosen on the server; it takes precedence."""
    points_per_week: float


_TABLES = """
SELECT policy, coalesce(settings #> '{policy,table}', '{}'), (settings #>> '{load,points_per_week}')::float8
FROM project WHERE id = %(project)s OR slug = %(slug)s
"""
_NAMES = """s.id, s.suite, s.suite_version, s.benchmark, s.variant_key, s.preset, s.metric, s.unit, s.direction,
              s.role, s.exact, s.state_position, t.name AS testbed"""
_GATES = text(
    f"""SELECT {_NAMES} FROM series s JOIN testbed t ON t.id = s.testbed_id
        WHERE s.project_id = :project AND s.role = 'gate' AND s.last_measured_at >= :since ORDER BY s.id"""
)
_WATCHED = text(
    f"""SELECT {_NAMES}, found.first_position
       FROM series s JOIN testbed t ON t.id = s.testbed_id
       CROSS JOIN LATERAL (
         SELECT min(j.position) AS first_position FROM judgement j
         WHERE j.series_id = s.id AND j.branch_id IS NULL AND j.superseded_at IS NULL AND j.measured_at >= :since
       ) AS found
       WHERE s.project_id = :project AND s.last_measured_at >= :since AND found.first_position IS NOT NULL
         AND s.id > :after AND (CAST(:ids AS int[]) IS NULL OR s.id = ANY(:ids))
       ORDER BY s.id LIMIT :limit"""
)
_SHAS = text(
    """SELECT bc.position, k.sha
       FROM project p JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       JOIN branch_commit bc ON bc.branch_id = b.id JOIN commit k ON k.id = bc.commit_id
       WHERE p.id = :project AND bc.position = ANY(:positions)"""
)
_LOAD = text(
    """SELECT s.project_id, count(*)
       FROM judgement j JOIN series s ON s.id = j.series_id
       WHERE j.measured_at >= :since AND j.branch_id IS NULL AND j.superseded_at IS NULL AND s.role = 'gate'
       GROUP BY s.project_id"""
)
_SAVE_LOAD = text(
    """UPDATE project SET settings = settings || jsonb_build_object('load', jsonb_build_object(
         'points_per_week', CAST(:points AS int), 'at', CAST(:at AS text)))
       WHERE id = :project AND (settings #>> '{load,points_per_week}')::int IS DISTINCT FROM :points"""
)
_TO_REJUDGE = text(
    """SELECT id FROM project WHERE settings ? 'rejudge' AND settings -> 'rejudge' ->> 'finished_at' IS NULL
       ORDER BY settings -> 'rejudge' ->> 'requested_at'"""
)


def claim_preview(c: Connection, project_id: int) -> bool:
    """Whether no one else works on a preview of this project; held for the rest of the transaction."""
    statement = text("SELECT pg_try_advisory_xact_lock(hashtext('tidemark preview'), :project)")
    return bool(c.scalar(statement, {"project": project_id}))


def tables(c: Connection, project_id: int) -> Tables:
    """Of a project that is there."""
    (((declared, chosen, points),),) = wire.send(c, (_TABLES, {"project": project_id, "slug": None}))
    return Tables(declared, chosen, points or 0.0)


def tables_of(c: Connection, slug: str) -> Tables | None:
    """The same by the project's name; None: there is none of that name."""
    (rows,) = wire.send(c, (_TABLES, {"project": None, "slug": slug}))
    return Tables(rows[0][0], rows[0][1], rows[0][2] or 0.0) if rows else None


def gates_since(c: Connection, project_id: int, since: datetime) -> list[Gate]:
    """The project's gate series that were measured since then, in order of their ids."""
    rows = c.execute(_GATES, {"project": project_id, "since": since})
    return [Gate(*_named(row._asdict())) for row in rows]


def watched_since(
    c: Connection,
    project_id: int,
    since: datetime,
    *,
    ids: Sequence[int] | None = None,
    after: int = 0,
    limit: int = 1_000_000,
) -> list[Watched]:
    """The project's series (or those of these ids) that have a standing point on the default branch since then, in
    order of their ids."""
    values = {"project": project_id, "since": since, "after": after, "limit": limit}
    rows = c.execute(_WATCHED, {**values, "ids": None if ids is None else list(ids)})
    return [_watched(row._asdict()) for row in rows]


def _watched(row: dict[str, Any]) -> Watched:
    first_position = row.pop("first_position")
    return Watched(*_named(row), first_position)


def _named(row: dict[str, Any]) -> tuple[SeriesRow, str]:
    testbed = row.pop("testbed")
    return SeriesRow(**row, state=None, state_tail=None), testbed


def shas(c: Connection, project_id: int, positions: Sequence[int]) -> dict[int, str]:
    """The commits at positions of the default branch."""
    rows = c.execute(_SHAS, {"project": project_id, "positions": list(positions)})
    return {position: sha for position, sha in rows}


def measure_load(c: Connection, since: datetime, now: datetime) -> None:
    """How many points of gate metrics each project judged since then, kept with its settings."""
    for project_id, points in c.execute(_LOAD, {"since": since}).all():
        c.execute(_SAVE_LOAD, {"project": project_id, "points": points, "at": now.isoformat()})


def to_rejudge(c: Connection) -> list[int]:
    """Projects of which series are still to be judged again, the longest waiting first."""
    return list(c.execute(_TO_REJUDGE).scalars())
