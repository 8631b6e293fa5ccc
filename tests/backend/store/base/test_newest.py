"""The newest point of each series, of those that still run and of those that were dropped."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, text

from backend.store.base.newest import newest_points
from backend.store.base.schema import ensure_partitions
from backend.store.base.spans import Spans

JUNE, AUGUST = (datetime(2026, month, 5, tzinfo=UTC) for month in (6, 8))


def series_of(c: Connection, *names: str) -> list[int]:
    c.execute(text("INSERT INTO project (slug) VALUES ('a/newest')"))
    c.execute(text("INSERT INTO testbed (name) VALUES ('newest')"))
    c.execute(text("INSERT INTO commit (project_id, sha) SELECT id, 'c0ffee' FROM project WHERE slug = 'a/newest'"))
    ensure_partitions(c, JUNE, AUGUST)
    statement = text(
        """INSERT INTO series (project_id, testbed_id, suite, suite_version, benchmark, variant, variant_key, preset,
                               metric, unit, direction, role)
           SELECT p.id, t.id, 's', '1', benchmark, '{}', '', 'full', 'ms', 'ms', 'lower', 'gate'
           FROM project p, testbed t, unnest(CAST(:names AS text[])) AS benchmark
           WHERE p.slug = 'a/newest' AND t.name = 'newest' ORDER BY benchmark RETURNING id"""
    )
    return list(c.scalars(statement, {"names": list(names)}))


def put(c: Connection, series: int, position: int, at: datetime, value: float, *, superseded: bool = False) -> None:
    c.execute(
        text(
            """INSERT INTO judgement (series_id, project_id, run_id, commit_id, position, measured_at, value,
                                      verdict, reason, policy_version, superseded_at)
               SELECT :series, max(project_id), 'RUN', max(id), :position, :at, :value, 'unchanged', 'within_band', '1',
                      :over FROM commit"""
        ),
        {"series": series, "position": position, "at": at, "value": value, "over": AUGUST if superseded else None},
    )


def test_the_newest_point_is_that_of_the_highest_position_that_stands(connection: Connection) -> None:
    alive, dropped, unjudged = series_of(connection, "a", "b", "c")
    put(connection, alive, 5, JUNE, 1.0)
    put(connection, alive, 300, AUGUST, 2.0)
    put(connection, alive, 300, AUGUST, 9.0, superseded=True)
    put(connection, alive, 20, AUGUST, 3.0)
    put(connection, dropped, 6, JUNE, 4.0)
    spans = Spans.of_series(connection, alive)
    found = newest_points(connection, spans, {alive: 300, dropped: 6, unjudged: None})
    assert {series: (point.value, point.sha) for series, point in found.items()} == {
        alive: (2.0, "c0ffee"),
        dropped: (4.0, "c0ffee"),
    }


def test_a_series_whose_state_is_not_where_its_points_are_is_found_nevertheless(connection: Connection) -> None:
    """While the commits of a branch change their places."""
    (series,) = series_of(connection, "a")
    put(connection, series, 5, JUNE, 1.0)
    put(connection, series, 7, JUNE, 2.0)
    found = newest_points(connection, Spans.of_series(connection, series), {series: 80})
    assert found[series].value == 2.0
