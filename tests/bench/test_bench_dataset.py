"""What the bench measures on: the generated store is one that the real reads understand."""

from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import Connection, text

from backend.services.board.board import BoardQuery, CellState, load_board
from backend.services.comparison.commits import compare_commits
from backend.services.reports.history import load_points
from tests.bench.dataset import Filled, Shape, fill, shapes_of

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


def test_of_several_busy_projects_every_second_metric_is_judged(filled_connection: tuple[Connection, Filled]) -> None:
    connection, _ = filled_connection
    small, last = shapes_of(measurements=3 * 400 * 60, projects=3)[0::2]
    assert (small.commits, small.project, last.project) == (60, "bench/large", "bench/busy3")
    shape = replace(small, suites=2, variants=5, project="bench/busy")
    filled = fill(connection, shape)
    mine = {"project": filled.project_id}
    roles = connection.execute(
        text(
            """SELECT s.role, count(*) FROM measurement m JOIN series s ON s.id = m.series_id
               WHERE m.project_id = :project GROUP BY 1"""
        ),
        mine,
    )
    judged = connection.scalar(text("SELECT count(*) FROM judgement WHERE project_id = :project"), mine)
    assert dict(roles.tuples().all()) == {"gate": 600, "phase": 600} and judged == 600
    assert (shape.measurements, shape.series) == (1_200, 10)
    board = load_board(connection, BoardQuery(project=shape.project, limit=50))
    assert sum(len(row.cells) for row in board.rows) == 50 * shape.series
