"""Series: found or created in bulk, and their judge's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, text

from backend.contract import SeriesKey
from backend.records import record
from backend.regression.terms import Direction, PointLike, Role, SeriesKind
from backend.store.base import wire


@cache
def kind_of(direction: str, role: str, exact: bool) -> SeriesKind:
    return SeriesKind(Direction(direction), Role(role), exact)


@record(kw_only=True)
class SeriesRow:
    """A series with its judge's state."""

    id: int
    suite: str
    suite_version: str
    benchmark: str
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    state: bytes | None
    """The whole, as stored; also None if only the tail was read."""
    state_tail: bytes | None
    state_position: int | None

    @property
    def kind(self) -> SeriesKind:
        return kind_of(self.direction, self.role, self.exact)

    def can_judge(self, point: PointLike) -> bool:
        """A change is a ratio of costs: a value of 0 has none, unless the series counts."""
        return self.exact or min(point.values) > 0


@record(kw_only=True)
class SeriesWanted:
    """A series for which a run has a measurement."""

    key: SeriesKey
    variant: Mapping[str, Any]
    unit: str
    direction: str
    role: str
    exact: bool


@record(kw_only=True)
class NewState:
    series_id: int
    state: bytes | None
    """The whole; None: unchanged."""
    state_tail: bytes | None
    position: int
    profile: Mapping[str, Any] | None
    """None: unchanged."""


_COLUMNS = """s.id, s.suite, s.suite_version, s.benchmark, s.variant_key, s.preset, s.metric, s.unit, s.direction,
       s.role, s.exact, s.state_tail, s.state_position"""
# Whoever saw a series last remembers its whole: it is read where nobody does.
_WHOLE_IF_ALONE = "CASE WHEN s.state_tail IS NULL THEN s.state END AS state"
# Every key is looked up in the unique index by itself: a join would be planned by statistics that know nothing of a
# project whose first runs are just coming in. Locked in the order of ids, so that two runs of the same series wait for
# each other and never deadlock.
_LOCK = f"""
SELECT {_COLUMNS}, {_WHOLE_IF_ALONE} FROM series s
WHERE s.id = ANY (ARRAY(
  SELECT found.id
  FROM unnest(%(benchmark)s::text[], %(variant_key)s::text[], %(preset)s::text[], %(metric)s::text[])
       AS k (benchmark, variant_key, preset, metric)
  CROSS JOIN LATERAL (
    SELECT id FROM series
    WHERE project_id = %(project)s AND testbed_id = %(testbed)s AND suite = %(suite)s
      AND suite_version = %(suite_version)s
      AND benchmark = k.benchmark AND variant_key = k.variant_key AND preset = k.preset AND metric = k.metric
    LIMIT 1) AS found))
ORDER BY s.id FOR NO KEY UPDATE OF s
"""
NEW_SERIES_LOCK = "tidemark new series"
_TURN = "SELECT pg_advisory_xact_lock(hashtext(%(lock)s), %(project)s::int)"
_INSERT = """
INSERT INTO series (project_id, testbed_id, suite, suite_version, benchmark, variant, variant_key, preset, metric, unit,
                    direction, role, exact)
SELECT %(project)s, %(testbed)s, %(suite)s, %(suite_version)s, k.benchmark, k.variant::jsonb, k.variant_key, k.preset,
       k.metric, k.unit, k.direction, k.role, k.exact
FROM unnest(%(benchmark)s::text[], %(variant)s::text[], %(variant_key)s::text[], %(preset)s::text[],
            %(metric)s::text[], %(unit)s::text[], %(direction)s::text[], %(role)s::text[], %(exact)s::bool[])
     AS k (benchmark, variant, variant_key, preset, metric, unit, direction, role, exact)
ON CONFLICT ON CONSTRAINT uq_series_key DO NOTHING
"""


Key = tuple[str, str, str, str]
"""Benchmark, variant, preset and metric: what distinguishes series of one project, testbed, suite and suite version."""


def lock_statement(
    project_id: int, testbed_id: int, suite: str, suite_version: str, keys: Sequence[Key]
) -> wire.Statement:
    benchmarks, variants, presets, metrics = map(list, zip(*keys, strict=True)) if keys else ([], [], [], [])
    return _LOCK, {
        "project": project_id,
        "testbed": testbed_id,
        "suite": suite,
        "suite_version": suite_version,
        "benchmark": benchmarks,
        "variant_key": variants,
        "preset": presets,
        "metric": metrics,
    }


def lock_or_make(
    c: Connection,
    project_id: int,
    testbed_id: int,
    suite: str,
    suite_version: str,
    keys: Sequence[Key],
    wanted: Callable[[int], SeriesWanted],
    *found: wire.Rows,
) -> list[SeriesRow]:
    """The series of these keys, in their order, locked for the rest of the transaction; missing ones are created.

    `wanted` describes the series to create for a key, by its index; `found` are the rows of `lock_statement`, if the
    caller has already sent it.
    """
    (rows,) = found or wire.send(c, lock_statement(project_id, testbed_id, suite, suite_version, keys))
    by_key = {_key_of(row): row for row in rows}
    missing = [number for number, key in enumerate(keys) if key not in by_key]
    if missing:
        # One after the other: two runs with the same new series, each in its own order, would wait for each other.
        turn = (_TURN, {"lock": NEW_SERIES_LOCK, "project": project_id})
        make = _insert_statement(project_id, testbed_id, [wanted(number) for number in missing])
        *_, rows = wire.send(c, turn, make, lock_statement(project_id, testbed_id, suite, suite_version, keys))
        by_key = {_key_of(row): row for row in rows}
    return [series_row(by_key[key]) for key in keys]


def _key_of(row: Any) -> Key:
    return row.benchmark, row.variant_key, row.preset, row.metric


def _insert_statement(project_id: int, testbed_id: int, missing: Sequence[SeriesWanted]) -> wire.Statement:
    return _INSERT, {
        "project": project_id,
        "testbed": testbed_id,
        "suite": missing[0].key.suite,
        "suite_version": missing[0].key.suite_version,
        "benchmark": [series.key.benchmark for series in missing],
        "variant": [orjson.dumps(series.variant).decode() for series in missing],
        "variant_key": [series.key.variant for series in missing],
        "preset": [series.key.preset for series in missing],
        "metric": [series.key.metric for series in missing],
        "unit": [series.unit for series in missing],
        "direction": [series.direction for series in missing],
        "role": [series.role for series in missing],
        "exact": [series.exact for series in missing],
    }


def series_row(row: Any) -> SeriesRow:
    return SeriesRow(
        id=row.id,
        suite=row.suite,
        suite_version=row.suite_version,
        benchmark=row.benchmark,
        variant_key=row.variant_key,
        preset=row.preset,
        metric=row.metric,
        unit=row.unit,
        direction=row.direction,
        role=row.role,
        exact=row.exact,
        state=row.state,
        state_tail=row.state_tail,
        state_position=row.state_position,
    )


_LOCK_BY_ID = f"""
SELECT {_COLUMNS}, s.state FROM series s WHERE s.id = ANY(%(ids)s::int[]) ORDER BY s.id FOR NO KEY UPDATE OF s
"""
_READ = f"SELECT {_COLUMNS}, s.state FROM series s WHERE s.id = %(id)s"
_WHOLES = "SELECT id, state FROM series WHERE id = ANY(%(ids)s::int[])"


def lock_by_id(c: Connection, series_ids: Iterable[int]) -> list[SeriesRow]:
    (rows,) = wire.send(c, (_LOCK_BY_ID, {"ids": list(series_ids)}))
    return [series_row(row) for row in rows]


def read(c: Connection, series_id: int) -> SeriesRow:
    """The series with its judge's state: not locked."""
    (rows,) = wire.send(c, (_READ, {"id": series_id}))
    return series_row(rows[0])


def load_wholes(c: Connection, series_ids: Iterable[int]) -> dict[int, bytes]:
    """The whole states of series that the caller has locked."""
    (rows,) = wire.send(c, (_WHOLES, {"ids": list(series_ids)}))
    return {row.id: row.state for row in rows}


_SAVE = """
UPDATE series AS s SET state = coalesce(u.state, s.state), state_tail = u.tail, state_position = u.position,
                       profile = coalesce(u.profile::jsonb, s.profile),
                       last_measured_at = greatest(s.last_measured_at, %(measured_at)s::timestamptz)
FROM unnest(%(ids)s::int[], %(states)s::bytea[], %(tails)s::bytea[], %(positions)s::int[], %(profiles)s::text[])
     AS u (id, state, tail, position, profile)
WHERE s.id = u.id
"""
_ROLE = text("UPDATE series SET role = :role WHERE id = :id")


def save_statement(states: Sequence[NewState], measured_at: datetime | None) -> wire.Statement:
    return _SAVE, {
        "measured_at": measured_at,
        "ids": wire.Ints([state.series_id for state in states]),
        "states": [state.state for state in states],
        "tails": [state.state_tail for state in states],
        "positions": wire.Ints([state.position for state in states]),
        "profiles": [None if state.profile is None else orjson.dumps(state.profile).decode() for state in states],
    }


_ASK_AGAIN = """
UPDATE series SET rejudge_from = least(rejudge_from, %(position)s::int) WHERE id = ANY(%(ids)s::int[])
"""
_TAKE_AGAIN = """
WITH found AS (
  SELECT id, project_id, rejudge_from FROM series WHERE rejudge_from IS NOT NULL
  ORDER BY project_id, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE series AS s SET rejudge_from = NULL FROM found WHERE s.id = found.id
RETURNING s.id, s.project_id, found.rejudge_from
"""
_LEFT_AGAIN = "SELECT count(*)::int AS waiting FROM series WHERE project_id = %(project)s AND rejudge_from IS NOT NULL"


class Again(NamedTuple):
    """A series to be judged again from a position on."""

    series_id: int
    project_id: int
    position: int


def ask_again(c: Connection, series_ids: Iterable[int], position: int) -> None:
    """Mark these series, which the caller has locked, to be judged again from a position on, in the background."""
    wire.send(c, (_ASK_AGAIN, {"ids": list(series_ids), "position": position}))


def take_again(c: Connection) -> Again | None:
    """The next one to be judged again, locked; it stops waiting when this transaction commits."""
    (rows,) = wire.send(c, (_TAKE_AGAIN, {}))
    return Again(rows[0].id, rows[0].project_id, rows[0].rejudge_from) if rows else None


def waiting_again(c: Connection, project_id: int) -> int:
    """How many series of a project are still to be judged again."""
    (rows,) = wire.send(c, (_LEFT_AGAIN, {"project": project_id}))
    return int(rows[0].waiting)


def set_role(c: Connection, series_id: int, role: str) -> None:
    c.execute(_ROLE, {"id": series_id, "role": role})
