"""Tables as files: what is written comes back, in parts, with the types of its columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from backend.services.base.errors import BadRequest
from backend.services.base.tables import PART, Table, TableFormat, as_csv, as_parquet, cell, table_format

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
COLUMNS = {"name": str, "number": int, "value": float, "red": bool, "at": datetime}


def table(rows: list[list[Any]]) -> Table:
    return Table(name="t", columns=COLUMNS, rows=iter(rows))


def test_parquet_gives_back_the_rows_with_the_types_of_their_columns() -> None:
    found = pyarrow.parquet.read_table(io.BytesIO(b"".join(as_parquet(table([["a", 1, 2, True, NOW], [None] * 5])))))
    assert found.to_pylist() == [
        {"name": "a", "number": 1, "value": 2.0, "red": True, "at": NOW},
        dict.fromkeys(COLUMNS),
    ]
    assert found.schema.field("at").type == pyarrow.timestamp("us", tz="UTC")


def test_a_table_without_rows_has_its_columns_in_both_formats() -> None:
    empty = pyarrow.parquet.read_table(io.BytesIO(b"".join(as_parquet(table([])))))
    assert empty.num_rows == 0 and empty.column_names == list(COLUMNS)
    assert b"".join(as_csv(table([]))) == b"name,number,value,red,at\r\n"


@pytest.mark.parametrize("write", [as_csv, as_parquet])
def test_rows_are_read_only_as_the_file_is_taken(write: Any) -> None:
    read: list[int] = []

    def rows() -> Iterator[list[Any]]:
        for number in range(3 * PART):
            read.append(number)
            yield ["a", number, 0.5, False, NOW]

    parts = write(Table(name="t", columns=COLUMNS, rows=rows()))
    next(parts), next(parts)
    assert PART <= len(read) <= 2 * PART
    assert sum(map(len, parts)) and len(read) == 3 * PART


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_text_that_a_spreadsheet_would_run_is_kept_as_text(begin: str) -> None:
    text = b"".join(as_csv(table([[begin + "1", -1, -0.5, None, NOW]]))).decode()
    _, row = csv.reader(io.StringIO(text, newline=""))
    assert row == [f"'{begin}1", "-1", "-0.5", "", NOW.isoformat()]
    assert cell(begin + "1") == f"'{begin}1" and cell(-0.5) == -0.5


def test_a_line_end_within_a_text_begins_no_row() -> None:
    text = b"".join(as_csv(table([["a\r=HYPERLINK(1)", 1, 2, None, NOW]]))).decode()
    assert '"a\r=HYPERLINK(1)"' in text


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    assert table_format("parquet") is TableFormat.PARQUET
    with pytest.raises(BadRequest, match="csv, parquet"):
        table_format("xlsx")
