"""Rows that are copied must be read back as they were given."""

import math
from typing import Any

import pytest
from sqlalchemy import Connection, text

from backend.store import wire

COLUMNS = {"id": "int4", "samples": "float8[]", "counts": "int4[]"}


@pytest.mark.parametrize(
    "row",
    [
        (1, None, None),
        (2, [], []),
        (3, [1.5], [1]),
        (4, [0.1, -0.0, 5e-324, 1.7e308, math.inf], [0, 2**31 - 1, -(2**31)]),
        (5, [float(number) / 7 for number in range(100_000)], list(range(1000))),
    ],
)
def test_lists_of_numbers_are_copied_as_they_are(connection: Connection, row: tuple[Any, ...]) -> None:
    connection.execute(text("CREATE TEMPORARY TABLE copied (id int4, samples float8[], counts int4[]) ON COMMIT DROP"))
    wire.copy_rows(connection, "copied", COLUMNS, [row])
    assert tuple(connection.execute(text("SELECT id, samples, counts FROM copied")).one()) == row
