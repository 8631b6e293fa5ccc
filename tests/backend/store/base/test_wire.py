"""Batches to PostgreSQL: what they must do, and how values travel."""

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import OperationalError

from backend.store.base import wire


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
    add = "INSERT INTO ahead SELECT n FROM generate_series(1, %(n)s::int) AS n RETURNING n"
    with wire.ahead(connection, (add, {"n": 2}), (add, {"n": 3})) as under_way:
        assert not under_way.rows
    assert [len(rows) for rows in under_way.rows] == [2, 3]
    assert connection.scalar(text("SELECT count(*) FROM ahead")) == 5


def test_a_statement_sent_ahead_that_fails_is_raised(connection: Connection) -> None:
    with (
        pytest.raises(psycopg.errors.DivisionByZero),
        wire.ahead(connection, ("SELECT 1 / %(n)s::int", {"n": 0})),
    ):
        pass


def test_a_failed_batch_can_be_rolled_back_and_the_same_statements_sent_again(connection: Connection) -> None:
    divide = "SELECT 12 / %(n)s::int AS n"
    for _ in range(2):
        savepoint = connection.begin_nested()
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.send(connection, (divide, {"n": 0}), ("SELECT 'never prepared' AS said", {}))
        savepoint.rollback()
    one, two = wire.send(connection, (divide, {"n": 3}), ("SELECT 'never prepared' AS said", {}))
    assert one[0].n == 4 and two[0].said == "never prepared"


def test_an_answer_that_python_cannot_hold_is_raised_and_leaves_the_connection_usable(connection: Connection) -> None:
    with pytest.raises(psycopg.DataError):
        wire.send(connection, ("SELECT 'infinity'::timestamptz AS at", {}), ("SELECT 1", {}))
    assert wire.send(connection, ("SELECT 2 AS n", {}))[0][0].n == 2


def test_a_server_that_goes_away_within_a_batch_is_a_database_that_does_not_answer(engine: Engine) -> None:
    """As whoever answers requests hears it, and the next one gets another connection."""
    end = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(OperationalError), engine.begin() as c:
        wire.send(c, ("SELECT 1", {}), (end, {}), ("SELECT 2", {}))
    with engine.begin() as c:
        assert wire.send(c, ("SELECT 3 AS n", {}))[0][0].n == 3


def test_a_batch_of_an_idle_connection_begins_its_transaction(engine: Engine) -> None:
    with engine.connect() as c:
        with c.begin() as transaction:
            wire.send(c, ("CREATE TEMPORARY TABLE begun (n int)", {}))
            assert wire.driver(c).info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            transaction.rollback()
        ((row,),) = wire.send(c, ("SELECT to_regclass('begun') IS NULL AS gone", {}))
        assert row.gone


def test_a_commit_goes_with_the_last_statements_and_is_told_of_afterwards(database: str) -> None:
    engine = create_engine(database)
    with engine.begin() as c:
        c.execute(text("CREATE TABLE kept (n int)"))
    heard = psycopg.connect(database.replace("+psycopg", ""), autocommit=True)
    heard.execute("LISTEN told")
    add = "INSERT INTO kept VALUES (%(n)s::int)"
    tell = "SELECT pg_notify('told', (pg_current_xact_id_if_assigned() IS NULL)::text)"
    with engine.begin() as c:
        wire.send(c, (add, {"n": 1}))
        wire.commit(c, [(add, {"n": 2})], [(tell, {})])
        assert wire.driver(c).info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert heard.execute("SELECT count(*) FROM kept").fetchone() == (2,)
    (notice,) = heard.notifies(timeout=5, stop_after=1)
    assert notice.payload == "true", "told outside of the transaction that stored something"
    heard.close()
    engine.dispose()


def test_a_last_statement_that_fails_commits_and_tells_nothing(database: str) -> None:
    engine = create_engine(database)
    with engine.begin() as c:
        c.execute(text("CREATE TABLE kept (n int)"))
    with pytest.raises(psycopg.errors.DivisionByZero), engine.begin() as c:
        wire.commit(c, [("INSERT INTO kept VALUES (1)", {}), ("SELECT 1 / %(n)s::int", {"n": 0})], [("SELECT 1", {})])
    with engine.begin() as c:
        assert c.scalar(text("SELECT count(*) FROM kept")) == 0
    engine.dispose()


def test_a_commit_that_is_refused_tells_nothing_and_leaves_the_connection_usable(database: str) -> None:
    engine = create_engine(database, pool_size=1, max_overflow=0)
    with engine.begin() as c:
        c.execute(text("CREATE TABLE one (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
    heard = psycopg.connect(database.replace("+psycopg", ""), autocommit=True)
    heard.execute("LISTEN refused")
    add, tell = "INSERT INTO one VALUES (%(n)s::int)", ("SELECT pg_notify('refused', %(n)s)", {"n": "1"})
    with pytest.raises(psycopg.errors.UniqueViolation), engine.begin() as c:
        wire.commit(c, [(add, {"n": 1}), (add, {"n": 1})], [tell])
    with engine.begin() as c:
        wire.commit(c, [(add, {"n": 2})], [tell])
    with engine.begin() as c:
        assert wire.send(c, ("SELECT n FROM one", {}))[0] == [(2,)]
    assert len(list(heard.notifies(timeout=1))) == 1
    heard.close()
    engine.dispose()


def test_what_is_stored_stays_where_telling_of_it_fails(database: str) -> None:
    engine = create_engine(database, pool_size=1, max_overflow=0)
    with engine.begin() as c:
        c.execute(text("CREATE TABLE told_badly (n int)"))
    add, tell = "INSERT INTO told_badly VALUES (%(n)s::int)", ("SELECT 1 / %(n)s::int", {"n": 0})
    for n in (1, 2):
        with pytest.raises(psycopg.errors.DivisionByZero), engine.begin() as c:
            wire.commit(c, [(add, {"n": n})], [tell])
    with engine.begin() as c:
        assert wire.send(c, ("SELECT n FROM told_badly ORDER BY n", {}))[0] == [(1,), (2,)]
    engine.dispose()


def test_a_finish_that_leaves_the_transaction_open_commits_nothing(connection: Connection) -> None:
    wire.leave_open(connection, [("CREATE TEMPORARY TABLE kept (n int) ON COMMIT DROP", {})], [("SELECT 1", {})])
    assert wire.driver(connection).info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    assert connection.scalar(text("SELECT count(*) FROM kept")) == 0


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", -(2**63)),
        ("bool", True),
        ("float8", 5e-324),
        ("float8", -0.0),
        ("float8", math.inf),
        ("text", 'quotes " and \\ and ü and {braces}, NULL'),
        ("text", ""),
        ("text", Colour.RED),
        ("bytea", b"\x00\xff\\x"),
        ("bytea", b""),
        ("timestamptz", datetime(2026, 2, 28, 23, 59, 59, 123456, UTC)),
        ("timestamptz", datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))),
        ("int4[]", []),
        ("int4[]", [1, None, -(2**31)]),
        ("text[]", ["NULL", None, "", 'a "b" \\ c', "{d,e}", "ü", " "]),
        ("text[]", [None, None]),
        ("bool[]", [True, None, False]),
        ("float8[]", [0.1, None, 1e308]),
        ("bytea[]", [b"\x00", None, b""]),
        ("bytea[]", [None]),
        ("timestamptz[]", [datetime(2026, 2, 28, tzinfo=UTC), None]),
        ("float8[]", wire.Doubles([])),
        ("float8[]", wire.Doubles([0.1, -0.0, 5e-324, 1.7e308, math.inf])),
        ("float8[]", wire.Doubles([None, 1.5, None])),
        ("float8[]", wire.Doubles([number / 7 for number in range(100_000)])),
    ],
)
def test_values_arrive_as_they_are(connection: Connection, kind: str, value: Any) -> None:
    sql = f"SELECT %(v)s::{kind} AS v, %(none)s::{kind} AS none"
    ((row,),) = wire.send(connection, (sql, {"v": value, "none": None}))
    assert row.v == value and row.none is None


def test_json_is_text_that_the_sql_casts(connection: Connection) -> None:
    ((row,),) = wire.send(connection, ("SELECT %(v)s::jsonb AS v", {"v": '{"a": [1, null, "ü"]}'}))
    assert row.v == {"a": [1, None, "ü"]}


@pytest.mark.parametrize(
    ("value", "what"),
    [("a\0b", "NUL"), (["a\0b"], "NUL"), ("a\ud800", "surrogate"), (["a\udfff"], "surrogate")],
)
def test_text_that_postgresql_cannot_hold_is_refused_unsent(connection: Connection, value: Any, what: str) -> None:
    with pytest.raises(psycopg.DataError, match=what):
        wire.send(connection, ("SELECT 1", {}), ("SELECT %(v)s", {"v": value}))
    assert wire.send(connection, ("SELECT 1 AS n", {}))[0][0].n == 1


def test_a_value_without_a_form_is_refused_by_its_type(connection: Connection) -> None:
    with pytest.raises(TypeError, match="dict is no value"):
        wire.send(connection, ("SELECT %(v)s::jsonb", {"v": {}}))


def test_statements_stay_prepared_after_a_commit_and_are_prepared_again_where_a_rollback_undid_them(
    database: str,
) -> None:
    engine = create_engine(database, pool_size=1, max_overflow=0)
    left = "SELECT count(*) AS n FROM pg_prepared_statements WHERE statement = 'SELECT $1::int AS n'"
    ask = ("SELECT %(n)s::int AS n", {"n": 1})
    try:
        with engine.begin() as c:
            wire.send(c, ask, ask)
        with engine.begin() as c:
            assert c.scalar(text(left)) == 1
        for _ in range(2):
            with engine.connect() as c:
                for _ in range(8):  # so often that the driver prepares it too, and forgets all at the rollback
                    c.execute(text("SELECT 1"))
                assert wire.send(c, ask)[0][0].n == 1
                c.rollback()
            with engine.begin() as c:
                assert c.scalar(text(left)) == 0
                assert wire.send(c, ask)[0][0].n == 1
    finally:
        engine.dispose()


def test_statements_are_prepared_again_after_something_was_dropped(connection: Connection) -> None:
    for _ in range(8):  # so often that the driver prepares it, and has something to forget
        connection.execute(text("SELECT 1"))
    assert wire.send(connection, ("SELECT 7 AS n", {}))[0][0].n == 7
    connection.execute(text("CREATE TABLE short_lived (n int)"))
    connection.execute(text("DROP TABLE short_lived"))
    connection.execute(text("SELECT 1"))  # the driver has all prepared statements forgotten now
    assert wire.send(connection, ("SELECT 7 AS n", {}))[0][0].n == 7
