"""Stretches of time of positions: never too short, whoever writes a judgement, and no longer than months and steps make
them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from backend.store.base.schema import ensure_partitions
from backend.store.base.spans import NOWHERE, MonthSpan, Period, Spans, period_of

JUNE, JULY, AUGUST = (datetime(2026, month, 1, tzinfo=UTC) for month in (6, 7, 8))
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)

POINT = text(
    """INSERT INTO judgement (series_id, project_id, run_id, commit_id, branch_id, position, measured_at, value,
                              verdict, reason, policy_version)
       SELECT id, project_id, :run, 1, :branch, :position, :at, 1, 'unchanged', 'within_band', '1'
       FROM series WHERE id = :series"""
)
NEAREST = text(
    """SELECT position FROM judgement WHERE series_id = :series AND position BETWEEN :first AND :last
         AND measured_at >= :since AND measured_at < :until ORDER BY position * :sign LIMIT :limit"""
)


@pytest.fixture
def series(connection: Connection) -> int:
    """A series of a project without any point."""
    connection.execute(text("INSERT INTO project (slug) VALUES ('a/spans')"))
    connection.execute(text("INSERT INTO testbed (name) VALUES ('spans')"))
    ensure_partitions(connection, JUNE, JULY, AUGUST)
    made = connection.scalar(
        text(
            """INSERT INTO series (project_id, testbed_id, suite, suite_version, benchmark, variant, variant_key,
                                   preset, metric, unit, direction, role)
               SELECT p.id, t.id, 's', '1', 'b', '{}', '', 'full', 'ms', 'ms', 'lower', 'gate'
               FROM project p, testbed t WHERE p.slug = 'a/spans' AND t.name = 'spans' RETURNING id"""
        )
    )
    assert isinstance(made, int)
    return made


def put(c: Connection, series: int, *points: tuple[int, datetime], branch: int | None = None) -> None:
    for position, at in points:
        values = {"series": series, "position": position, "at": at, "branch": branch, "run": f"{position} {at}"}
        c.execute(POINT, values)


def test_a_stretch_goes_from_the_first_month_that_holds_a_position_to_the_end_of_the_last() -> None:
    spans = Spans([MonthSpan(JUNE, 0, 31), MonthSpan(JULY, 16, 63), MonthSpan(DECEMBER, 64, 79)])
    assert spans.between(40, 50) == Period(JULY, AUGUST)
    assert spans.between(20, 20) == Period(JUNE, AUGUST)
    assert spans.between(70, 900) == Period(DECEMBER, datetime(2027, 1, 1, tzinfo=UTC))
    assert spans.between(80, 900) == NOWHERE
    assert spans.newest == 79 and Spans([]).newest == -1


def test_moments_of_runs_are_both_within_their_stretch() -> None:
    assert period_of([JULY, None, JUNE]) == Period(JUNE, JULY + timedelta(microseconds=1))
    assert period_of([None]) == NOWHERE


def test_every_point_of_the_default_branch_lies_in_the_stretch_of_its_position(
    connection: Connection, series: int
) -> None:
    put(connection, series, (0, JUNE), (40, JULY), (41, AUGUST))
    put(connection, series, (20, AUGUST))  # measured late
    put(connection, series, (900, AUGUST), branch=1)
    spans = Spans.of_series(connection, series)
    assert spans.months == [MonthSpan(JUNE, 0, 15), MonthSpan(JULY, 32, 47), MonthSpan(AUGUST, 16, 47)]
    assert spans.between(20, 20) == Period(AUGUST, datetime(2026, 9, 1, tzinfo=UTC))


def test_a_point_whose_commit_moves_is_found_at_its_new_place(connection: Connection, series: int) -> None:
    put(connection, series, (7, JUNE))
    connection.execute(text("UPDATE judgement SET position = 100 WHERE series_id = :series"), {"series": series})
    assert Spans.of_series(connection, series).between(100, 100) == Period(JUNE, JULY)


@pytest.mark.parametrize("every", [1, 7, 50, 333])
@pytest.mark.parametrize("limit", [1, 5])
def test_the_nearest_points_are_found_however_seldom_a_series_is_measured(
    connection: Connection, series: int, every: int, limit: int
) -> None:
    other = connection.scalar(text("SELECT max(id) + 1 FROM series"))
    put(connection, other, (999, AUGUST))
    measured = list(range(0, 1000, every))
    put(connection, series, *((position, JUNE + timedelta(hours=2 * position)) for position in measured))
    late = 501 if every > 1 else 1000
    put(connection, series, (late, AUGUST + timedelta(days=3)))
    measured = sorted({*measured, late})
    spans = Spans.of_series(connection, series)

    def read(sign: int):  # type: ignore[no-untyped-def]
        def positions(first: int, last: int, period: Period) -> list[int]:
            values = {"series": series, "first": first, "last": last, "limit": limit, "sign": sign}
            return list(connection.scalars(NEAREST, {**values, **period._asdict()}))

        return positions

    for place in (0, 499, 502, 999):
        before = [position for position in measured if position <= place][::-1][:limit]
        after = [position for position in measured if position >= place][:limit]
        assert spans.nearest_before(place, limit, read(-1)) == before
        assert spans.nearest_after(place, limit, read(1)) == after
