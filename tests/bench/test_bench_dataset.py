"""What the bench measures on: the generated store is one that the real reads understand, through the right index."""

from collections import Counter

import pytest
from sqlalchemy import Connection, text

from backend.services.board.board import BoardQuery, CellState, load_board
from backend.services.reports.comparison import compare_commits
from backend.services.reports.history import load_points
from backend.store.board import board as store
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


def test_the_cells_of_a_board_come_from_the_covering_index_alone(
    filled_connection: tuple[Connection, Filled],
) -> None:
    connection, filled = filled_connection
    for other in ("seqscan", "bitmapscan"):  # nothing is vacuumed within a transaction
        connection.execute(text(f"SET LOCAL enable_{other} = off"))
    statement = str(store.PACKED_BY_WHERE[False, False])
    plan = connection.execute(
        text(f"EXPLAIN {statement}"),
        {
            "series": list(range(filled.first_series_id, filled.first_series_id + SHAPE.series)),
            "first": 950,
            "last": 999,
            "since": text_moment(connection, "now() - interval '3 days'"),
            "until": text_moment(connection, "now()"),
        },
    ).scalars()
    scans = [line.strip(" ->") for line in plan if "Scan" in line]
    assert scans and all(line.startswith("Index Only Scan") for line in scans), scans


def text_moment(connection: Connection, expression: str) -> object:
    return connection.scalar(text(f"SELECT {expression}"))
