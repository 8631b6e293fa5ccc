"""The short way to PostgreSQL for the path of a result: batches of statements in one round trip, and binary COPY.

Both go through the driver of the caller's own connection, hence within its transaction. Batches are sent by inner parts
of psycopg (`_enqueue`, `ahead`), which a minor version may change: pyproject.toml holds it, and tests/backend/store/
test_wire.py fails where they are not what they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from struct import pack
from typing import Any, ClassVar, cast

import psycopg
from psycopg import adapters
from psycopg.abc import PQGen
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.rows import namedtuple_row
from sqlalchemy import Connection

Statement = tuple[str, Mapping[str, Any]]
Rows = list[Any]


def driver(c: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", c.connection.driver_connection)


def send(c: Connection, *statements: Statement) -> list[Rows]:
    """Run statements one after the other in a single round trip; the rows of each, as named tuples."""
    connection = driver(c)
    cursors = [connection.cursor(row_factory=namedtuple_row, binary=True) for _ in statements]
    with connection.pipeline():
        connection.wait(_enqueue(cursors, statements))
    return [_rows(cursor) for cursor in cursors]


def _rows(cursor: psycopg.Cursor[Any]) -> Rows:
    # Not `cursor.description`: it makes an object of every column, which took a tenth of a small batch's time.
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


@contextmanager
def ahead(c: Connection, *statements: Statement) -> Iterator[None]:
    """Statements that the server works on while the caller goes on; leaving waits for their end. No COPY inside."""
    connection = driver(c)
    cursors = [connection.cursor(row_factory=namedtuple_row, binary=True) for _ in statements]
    with connection.pipeline() as pipeline:
        connection.wait(_enqueue(cursors, statements))
        connection.wait(pipeline._communicate_gen())  # sends what was enqueued; answers are read when they are there
        yield


def _enqueue(cursors: Sequence[psycopg.Cursor[Any]], statements: Sequence[Statement]) -> PQGen[None]:
    """What `Cursor.execute` does in a pipeline, less its look at the socket after each statement.

    Those looks were a fifth of all the time of a small delivery; the pipeline's end sends and reads everything at once.
    """
    for cursor, (sql, values) in zip(cursors, statements, strict=True):
        yield from cursor._start_query(sql)
        yield from cursor._maybe_prepare_gen(cursor._convert_query(sql, values), prepare=True)
        cursor._last_query = sql
        yield from cursor.connection._prepared.maintain_gen(cursor.connection)


class _Numbers(Dumper):
    """A list of numbers as PostgreSQL's binary array, packed at once: the driver's own way asks each number's kind.

    Most of what a run holds are lists of samples.
    """

    format = Format.BINARY
    element_oid: ClassVar[int]
    element: ClassVar[str]
    """Of `struct`."""
    element_bytes: ClassVar[int]

    def dump(self, obj: Sequence[float]) -> bytes:
        return self._packed(obj)

    @classmethod
    def _packed(cls, obj: Sequence[float]) -> bytes:
        count = len(obj)
        if not count:
            return pack(">iii", 0, 0, cls.element_oid)
        sized: list[float] = [cls.element_bytes] * (2 * count)
        sized[1::2] = obj
        # One dimension, no nulls, elements from 1 on, each after its size.
        return pack(f">iiiii{f'i{cls.element}' * count}", 1, 0, cls.element_oid, count, 1, *sized)


class _Float8s(_Numbers):
    oid = adapters.types["float8"].array_oid
    element_oid = adapters.types["float8"].oid
    element, element_bytes = "d", 8


class _Int4s(_Numbers):
    oid = adapters.types["int4"].array_oid
    element_oid = adapters.types["int4"].oid
    element, element_bytes = "i", 4

    def dump(self, obj: Sequence[float]) -> bytes:
        # Nearly every measurement of a run has as many samples as the one before.
        return _small_counts(obj) if isinstance(obj, tuple) and len(obj) <= 16 else self._packed(obj)


@lru_cache(maxsize=1024)
def _small_counts(counts: tuple[int, ...]) -> bytes:
    return _Int4s._packed(counts)


def copy_rows(c: Connection, table: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """COPY rows into a table; `columns` are their names and PostgreSQL types, in the order of the values."""
    names = ", ".join(f'"{name}"' for name in columns)
    cursor = driver(c).cursor()
    for dumper in (_Float8s, _Int4s):
        cursor.adapters.register_dumper(list, dumper)
    with cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(list(columns.values()))
        for row in rows:
            copy.write_row(row)


FLOAT4_MAX = 3.4e38


def real(value: float | None) -> float | None:
    """A change as its float4 column can hold it: a counter that grows from 0 may grow by anything."""
    return value if value is None else min(max(value, -FLOAT4_MAX), FLOAT4_MAX)


# A COPY costs two round trips whatever it carries; so many rows are cheaper as statements of a batch.
FEW_ROWS = 8


def row_statements(
    c: Connection, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
) -> list[Statement]:
    """Rows on their way into a table: many are copied at once, few come back as statements for a batch to carry."""
    if len(rows) > FEW_ROWS:
        copy_rows(c, table, columns, rows)
        return []
    names = ", ".join(f'"{name}"' for name in columns)
    places = ", ".join(f"%({name})s::{kind}" for name, kind in columns.items())
    sql = f"INSERT INTO {table} ({names}) VALUES ({places})"
    return [
        (sql, {name: list(v) if type(v) is tuple else v for name, v in zip(columns, row, strict=True)}) for row in rows
    ]
