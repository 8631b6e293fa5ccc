"""The fast way to PostgreSQL for the path of a result: batches of prepared statements in one round trip.

They use the driver of the caller's own connection, and so its transaction, in libpq's pipeline mode
(`psycopg.pq`). Cursors are not used: creating one, finding every value's type, and checking the socket after each
statement took a third of a small delivery's time. Every statement is prepared under its own name. The driver
forgets all prepared statements of a connection when it rolls back or drops something, so afterwards the server is
asked which are left.

The server infers the types of parameters, so ambiguous ones are cast in the SQL.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache
from itertools import groupby
from struct import Struct, pack
from struct import error as StructError
from typing import Any, TypeVar, cast

import psycopg
from psycopg import adapters, errors, generators
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from sqlalchemy import Connection, Engine, event

T = TypeVar("T")
Statement = tuple[str, Mapping[str, Any]]
"""SQL with its parameters as %(name)s, and their values: None, bool, int, float, str, bytes, a time, or a flat list of
these. JSON is text, cast in the SQL."""
Rows = list[Any]


def driver(c: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", c.connection.driver_connection)


def send(c: Connection, *statements: Statement) -> list[Rows]:
    """Run statements one after another in a single round trip; returns the rows of each, as named tuples."""
    line = _Line.of(c)
    with line.connection.lock:
        line.connection.wait(line.begin(statements))
        return line.connection.wait(line.end())


Finish = Callable[[Connection, Sequence[Statement], Sequence[Statement]], None]
"""How a unit of work ends: its last statements, and those that notify others."""


def leave_open(c: Connection, last: Sequence[Statement], telling: Sequence[Statement]) -> None:
    """Run them all; the caller's transaction stays open, and nobody is notified before it commits."""
    send(c, *last, *telling)


def _nothing() -> None:
    return


def commit(
    c: Connection,
    last: Sequence[Statement],
    telling: Sequence[Statement],
    *,
    sent: Callable[[], None] = _nothing,
) -> None:
    """Run the last statements, commit, and notify: one round trip. The caller's own commit finds nothing left to do.
    `sent` is called while the server works.

    A NOTIFY inside a transaction takes a cluster-wide lock that is held until the commit is on disk: however
    many connections commit, their flushes run one after another. After the commit it costs no flush and delays
    nobody. The server has received it before it commits, so it is lost only if the server itself dies in between.
    """
    line = _Line.of(c)
    with line.connection.lock:
        line.connection.wait(line.begin(last, telling))
        sent()
        line.connection.wait(line.end())


@dataclass(slots=True)
class UnderWay:
    """Statements in progress on the server."""

    rows: list[Rows] = field(default_factory=list)
    """The rows of each, once it is done."""


@contextmanager
def ahead(c: Connection, *statements: Statement) -> Iterator[UnderWay]:
    """Statements that the server runs while the caller continues; leaving waits for their end. Not to be nested."""
    line, sent = _Line.of(c), UnderWay()
    with line.connection.lock:
        line.connection.wait(line.begin(statements))
    try:
        yield sent
    finally:
        with line.connection.lock:
            sent.rows = line.connection.wait(line.end())


# --- one connection --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A statement with numbered parameters."""

    query: bytes
    names: tuple[str, ...]
    """Of the parameters, in order."""
    prepared_as: bytes
    """The same on every connection."""


_Ready = tuple[_Parsed, list[bytes | None], list[Format]]
"""A statement with its parameters in the server's notation, and how each is encoded."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that the server has not answered yet."""

    has_rows: bool = False
    prepares: bytes | None = None
    """The name of the statement that it prepares."""


@dataclass(slots=True)
class _Line:
    """A connection of the driver, and what it has been asked."""

    connection: psycopg.Connection[Any]
    transformer: Any
    """The driver's own way from answers to values."""
    prepared: set[bytes] | None
    """Names of the statements that the server has prepared; None: the next transaction may meet another server
    connection, so nothing is prepared by name."""
    asked: list[_Asked] = field(default_factory=list)

    @classmethod
    def of(cls, c: Connection) -> _Line:
        connection = driver(c)
        if not c.in_transaction():  # of which SQLAlchemy knows, so that it tells of its end
            c.begin()
        line: _Line | None = c.info.get("wire")  # kept as long as the driver's connection
        if line is None or line.connection is not connection:
            line = c.info["wire"] = cls(connection, Transformer(connection), cls._prepared_on(connection))
        return line

    @staticmethod
    def _prepared_on(connection: psycopg.Connection[Any]) -> set[bytes] | None:
        if connection.prepare_threshold is None:
            return None
        return {name.encode() for (name,) in connection.execute(_PREPARED)}

    def begin(self, statements: Sequence[Statement], committed: Sequence[Statement] | None = None) -> PQGen[None]:
        """Send statements, in a transaction; where there are `committed` ones, commit it and send those then."""
        ready, after = _ready(statements), _ready(committed or ())
        pgconn = self.connection.pgconn
        starts = pgconn.transaction_status == TransactionStatus.IDLE and not self.connection.autocommit
        pgconn.enter_pipeline_mode()
        self.asked = []
        if starts:
            self._command(b"BEGIN")
        self._ask(ready)
        if committed is not None:
            self._command(b"COMMIT")
            self._ask(after)
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)

    def _command(self, sql: bytes) -> None:
        self.connection.pgconn.send_query_params(sql, None)
        self.asked.append(_Asked())

    def _ask(self, statements: Sequence[_Ready]) -> None:
        pgconn = self.connection.pgconn
        new: set[bytes] = set()
        for parsed, values, formats in statements:
            name = b"" if self.prepared is None else parsed.prepared_as
            if self.prepared is None or (name not in self.prepared and name not in new):
                new.add(name)
                pgconn.send_prepare(name, parsed.query)
                self.asked.append(_Asked(prepares=name))
            pgconn.send_query_prepared(name, values, formats, Format.BINARY)
            self.asked.append(_Asked(has_rows=True))

    def end(self) -> PQGen[list[Rows]]:
        """The rows of each statement; the first error is raised when all answers are read."""
        pgconn = self.connection.pgconn
        rows: list[Rows] = []
        error: errors.Error | None = None
        for asked in self.asked:
            (result,) = yield from generators.fetch_many(pgconn)
            if result.status == ExecStatus.FATAL_ERROR and error is None:
                error = errors.error_from_result(result)
            if asked.has_rows:
                try:
                    rows.append(self._rows(result))
                except errors.DataError as unreadable:  # such as a time beyond Python's; all answers are read first
                    error = error or unreadable
            elif asked.prepares and self.prepared is not None and result.status == ExecStatus.COMMAND_OK:
                self.prepared.add(asked.prepares)
        yield from generators.fetch_many(pgconn)  # that the batch is over
        pgconn.exit_pipeline_mode()
        if error is not None:
            raise error
        return rows

    def _rows(self, result: PGresult) -> Rows:
        if result.status != ExecStatus.TUPLES_OK or not result.ntuples:
            return []
        row = _row_of(tuple([result.fname(column) for column in range(result.nfields)]))
        self.transformer.set_pgresult(result, format=Format.BINARY)
        rows: Rows = self.transformer.load_rows(0, result.ntuples, row)
        return rows


def prepare_nothing(engine: Engine) -> None:
    """Let this engine prepare no statement by name: for a connection pooler that does not keep track of them."""

    def connects(connection: psycopg.Connection[Any], _: object) -> None:
        connection.prepare_threshold = None

    event.listen(engine, "connect", connects)


@event.listens_for(Engine, "rollback")
@event.listens_for(Engine, "rollback_savepoint")
def _forget_prepared(c: Connection, *_: Any) -> None:
    """Have the server asked for the statements that a rollback left."""
    c.info.pop("wire", None)


@event.listens_for(Engine, "after_cursor_execute")
def _forget_what_a_drop_may_touch(c: Connection, _cursor: Any, statement: str, *_: Any) -> None:
    if _DROPS.match(statement):
        c.info.pop("wire", None)


def _ready(statements: Sequence[Statement]) -> list[_Ready]:
    return [(parsed := _parsed(sql), *_encoded(parsed, values)) for sql, values in statements]


_PREPARED = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'tidemark-%'"
_DROPS = re.compile(r"\s*(DROP|ALTER|DISCARD|DEALLOCATE)\b", re.IGNORECASE)
_NUMBERS = itertools.count(1)
_PARAMETER = re.compile(r"%\((\w+)\)s")


@cache
def _parsed(sql: str) -> _Parsed:
    numbers: dict[str, int] = {}
    numbered = _PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", sql)
    return _Parsed(numbered.encode(), tuple(numbers), b"tidemark-%d" % next(_NUMBERS))


@cache
def _row_of(columns: tuple[bytes | None, ...]) -> Callable[[Sequence[Any]], Any]:
    names = [(column or b"").decode() for column in columns]
    row: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    make: Callable[[Sequence[Any]], Any] = row._make
    return make


# --- values ----------------------------------------------------------------------------------------------------------


class Doubles(list[float | None]):
    """Numbers for a long `float8[]`: packed at once, where a plain list is written as text."""


class Ints(list[int | None]):
    """The same for an `int4[]`."""


def shared(values: Sequence[T]) -> tuple[T | None, Sequence[T]]:
    """A column as one value and an empty list if all its rows are equal; otherwise as None and the whole list.

    `unnest` makes NULLs of the empty list, and `coalesce` in the SQL replaces them with the one value.
    """
    one = values[0] if values else None
    return (one, ()) if values and values.count(one) == len(values) else (None, values)


def _encoded(parsed: _Parsed, values: Mapping[str, Any]) -> tuple[list[bytes | None], list[Format]]:
    """The parameters of a statement as the server reads them."""
    encoded: list[bytes | None] = []
    formats = []
    for name in parsed.names:
        value = values[name]
        found = None if value is None else _ENCODERS[type(value)](value)
        try:
            encoded.append(found if found is None or type(found) is bytes else found.encode())
        except UnicodeEncodeError as unfit:
            raise psycopg.DataError("PostgreSQL text cannot contain half of a surrogate pair") from unfit
        formats.append(Format.TEXT if type(found) is str else Format.BINARY)
    return encoded, formats


def _text(value: str) -> str:
    if "\0" in value:  # libpq would end the text there
        raise psycopg.DataError("PostgreSQL text cannot contain NUL (0x00) bytes")
    return value


def _quoted(value: str) -> str:
    return '"' + _text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(values: Sequence[Any]) -> str | bytes:
    kinds = set(map(type, values))
    if bytes in kinds:
        return _array(values, adapters.types["bytea"].oid)
    if kinds == {int}:
        return "{" + ",".join(map(str, values)) + "}"
    if kinds <= _OFTEN_THE_SAME:
        written = {value: _ELEMENTS[type(value)](value) for value in set(values)}
        return "{" + ",".join([written[value] for value in values]) + "}"
    return "{" + ",".join([_ELEMENTS[type(value)](value) for value in values]) + "}"


def _doubles(values: Sequence[float | None]) -> bytes:
    return _packed(values, _FLOAT8, 8, "d")


def _ints(values: Sequence[int | None]) -> bytes:
    return _packed(values, _INT4, 4, "i")


def _packed(values: Sequence[float | None], oid: int, size: int, kind: str) -> bytes:
    count = len(values)
    try:
        return _array_head(count, oid) + _sized(values, size, kind)
    except StructError:  # some are None, or out of range
        parts = [_array_head(count, oid, nulls=True)]
        for missing, some in groupby(values, key=lambda value: value is None):
            stretch = list(some)
            parts.append(_NULL * len(stretch) if missing else _sized(stretch, size, kind))
        return b"".join(parts)


def _sized(values: Sequence[float | None], size: int, kind: str) -> bytes:
    sized: list[Any] = [size] * (2 * len(values))
    sized[1::2] = values
    return _numbers(len(values), kind).pack(*sized)


@lru_cache(maxsize=256)
def _numbers(count: int, kind: str) -> Struct:
    """So many numbers of one kind, the size of each before it."""
    return Struct(f">{f'i{kind}' * count}")


def _array(values: Sequence[bytes | None], oid: int) -> bytes:
    parts = [_array_head(len(values), oid, nulls=None in values)]
    for value in values:
        parts += [_NULL] if value is None else [pack(">i", len(value)), value]
    return b"".join(parts)


def _array_head(elements: int, oid: int, *, nulls: bool = False) -> bytes:
    """Of an array of one dimension, counted from 1."""
    return pack(">iiiii", 1, nulls, oid, elements, 1) if elements else pack(">iii", 0, 0, oid)


_NULL = pack(">i", -1)
_FLOAT8, _INT4 = adapters.types["float8"].oid, adapters.types["int4"].oid
_OFTEN_THE_SAME = frozenset({str, datetime, type(None)})  # and dear to write


class _ByType(dict[type, Callable[[Any], Any]]):
    """A table by type; an entry holds for derived types too."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        for base in kind.__mro__[1:]:
            if base in self:
                return self.setdefault(kind, self[base])
        known = ", ".join(sorted(base.__name__ for base in self))
        raise TypeError(f"{kind.__name__} is no value for PostgreSQL here: {known} are")


_ELEMENTS = _ByType(
    {
        type(None): lambda value: "NULL",
        bool: lambda value: "t" if value else "f",
        int: int.__repr__,
        float: float.__repr__,
        str: _quoted,
        datetime: lambda value: _quoted(value.isoformat()),
    }
)
_ENCODERS = _ByType(
    {
        bool: lambda value: "t" if value else "f",
        int: int.__repr__,
        float: float.__repr__,
        str: _text,
        datetime: datetime.isoformat,
        bytes: bytes,
        list: _list,
        tuple: _list,
        Doubles: _doubles,
        Ints: _ints,
    }
)

FLOAT4_MAX = 3.4e38


def real(value: float | None) -> float | None:
    """A change as its float4 column can hold it: a counter that grows from 0 can grow by any ratio."""
    return value if value is None else min(max(value, -FLOAT4_MAX), FLOAT4_MAX)


def reals(values: Sequence[float | None]) -> Doubles:
    """Many of them."""
    known = [value for value in values if value is not None]
    fit = not known or (max(known) <= FLOAT4_MAX and min(known) >= -FLOAT4_MAX)
    return Doubles(values if fit else map(real, values))


def stored_reals(values: Sequence[float | None]) -> list[float | None]:
    """Many changes as read back from their float4 column."""
    fit = reals(values)
    rounded = iter(array("f", [value for value in fit if value is not None]))
    return [None if value is None else next(rounded) for value in fit]
