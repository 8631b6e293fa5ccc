"""Where the series of a suite stand now: the newest judgement of each, on every testbed; what its machine can do."""

import zlib
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, text

from backend.store.base.newest import newest_points
from backend.store.base.spans import Spans


class SeriesStatus(NamedTuple):
    """The newest point of one metric of a variant, against the baseline it was judged by."""

    series_id: int
    testbed: str
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
    value: float
    baseline: float | None
    verdict: str
    red: bool
    change: float | None
    low: float | None
    high: float | None
    regression_id: int | None
    sha: str
    run_id: str
    measured_at: datetime


# The newest version of each metric stands for it; a variant that was dropped keeps its last word until it is too old.
_STANDING = text(
    """SELECT DISTINCT ON (s.testbed_id, s.benchmark, s.variant_key, s.preset, s.metric)
         s.id, t.name, s.suite_version, s.benchmark, s.variant, s.variant_key, s.preset, s.metric, s.unit, s.direction,
         s.role, s.exact, s.state_position
       FROM series s JOIN testbed t ON t.id = s.testbed_id
       WHERE s.project_id = :project AND s.suite = :suite AND s.role <> 'phase' AND s.state_position IS NOT NULL
         AND (CAST(:benchmark AS text) IS NULL OR s.benchmark = :benchmark)
       ORDER BY s.testbed_id, s.benchmark, s.variant_key, s.preset, s.metric, s.last_measured_at DESC NULLS LAST
       LIMIT :limit"""
)
_MACHINES = text(
    """SELECT t.name, newest.document, e.fingerprint
       FROM testbed t CROSS JOIN LATERAL (
         SELECT r.document, r.environment_id FROM run r
         WHERE r.project_id = :project AND r.testbed_id = t.id AND r.received_at IS NOT NULL AND r.suite = :suite
           AND r.state = 'done'
         ORDER BY r.received_at DESC LIMIT 1) AS newest
       LEFT JOIN environment e ON e.id = newest.environment_id
       WHERE newest.document IS NOT NULL
       ORDER BY t.id"""
)
_SUITE_NAMES = text("SELECT DISTINCT suite FROM series WHERE project_id = :project ORDER BY suite")


def standing(c: Connection, project_id: int, suite: str, benchmark: str | None, limit: int) -> list[SeriesStatus]:
    """The newest point of every metric of a suite, phases apart."""
    values = {"project": project_id, "suite": suite, "benchmark": benchmark, "limit": limit}
    rows = c.execute(_STANDING, values).all()
    newest = newest_points(c, Spans.of_project(c, project_id), {row[0]: row[12] for row in rows})
    return [SeriesStatus._make((*row[:12], *newest[row[0]][1:])) for row in rows if row[0] in newest]


def names(c: Connection, project_id: int) -> list[str]:
    return list(c.scalars(_SUITE_NAMES, {"project": project_id}).all())


def machines(c: Connection, project_id: int, suite: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Of each testbed, what the newest run of the suite says: measured ceilings, environment."""
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for name, document, environment in c.execute(_MACHINES, {"project": project_id, "suite": suite}).all():
        found[name] = (orjson.loads(zlib.decompress(document)).get("ceilings") or {}, environment or {})
    return found
