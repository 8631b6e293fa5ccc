"""The board by hour, day and week."""

from sqlalchemy import Connection

from backend.store.board.buckets import bucket_cells, bucket_rows
from tests.backend.services.loom import Loom


def test_rows_are_the_buckets_newest_first_each_with_its_newest_position(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 30)
    ((project, series),) = loom.rows("SELECT project_id, id FROM series")
    rows = bucket_rows(connection, project, [series], "day", 0, 29, 10)
    assert [position for _, position in rows] == [29, loom.value(
        "SELECT max(position) FROM judgement WHERE measured_at < :day", day=rows[0][0]
    )]  # fmt: skip
    assert bucket_rows(connection, project, [series], "day", 0, 29, 1) == rows[:1]


def test_the_cell_of_a_bucket_is_its_worst_and_names_the_regression(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 12 + [125.0] * 6)
    ((project, series),) = loom.rows("SELECT project_id, id FROM series")
    days = [bucket for bucket, _ in bucket_rows(connection, project, [series], "day", 0, 17, 10)]
    cells = bucket_cells(connection, [series], "day", days)
    worst = [cell for cell in cells if cell.worst_verdict == "regression"]
    assert {cell.bucket for cell in cells} == set(days)
    assert worst and all(cell.regression_id == loom.value("SELECT id FROM regression") for cell in worst)
    assert any(cell.onset for cell in worst)
