"""The points that stand in a series, read in stretches."""

from dataclasses import replace

from sqlalchemy import Connection

from backend.regression.series.run_numbers import RunValues
from backend.store.base import wire
from backend.store.judging.points import (
    COLUMNS_OF_SERIES,
    NO_LIMIT,
    last_point,
    load_columns,
    load_points,
    load_stretches,
)
from tests.backend.services.loom import Loom
from tests.bench.dataset import Shape, fill


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


def columns(connection: Connection, *series: int, around: int = 0, before: int = 0) -> dict[int, list[list[float]]]:
    read = load_columns(connection, {each: (around, NO_LIMIT) for each in series}, before=before)
    return {number: told(each) for number, each in read.items()}


def told(runs: RunValues) -> list[list[float]]:
    return [runs.places.tolist(), runs.processes.tolist(), runs.values.tolist()]


def test_columns_say_what_the_points_say(connection: Connection) -> None:
    loom = Loom(connection)
    for position in range(6):
        loom.deliver(
            loom.run_of(position, [loom.measurement(m, 9.0, seed=position) for m in ("step_ms", "forward_ms")])
        )
    loom.rows("UPDATE measurement SET processes = NULL WHERE run_id = 'RUN-000003' RETURNING 1")
    series = [number for (number,) in loom.rows("SELECT id FROM series ORDER BY id")]
    points = load_points(connection, series, around=2, before=1)
    assert columns(connection, *series, around=2, before=1) == {
        number: told(RunValues.of(points[number])) for number in series
    }
    assert columns(connection, *series)[series[0]][1] == [5, 5, 5, 1, 5, 5]


def test_series_with_points_of_several_runs_or_workers_have_no_columns(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([9.0] * 4)
    (series,) = loom.rows("SELECT id FROM series")[0]
    assert set(columns(connection, series, series + 1)) == {series}
    again = loom.run_of(2, [loom.measurement("step_ms", 9.0, seed=7)], id="RUN-AGAIN")
    loom.deliver(again)
    assert columns(connection, series) == {}
    assert set(columns(connection, series, around=3)) == {series}
    loom.run(4, 9.0, worker="box-02")
    assert columns(connection, series, around=3) == {}


def test_a_long_history_of_one_series_is_read_once(connection: Connection) -> None:
    """Whatever the planner thinks of how many series and points there are."""
    commits = 800
    filled = fill(connection, Shape(suites=1, variants=1, commits=commits))
    asked = {"ids": [filled.first_series_id], "around": [0], "until": [NO_LIMIT], "before": 0}
    explained = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + COLUMNS_OF_SERIES
    ((found,),) = wire.driver(connection).execute(explained, asked).fetchall()
    plan = found[0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30 * commits
