"""Tables as files, CSV and Parquet: written in parts, so that a long one is never whole in memory."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from importlib import import_module
from itertools import islice
from typing import Any

from backend.services.base.errors import BadRequest

PART = 1000  # rows that are written at once
# With what a spreadsheet takes a cell for a formula; the wide forms are what some input methods make of them.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class TableFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        return "text/csv; charset=utf-8" if self is TableFormat.CSV else PARQUET_TYPE


PARQUET_TYPE = "application/vnd.apache.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Named columns with the type of their values (str, int, float, bool, datetime), and rows, which are read once.

    Any value may be None. `name`: what its file is called, without an ending.
    """

    name: str
    columns: Mapping[str, type]
    rows: Iterable[Sequence[Any]]


def table_format(name: str) -> TableFormat:
    try:
        return TableFormat(name)
    except ValueError:
        raise BadRequest.field("format", name, [each.value for each in TableFormat]) from None


def written(table: Table, wanted: TableFormat) -> Iterator[bytes]:
    """The file, part by part."""
    return as_csv(table) if wanted is TableFormat.CSV else as_parquet(table)


def as_csv(table: Table) -> Iterator[bytes]:
    """A line of names, then a line a row."""
    part: Sequence[Sequence[Any]] = [list(table.columns)]
    rows = iter(table.rows)
    while part:
        text = io.StringIO()
        # Its own line ends, CR LF: with LF alone a CR within a text stays bare, and what follows stands in a new row.
        csv.writer(text).writerows([cell(value) for value in row] for row in part)
        yield text.getvalue().encode("utf-8", "replace")
        part = list(islice(rows, PART))


def cell(value: Any) -> Any:
    """Text from a commit or a result must not become a formula in a spreadsheet."""
    if isinstance(value, datetime):
        return value.isoformat()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def as_parquet(table: Table) -> Iterator[bytes]:
    """One row group a part; columns have their types, whatever the rows hold."""
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")  # heavy, and rarely asked for
    types = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        datetime: pyarrow.timestamp("us", tz="UTC"),
    }
    schema = pyarrow.schema({name: types[kind] for name, kind in table.columns.items()})
    file, rows = _Parts(), iter(table.rows)
    with parquet.ParquetWriter(pyarrow.PythonFile(file, mode="w"), schema, compression="zstd") as writer:
        while part := list(islice(rows, PART)):
            columns = [[row[index] for row in part] for index in range(len(schema))]
            writer.write_table(
                pyarrow.table([pyarrow.array(*each) for each in zip(columns, schema.types, strict=True)], schema=schema)
            )
            yield file.taken()
    yield file.taken()


class _Parts(io.RawIOBase):
    """A file that hands on what was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        """The bytes written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
