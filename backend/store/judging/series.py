"""Series: found or made in bulk, their judge's state, their points, and the roll-ups kept as results come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, text

from backend.contract import SeriesKey
from backend.records import record
from backend.regression.terms import Direction, Judgement, Point, Role, SeriesKind
from backend.store.base import wire


@record(kw_only=True)
class SeriesRow:
    """A series with what its judge remembers."""

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
    """The whole, as stored; None as well where only the tail was read."""
    state_tail: bytes | None
    state_position: int | None

    @property
    def kind(self) -> SeriesKind:
        return SeriesKind(Direction(self.direction), Role(self.role), self.exact)

    def can_judge(self, point: Point) -> bool:
        """A change is a ratio of costs: where a value is 0 there is none, unless the series counts."""
        return self.exact or min(point.values) > 0


@record(kw_only=True)
class SeriesWanted:
    """A series that a run has a measurement of."""

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
    """The whole; None: as it is."""
    state_tail: bytes | None
    position: int
    profile: Mapping[str, Any] | None
    """None: as it is."""


@record(kw_only=True)
class StoredPoint:
    """A point that stands in a series: where, of which runs, and what they measured."""

    position: int
    commit: str
    commit_id: int
    run_id: str
    measured_at: datetime
    value: float
    runs: tuple[str, ...]
    """Every run whose processes are pooled in it."""
    processes: tuple[float, ...]
    environment_hash: str
    worker: str

    def pooled_with(self, other: StoredPoint) -> StoredPoint:
        """Both as one point: runs of one commit that were judged apart on a branch, which has been merged since."""
        return replace(other, runs=(*self.runs, *other.runs), processes=(*self.processes, *other.processes))

    def as_point(self, suite_version: str) -> Point:
        return Point(
            self.position,
            self.commit,
            self.processes or (self.value,),
            self.environment_hash,
            self.worker,
            suite_version,
        )


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
"""Benchmark, variant, preset and metric: what tells series of one project, testbed, suite and suite version apart."""


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
    """The series of these keys, in their order, locked for the rest of the transaction; missing ones are made.

    `wanted` says what the series of a key, by its place, is to be; `found` are the rows of `lock_statement`, where the
    caller has sent it already.
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
    """The series with all that its judge remembers, as it is: not locked."""
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
    """A series that is to be judged again from a position on."""

    series_id: int
    project_id: int
    position: int


def ask_again(c: Connection, series_ids: Iterable[int], position: int) -> None:
    """These series, which the caller has locked, are to be judged again from a position on, in the background."""
    wire.send(c, (_ASK_AGAIN, {"ids": list(series_ids), "position": position}))


def take_again(c: Connection) -> Again | None:
    """The next one that is to be judged again, locked; it waits no more once this transaction is through."""
    (rows,) = wire.send(c, (_TAKE_AGAIN, {}))
    return Again(rows[0].id, rows[0].project_id, rows[0].rejudge_from) if rows else None


def waiting_again(c: Connection, project_id: int) -> int:
    """How many series of a project are still to be judged again."""
    (rows,) = wire.send(c, (_LEFT_AGAIN, {"project": project_id}))
    return int(rows[0].waiting)


def set_role(c: Connection, series_id: int, role: str) -> None:
    c.execute(_ROLE, {"id": series_id, "role": role})


# --- points ----------------------------------------------------------------------------------------------------------

_POINTS = """
SELECT j.series_id, j.position, k.sha AS commit, j.commit_id, j.run_id, j.measured_at, j.value,
       coalesce(j.runs, ARRAY[j.run_id]) AS runs,
       CASE WHEN j.runs IS NULL THEN (
         SELECT coalesce(x.processes, ARRAY[x.value]) FROM measurement x
         WHERE x.series_id = j.series_id AND x.measured_at = j.measured_at AND x.run_id = j.run_id LIMIT 1
       ) ELSE (
         SELECT array_agg(v)
         FROM run y JOIN measurement x ON x.run_id = y.id, unnest(coalesce(x.processes, ARRAY[x.value])) AS v
         -- when it was measured says in which partition it is
         WHERE y.id = ANY (j.runs) AND x.series_id = j.series_id
           AND x.measured_at = coalesce(y.started_at, y.received_at)
       ) END AS processes,
       coalesce(e.hash, '') AS environment_hash, coalesce(w.name, '') AS worker
FROM unnest(%(ids)s::int[], %(around)s::int[], %(until)s::int[]) AS u (id, around, until)
CROSS JOIN LATERAL (
  SELECT *, (SELECT array_agg(x) FROM jsonb_array_elements_text(detail -> 'runs') AS x) AS runs
  FROM (
    (SELECT series_id, position, commit_id, run_id, measured_at, value, detail FROM judgement
     WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL AND position < u.around
     ORDER BY position DESC LIMIT %(before)s)
    UNION ALL
    (SELECT series_id, position, commit_id, run_id, measured_at, value, detail FROM judgement
     WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL
       AND position BETWEEN u.around AND u.until)) AS standing) AS j
JOIN commit k ON k.id = j.commit_id
JOIN run r ON r.id = j.run_id
LEFT JOIN environment e ON e.id = r.environment_id
LEFT JOIN worker w ON w.id = r.worker_id
ORDER BY j.series_id, j.position, j.measured_at, j.run_id
"""
NO_LIMIT = 2**31 - 1


def load_points(
    c: Connection, series_ids: Iterable[int], *, around: int, before: int, until: int = NO_LIMIT
) -> dict[int, list[StoredPoint]]:
    """Of each series on the default branch the points from position `around` until `until`, and the `before` points
    ahead of them, in order."""
    return load_stretches(c, dict.fromkeys(series_ids, (around, until)), before=before)


def load_stretches(
    c: Connection, stretches: Mapping[int, tuple[int, int]], *, before: int
) -> dict[int, list[StoredPoint]]:
    """Of each series the points from one position until another, and the `before` points ahead of them, in order."""
    points: dict[int, list[StoredPoint]] = {series_id: [] for series_id in stretches}
    values = {
        "ids": list(points),
        "around": [around for around, _ in stretches.values()],
        "until": [until for _, until in stretches.values()],
        "before": before,
    }
    (rows,) = wire.send(c, (_POINTS, values))
    for row in rows:
        known = points[row.series_id]
        point = StoredPoint(
            position=row.position,
            commit=row.commit,
            commit_id=row.commit_id,
            run_id=row.run_id,
            measured_at=row.measured_at,
            value=row.value,
            runs=tuple(row.runs),
            processes=tuple(row.processes or ()),
            environment_hash=row.environment_hash,
            worker=row.worker,
        )
        if known and known[-1].position == point.position:
            known[-1] = known[-1].pooled_with(point)
        else:
            known.append(point)
    return points


_LAST_POINT = """
SELECT j.position, k.sha AS commit, j.commit_id, j.run_id, j.measured_at, j.value, coalesce(e.hash, '') AS environment
FROM judgement j
JOIN commit k ON k.id = j.commit_id
JOIN run r ON r.id = j.run_id
LEFT JOIN environment e ON e.id = r.environment_id
WHERE j.series_id = %(series)s AND j.branch_id IS NULL
ORDER BY j.measured_at DESC, j.id DESC LIMIT 1
"""


def last_point(c: Connection, series_id: int) -> StoredPoint | None:
    """The newest point that was ever judged on the default branch, whether it stands or not."""
    (rows,) = wire.send(c, (_LAST_POINT, {"series": series_id}))
    if not rows:
        return None
    (row,) = rows
    return StoredPoint(
        position=row.position,
        commit=row.commit,
        commit_id=row.commit_id,
        run_id=row.run_id,
        measured_at=row.measured_at,
        value=row.value,
        runs=(row.run_id,),
        processes=(),
        environment_hash=row.environment,
        worker="",
    )


# --- roll-ups --------------------------------------------------------------------------------------------------------

_WORSE = """CASE WHEN 'regression' IN ({0}, {1}) THEN 'regression' WHEN 'suspect' IN ({0}, {1}) THEN 'suspect'
     WHEN 'improvement' IN ({0}, {1}) THEN 'improvement' WHEN 'unsteady' IN ({0}, {1}) THEN 'unsteady'
     WHEN 'unchanged' IN ({0}, {1}) THEN 'unchanged'
     ELSE 'insufficient' END"""
# Whoever adds to a series holds its lock, hence a bucket that is not found is not being made by another either. That
# spares every bucket the lock that ON CONFLICT takes before it updates.
_ADD = f"""
MERGE INTO rollup AS r
USING (SELECT u.id, g.name, date_trunc(g.name, %(measured_at)s::timestamptz, 'UTC') AS bucket, u.value, u.verdict,
              u.change
       FROM unnest(%(ids)s::int[], %(values)s::float8[], %(verdicts)s::text[], %(changes)s::float8[])
            AS u (id, value, verdict, change), unnest(ARRAY['hour', 'day', 'week']) AS g (name)) AS n
ON r.series_id = n.id AND r.granularity = n.name AND r.bucket = n.bucket
WHEN MATCHED THEN UPDATE SET
  runs = r.runs + 1, value_sum = r.value_sum + n.value,
  value_min = least(r.value_min, n.value), value_max = greatest(r.value_max, n.value),
  last_value = CASE WHEN %(position)s >= r.last_position THEN n.value ELSE r.last_value END,
  last_position = greatest(r.last_position, %(position)s),
  worst_verdict = {_WORSE.format("r.worst_verdict", "n.verdict")},
  worst_change = greatest(r.worst_change, n.change)
WHEN NOT MATCHED THEN INSERT (series_id, granularity, bucket, runs, value_sum, value_min, value_max, last_value,
                              last_position, worst_verdict, worst_change)
  VALUES (n.id, n.name, n.bucket, 1, n.value, n.value, n.value, n.value, %(position)s, n.verdict, n.change)
"""
_WORST_FIRST = "ARRAY['regression', 'suspect', 'improvement', 'unsteady', 'unchanged', 'insufficient']"
# The judgements of each week in question are read once, for all of its buckets; only those that something has moved in
# are written.
_RECOMPUTE = f"""
WITH touched AS (
  SELECT DISTINCT u.id, g.name, date_trunc(g.name, u.at, 'UTC') AS bucket, date_trunc('week', u.at, 'UTC') AS week
  FROM unnest(%(ids)s::int[], %(moments)s::timestamptz[]) AS u (id, at),
       unnest(ARRAY['hour', 'day', 'week']) AS g (name)
)
INSERT INTO rollup AS r (series_id, granularity, bucket, runs, value_sum, value_min, value_max, last_value,
                         last_position, worst_verdict, worst_change)
SELECT t.id, t.name, t.bucket, n.runs, n.value_sum, n.value_min, n.value_max, n.last_value, n.last_position,
       n.worst_verdict, n.worst_change
FROM (SELECT DISTINCT id, week FROM touched) AS w
CROSS JOIN LATERAL (
  SELECT g.name, date_trunc(g.name, j.measured_at, 'UTC') AS bucket, count(*)::int AS runs, sum(value) AS value_sum,
         min(value) AS value_min, max(value) AS value_max, (array_agg(value ORDER BY position DESC))[1] AS last_value,
         max(position) AS last_position, max(change) AS worst_change,
         ({_WORST_FIRST})[min(array_position({_WORST_FIRST}, verdict))] AS worst_verdict
  FROM judgement j, unnest(ARRAY['hour', 'day', 'week']) AS g (name)
  WHERE j.series_id = w.id AND j.superseded_at IS NULL AND j.branch_id IS NULL
    AND j.measured_at >= w.week AND j.measured_at < w.week + interval '7 days'
  GROUP BY 1, 2) AS n
JOIN touched t ON t.id = w.id AND t.name = n.name AND t.bucket = n.bucket
ON CONFLICT (series_id, granularity, bucket) DO UPDATE SET
  runs = excluded.runs, value_sum = excluded.value_sum, value_min = excluded.value_min, value_max = excluded.value_max,
  last_value = excluded.last_value, last_position = excluded.last_position, worst_verdict = excluded.worst_verdict,
  worst_change = excluded.worst_change
WHERE (r.runs, r.value_sum, r.value_min, r.value_max, r.last_value, r.last_position, r.worst_verdict, r.worst_change)
  IS DISTINCT FROM (excluded.runs, excluded.value_sum, excluded.value_min, excluded.value_max, excluded.last_value,
                    excluded.last_position, excluded.worst_verdict, excluded.worst_change)
"""


def rollup_statement(said: Sequence[tuple[int, Judgement]], *, measured_at: datetime, position: int) -> wire.Statement:
    """Adds one run's points to the hour, the day and the week they fall in: of each series what is said of it."""
    return _ADD, {
        "measured_at": measured_at,
        "position": position,
        "ids": wire.Ints([series_id for series_id, _ in said]),
        "values": wire.Doubles([judgement.value for _, judgement in said]),
        "verdicts": [judgement.verdict.value for _, judgement in said],
        "changes": wire.reals([judgement.change for _, judgement in said]),
    }


def recompute_rollups(c: Connection, touched: Iterable[tuple[int, datetime]]) -> None:
    """Bring the buckets around these moments in line with the judgements that stand, after some were replaced."""
    pairs = list(touched)
    if pairs:
        wire.send(c, (_RECOMPUTE, {"ids": [series for series, _ in pairs], "moments": [at for _, at in pairs]}))
