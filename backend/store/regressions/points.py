"""Change points: read with the names of their series and the state of their regression, and written as they advance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from backend.regression.change_points import KnownPoint
from backend.regression.terms import ChangePoint
from backend.store.base import wire
from backend.store.regressions.suspects import touching

_POINT_COLUMNS = """p.id, p.series_id, s.testbed_id, p.regression_id, g.state AS regression_state, p.kind, p.direction,
       p.state, p.onset_position, p.last_good_position, p.detected_position, p.fixed_position, p.change, p.before,
       p.after, s.benchmark, s.metric, s.role, s.exact, CAST(s.profile ->> 'noise' AS double precision) AS noise,
       p.is_placed, g.cause AS regression_cause, u.first AS first_suspect, u.last AS last_suspect"""
_SUSPECTS = touching("min(bc.position) AS first, max(bc.position) AS last", of="p", first_bad="onset_position")
_POINTS = f"""
SELECT {_POINT_COLUMNS} FROM change_point p JOIN series s ON s.id = p.series_id
LEFT JOIN regression g ON g.id = p.regression_id
CROSS JOIN LATERAL ({_SUSPECTS}) u
"""
_OPEN_IN_SERIES = f"""{_POINTS} WHERE p.series_id = ANY(%(series)s::int[]) AND p.direction = 'regression'
  AND p.state IN ('suspect', 'confirmed') ORDER BY p.id"""
_OF_SERIES = f"""{_POINTS} WHERE p.series_id = ANY(%(series)s::int[]) AND p.direction = 'regression' ORDER BY p.id"""
_OPEN_OF_TESTBED = f"""{_POINTS} WHERE g.project_id = %(project)s AND s.testbed_id = %(testbed)s
  AND g.state IN ('suspect', 'confirmed', 'acknowledged') ORDER BY p.id"""
_OPEN_ELSEWHERE = f"""{_POINTS} WHERE p.direction = 'regression' AND p.state IN ('suspect', 'confirmed')
  AND g.state IN ('suspect', 'confirmed', 'acknowledged') AND g.cause = 'code' AND g.kind = 'step'
  AND s.testbed_id <> %(testbed)s AND s.project_id = %(project)s
  AND (s.suite, s.benchmark, s.variant_key, s.preset, s.metric) IN (
    SELECT suite, benchmark, variant_key, preset, metric FROM series WHERE id = ANY(%(series)s::int[])) ORDER BY p.id"""
_OF_REGRESSIONS = f"{_POINTS} WHERE p.regression_id = ANY(%(regressions)s::int[]) ORDER BY p.id"
_OF_REGRESSIONS_IN = f"""{_POINTS} WHERE p.series_id = %(series)s AND p.regression_id = ANY(%(regressions)s::int[])
ORDER BY p.id"""


def open_in_series(c: Connection, series_ids: Iterable[int]) -> list[KnownPoint]:
    """Change points for the worse that have not ended, in these series."""
    (rows,) = wire.send(c, (_OPEN_IN_SERIES, {"series": list(series_ids)}))
    return [KnownPoint(**row._asdict()) for row in rows]


def of_series(c: Connection, series_ids: Iterable[int]) -> list[KnownPoint]:
    """Every change point for the worse in these series, ended or not, oldest first."""
    (rows,) = wire.send(c, (_OF_SERIES, {"series": list(series_ids)}))
    return [KnownPoint(**row._asdict()) for row in rows]


def of_open_regressions(c: Connection, project_id: int, testbed_id: int) -> list[KnownPoint]:
    """Those in series of this testbed; a regression may have others elsewhere."""
    (rows,) = wire.send(c, (_OPEN_OF_TESTBED, {"project": project_id, "testbed": testbed_id}))
    return [KnownPoint(**row._asdict()) for row in rows]


def open_elsewhere(c: Connection, project_id: int, testbed_id: int, series_ids: Iterable[int]) -> list[KnownPoint]:
    """Those of the code, of the same series on other testbeds."""
    values = {"project": project_id, "testbed": testbed_id, "series": list(series_ids)}
    (rows,) = wire.send(c, (_OPEN_ELSEWHERE, values))
    return [KnownPoint(**row._asdict()) for row in rows]


def of_regressions(c: Connection, regression_ids: Iterable[int], *, series_id: int | None = None) -> list[KnownPoint]:
    """The change points of these regressions; of one series, those in it."""
    values = {"regressions": list(regression_ids)}
    of_one = (_OF_REGRESSIONS_IN, {**values, "series": series_id})
    (rows,) = wire.send(c, (_OF_REGRESSIONS, values) if series_id is None else of_one)
    return [KnownPoint(**row._asdict()) for row in rows]


_INSERT = """
INSERT INTO change_point (series_id, project_id, kind, direction, state, onset_position, onset_commit_id,
                          last_good_position, detected_position, change, before, after, created_at, updated_at)
SELECT u.series, (SELECT project_id FROM branch WHERE id = %(branch)s), u.kind, u.direction, u.state, u.onset,
       (SELECT commit_id FROM branch_commit WHERE branch_id = %(branch)s AND position = u.onset),
       u.last_good, u.detected, u.change, u.before, u.after, %(now)s, %(now)s
FROM unnest(%(series)s::int[], %(kind)s::text[], %(direction)s::text[], %(state)s::text[], %(onset)s::int[],
            %(last_good)s::int[], %(detected)s::int[], %(change)s::float4[], %(before)s::float8[], %(after)s::float8[])
     WITH ORDINALITY AS u (series, kind, direction, state, onset, last_good, detected, change, before, after, n)
ORDER BY u.n RETURNING id
"""


def insert(c: Connection, branch_id: int, found: Sequence[tuple[int, ChangePoint]], now: datetime) -> list[KnownPoint]:
    """Store change points of series, in their order."""
    if not found:
        return []
    values = {
        "branch": branch_id,
        "now": now,
        "series": [series_id for series_id, _ in found],
        "kind": [point.kind.value for _, point in found],
        "direction": [point.direction.value for _, point in found],
        "state": [point.state.value for _, point in found],
        "onset": [point.onset_position for _, point in found],
        "last_good": [point.last_good_position for _, point in found],
        "detected": [point.detected_position for _, point in found],
        "change": [wire.real(point.magnitude) for _, point in found],
        "before": [point.baseline for _, point in found],
        "after": [point.level for _, point in found],
    }
    (ids,) = wire.send(c, (_INSERT, values))
    (rows,) = wire.send(
        c, (f"{_POINTS} WHERE p.id = ANY(%(ids)s::int[]) ORDER BY p.id", {"ids": [row.id for row in ids]})
    )
    return [KnownPoint(**row._asdict()) for row in rows]


_UPDATE = text(
    """UPDATE change_point SET state = :state, onset_position = :onset, last_good_position = :last_good,
         onset_commit_id = (SELECT commit_id FROM branch_commit WHERE branch_id = :branch AND position = :onset),
         detected_position = :detected, fixed_position = :fixed, change = :change, before = :before, after = :after,
         kind = :kind, updated_at = :now WHERE id = :id"""
)


def update(c: Connection, branch_id: int, point: KnownPoint, now: datetime) -> None:
    """Store a change point in its current state."""
    c.execute(
        _UPDATE,
        {
            "id": point.id,
            "branch": branch_id,
            "state": point.state,
            "kind": point.kind,
            "onset": point.onset_position,
            "last_good": point.last_good_position,
            "detected": point.detected_position,
            "fixed": point.fixed_position,
            "change": wire.real(point.change),
            "before": point.before,
            "after": point.after,
            "now": now,
        },
    )


_END = text("UPDATE change_point SET state = :state, fixed_position = :fixed, updated_at = :now WHERE id = :id")
_ATTACH = text("UPDATE change_point SET regression_id = :regression, updated_at = :now WHERE id = ANY(:points)")
_PLACE = text(
    """UPDATE change_point SET regression_id = :regression, is_placed = :placed, updated_at = :now
       WHERE id = ANY(:points)"""
)
_COUNT_ALARMS = text(
    """UPDATE series SET alarms_confirmed = alarms_confirmed + :confirmed,
         alarms_withdrawn = alarms_withdrawn + :withdrawn
       WHERE id = ANY(:series)"""
)


def end(c: Connection, point: KnownPoint, now: datetime) -> None:
    """Store that a change point is fixed or withdrawn: where it began stays what it was."""
    c.execute(_END, {"id": point.id, "state": point.state, "fixed": point.fixed_position, "now": now})


def attach(c: Connection, regression_id: int, point_ids: Iterable[int], now: datetime) -> None:
    c.execute(_ATTACH, {"regression": regression_id, "points": list(point_ids), "now": now})


def place(c: Connection, regression_id: int, point_ids: Iterable[int], now: datetime, *, by_person: bool) -> None:
    """Move change points to a regression; those that a person has placed stay there."""
    values = {"regression": regression_id, "points": list(point_ids), "now": now, "placed": by_person}
    c.execute(_PLACE, values)


def count_alarms(c: Connection, series_ids: Iterable[int], *, confirmed: int = 0, withdrawn: int = 0) -> None:
    """The detector keeps score of itself, by series."""
    c.execute(_COUNT_ALARMS, {"series": list(series_ids), "confirmed": confirmed, "withdrawn": withdrawn})
