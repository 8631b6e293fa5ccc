"""What the bench measures on: the generated store is one that the real reads understand."""

from collections import Counter

import pytest
from sqlalchemy import Connection

from backend.services.board.board import BoardQuery, CellState, load_board
from backend.services.comparison.commits import compare_commits
from backend.services.reports.history import load_points
from tests.bench.dataset import Filled, Shape, fill

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
