"""Batches to PostgreSQL go by inner parts of the driver: what they must do, whatever its version."""

import psycopg
import pytest
from sqlalchemy import Connection, text

from backend.store import wire


def test_statements_of_a_batch_answer_each_for_itself(connection: Connection) -> None:
    one, two, three = wire.send(
        connection,
        ("SELECT %(n)s::int + 1 AS n", {"n": 1}),
        ("SELECT set_config('tidemark.test', %(v)s, true)", {"v": "x"}),
        ("SELECT n FROM generate_series(1, %(n)s::int) AS n", {"n": 3}),
    )
    assert one[0].n == 2 and len(two) == 1 and [row.n for row in three] == [1, 2, 3]


def test_a_failed_statement_of_a_batch_is_raised(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        wire.send(connection, ("SELECT 1", {}), ("SELECT 1 / %(n)s::int", {"n": 0}), ("SELECT 2", {}))


def test_what_is_sent_ahead_is_worked_on_meanwhile_and_done_at_the_end(connection: Connection) -> None:
    connection.execute(text("CREATE TEMPORARY TABLE ahead (n int) ON COMMIT DROP"))
    add = "INSERT INTO ahead SELECT n FROM generate_series(1, %(n)s::int) AS n"
    with wire.ahead(connection, (add, {"n": 2}), (add, {"n": 3})):
        ((row,),) = wire.send(connection, ("SELECT count(*) AS n FROM ahead", {}))
        assert row.n == 5
    wire.copy_rows(connection, "ahead", {"n": "int4"}, [(1,)])
    assert connection.scalar(text("SELECT count(*) FROM ahead")) == 6


def test_a_statement_sent_ahead_that_fails_is_raised(connection: Connection) -> None:
    with (
        pytest.raises(psycopg.errors.DivisionByZero),
        wire.ahead(connection, ("SELECT 1 / %(n)s::int", {"n": 0})),
    ):
        pass
