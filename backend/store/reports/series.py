"""Reads of series by their names: one of them, and the list."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from backend.store.base import wire
from backend.store.base.newest import NewestPoint, newest_points
from backend.store.base.spans import Spans


class SeriesInfo(NamedTuple):
    """A series by its names, and what the judge knows of its noise."""

    id: int
    project_id: int
    project: str
    testbed_id: int
    testbed: str
    suite: str
    suite_version: str
    benchmark: str
    variant: dict[str, Any]
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    profile: dict[str, Any] | None
    alarms_confirmed: int
    alarms_withdrawn: int
    last_measured_at: datetime | None
    state_position: int | None


class SeriesFilter(NamedTuple):
    """Which series a list has; None: any. Their names contain every one of `words`."""

    testbed_id: int | None = None
    suite: str | None = None
    benchmark: str | None = None
    metric: str | None = None
    role: str | None = None
    words: Sequence[str] = ()


class ListedSeries(NamedTuple):
    """A series in a list, with its newest point."""

    id: int
    testbed: str
    suite: str
    suite_version: str
    benchmark: str
    variant: dict[str, Any]
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    last_measured_at: datetime | None
    value: float | None
    verdict: str | None
    red: bool | None
    change: float | None
    noise: float | None
    minimum_detectable_effect: float | None


_INFO = """
SELECT s.id, s.project_id, p.slug, s.testbed_id, t.name, s.suite, s.suite_version, s.benchmark, s.variant,
  s.variant_key, s.preset, s.metric, s.unit, s.direction, s.role, s.exact, s.profile, s.alarms_confirmed,
  s.alarms_withdrawn, s.last_measured_at, s.state_position
FROM series s JOIN project p ON p.id = s.project_id JOIN testbed t ON t.id = s.testbed_id WHERE s.id = %(series)s
"""
_SIBLINGS = text(
    """SELECT o.id, o.metric, o.unit, o.role FROM series s JOIN series o ON o.project_id = s.project_id
         AND o.testbed_id = s.testbed_id AND o.suite = s.suite AND o.benchmark = s.benchmark
         AND o.variant_key = s.variant_key AND o.preset = s.preset AND o.suite_version = s.suite_version
       WHERE s.id = :series ORDER BY array_position(ARRAY['gate', 'watch', 'derived', 'phase'], o.role), o.metric"""
)
_LIST = text(
    """SELECT s.id, t.name, s.suite, s.suite_version, s.benchmark, s.variant, s.variant_key, s.preset, s.metric, s.unit,
         s.direction, s.role, s.last_measured_at, CAST(s.profile ->> 'noise' AS float8),
         CAST(s.profile ->> 'minimum_detectable_effect' AS float8), s.state_position
       FROM series s JOIN testbed t ON t.id = s.testbed_id
       WHERE s.project_id = :project AND s.id > :after
         AND (CAST(:testbed AS integer) IS NULL OR s.testbed_id = :testbed)
         AND (CAST(:suite AS text) IS NULL OR s.suite = :suite)
         AND (CAST(:benchmark AS text) IS NULL OR s.benchmark = :benchmark)
         AND (CAST(:metric AS text) IS NULL OR s.metric = :metric)
         AND (CAST(:role AS text) IS NULL OR s.role = :role)
         AND (s.suite || ' ' || s.benchmark || ' ' || s.variant_key || ' ' || s.metric) ILIKE ALL (:patterns)
       ORDER BY s.id LIMIT :limit"""
)


def series_info(connection: Connection, series_id: int) -> SeriesInfo | None:
    (rows,) = wire.send(connection, (_INFO, {"series": series_id}))
    return SeriesInfo._make(rows[0]) if rows else None


def siblings(connection: Connection, series_id: int) -> list[tuple[int, str, str, str]]:
    """(id, metric, unit, role) of every metric of the same variant, gates first."""
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(_SIBLINGS, {"series": series_id}).all()]


def list_series(
    connection: Connection, project_id: int, wanted: SeriesFilter, *, after: int, limit: int
) -> list[ListedSeries]:
    """The wanted series in order of id from `after` on."""
    parameters = {
        "project": project_id,
        "testbed": wanted.testbed_id,
        "suite": wanted.suite,
        "benchmark": wanted.benchmark,
        "metric": wanted.metric,
        "role": wanted.role,
        "patterns": [f"%{escaped(word)}%" for word in wanted.words] or ["%"],
        "after": after,
        "limit": limit,
    }
    rows = connection.execute(_LIST, parameters).all()
    newest = newest_points(connection, Spans.of_project(connection, project_id), {row[0]: row[15] for row in rows})
    return [_listed(row, newest.get(row[0])) for row in rows]


def _listed(row: Any, newest: NewestPoint | None) -> ListedSeries:
    stands = (None,) * 4 if newest is None else (newest.value, newest.verdict, newest.red, newest.change)
    return ListedSeries._make((*row[:13], *stands, *row[13:15]))


def escaped(word: str) -> str:
    """A word as LIKE takes it literally."""
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
