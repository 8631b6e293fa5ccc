"""What the bench measures on: the generated store is one that the real reads understand."""

from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import Connection, text

from backend.services.board.board import BoardQuery, CellState, load_board
from backend.services.comparison.commits import compare_commits
from backend.services.reports.history import load_points
from tests.bench.dataset import BUSY, Filled, Shape, fill, fill_all, found, shapes_of

SHAPE = Shape(suites=2, variants=5, commits=1_000)


@pytest.fixture(scope="module")
def filled_connection(engine):  # type: ignore[no-untyped-def]
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection, fill(connection, SHAPE)
        transaction.rollback()


def test_the_board_of_a_generated_store_is_full_and_has_red_cells(filled_connection: tuple[Connection, Filled]) -> None:
    connection, filled = filled_connection
    board = load_board(connection, BoardQuery(project=SHAPE.project, limit=200))
    states = Counter(cell.state for row in board.rows for cell in row.cells)
    assert sum(states.values()) == 200 * SHAPE.series
    red = states[CellState.REGRESSION] + states[CellState.STILL_UNOWNED] + states[CellState.STILL_OWNED]
    assert red == 200 * SHAPE.series // 10 and states[CellState.REGRESSION] == 20
    assert board.rows[0].sha == filled.head


def test_a_generated_series_has_its_change_point(filled_connection: tuple[Connection, Filled]) -> None:
    connection, filled = filled_connection
    points = load_points(connection, filled.first_series_id + 3, last=500)
    assert len(points) == 500 and [change.position for change in points.change_points] == [535, 635, 735, 835, 935]


def test_generated_commits_can_be_compared(filled_connection: tuple[Connection, Filled]) -> None:
    connection, _ = filled_connection
    rows = load_board(connection, BoardQuery(project=SHAPE.project, limit=150)).rows
    found = compare_commits(connection, SHAPE.project, rows[120].sha, rows[0].sha)
    assert found.overall.compared == SHAPE.series and found.overall.slower == 1


def test_busy_projects_share_a_store(filled_connection: tuple[Connection, Filled]) -> None:
    connection, _ = filled_connection
    base = replace(BUSY, suites=2, variants=5, project="bench/busy", testbed="bench-busy")
    shapes = shapes_of(base, measurements=2 * 60 * 40, projects=2)
    for filled in fill_all(connection, shapes):
        written = connection.execute(
            text(
                """SELECT s.role, count(m), count(DISTINCT (m.run_id, m.result_index, m.measurement_index)), count(j),
                     count(j) FILTER (WHERE j.red) > 0, count(m.processes)
                   FROM measurement m JOIN series s ON s.id = m.series_id
                   JOIN judgement j ON (j.series_id, j.run_id) = (m.series_id, m.run_id)
                   WHERE m.project_id = :project GROUP BY 1 ORDER BY 1"""
            ),
            {"project": filled.project_id},
        )
        assert written.tuples().all() == [("gate", 600, 600, 600, True, 600), ("watch", 1_800, 1_800, 1_800, False, 0)]
        board = load_board(connection, BoardQuery(project=filled.shape.project, limit=50))
        assert sum(len(row.cells) for row in board.rows) == 50 * filled.shape.series
        runs = connection.execute(
            text("SELECT granularity, sum(runs) FROM rollup WHERE project_id = :project GROUP BY 1"),
            {"project": filled.project_id},
        )
        assert dict(runs.tuples().all()) == dict.fromkeys(("hour", "day", "week"), 2_400)
    assert found(connection, shapes[0]) is not None and found(connection, replace(shapes[0], commits=59)) is None
