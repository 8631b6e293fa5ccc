"""The points that stand in a series, read in stretches."""

from dataclasses import replace

from sqlalchemy import Connection

from backend.store.judging.points import last_point, load_points, load_stretches
from tests.backend.services.loom import Loom


def test_a_stretch_is_read_with_the_points_ahead_of_it(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 8)
    (series,) = loom.rows("SELECT id FROM series")[0]
    read = load_points(connection, [series], around=4, before=2, until=5)[series]
    assert [point.position for point in read] == [2, 3, 4, 5]
    assert [point.run_id for point in read] == [f"RUN-{position:06d}" for position in (2, 3, 4, 5)]
    assert all(len(point.values) > 1 for point in read)


def test_each_series_has_a_stretch_of_its_own_and_one_without_points_is_empty(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 4)
    (series,) = loom.rows("SELECT id FROM series")[0]
    read = load_stretches(connection, {series: (3, 3), series + 1: (0, 9)}, before=0)
    assert {number: [point.position for point in points] for number, points in read.items()} == {
        series: [3],
        series + 1: [],
    }


def test_the_last_point_is_the_newest_by_when_it_was_measured(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 3)
    (series,) = loom.rows("SELECT id FROM series")[0]
    newest = last_point(connection, series)
    assert newest is not None and newest.position == 2
    assert last_point(connection, series + 1) is None


def test_two_runs_of_one_commit_are_pooled_into_one_point(connection: Connection) -> None:
    loom = Loom(connection)
    loom.run(0, 100.0)
    (series,) = loom.rows("SELECT id FROM series")[0]
    (one,) = load_points(connection, [series], around=0, before=0)[series]
    both = one.pooled_with(replace(one, run_id="RUN-2", values=(1.0, 2.0)))
    assert both.runs == ("RUN-000000", "RUN-2")
    assert both.values == (*one.values, 1.0, 2.0)


def test_a_point_is_told_by_its_value_where_no_processes_are_stored(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0, 105.0])
    (series,) = loom.rows("SELECT id FROM series")[0]
    loom.rows("UPDATE measurement SET processes = NULL WHERE run_id = 'RUN-000000' RETURNING 1")
    bare, full = load_points(connection, [series], around=0, before=0)[series]
    assert bare.values == (bare.value,) and len(full.values) > 1
