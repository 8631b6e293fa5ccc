"""How many samples each process has is stored only where it does not follow, and is read all the same."""

from __future__ import annotations

from statistics import median

import pytest
from sqlalchemy import Connection, text

from backend.services.ingest.record import get_document
from tests.backend.services.loom import Loom

SIX = [4.9, 5.0, 5.1, 5.2, 5.3, 5.4]


@pytest.mark.parametrize(
    ("processes", "samples", "stored"),
    [
        ([5.0, 5.3], [SIX[:3], SIX[3:]], None),
        ([5.0], [SIX], None),
        ([5.0, 5.3], [SIX[:4], SIX[4:]], [4, 2]),
        ([5.0, 5.3], [[], SIX], [0, 6]),
        ([5.0, 5.3, 5.4], [SIX[:3], SIX[3:]], [3, 3]),
        ([5.0, 5.3], [[], []], None),
        ([5.0], [[]], None),
        ([], [[5.0]], [1]),
        ([2.0**53], [[2**53 + 1, 2**60 + 1]], None),
        ([0.0], [[0.0, -0.0, 5e-324, 1.7976931348623157e308]], None),
    ],
)
def test_samples_come_back_as_they_were_given(
    connection: Connection, processes: list[float], samples: list[list[float]], stored: list[int] | None
) -> None:
    loom = Loom(connection)
    values = {"value": median(processes or [5.0]), "processes": processes}
    given = {**loom.measurement("step_ms", 5.1), **values, "samples": samples, "samples_taken": [10] * len(samples)}
    run = loom.run_of(0, [given])
    loom.deliver(run)
    assert loom.rows("SELECT sample_counts FROM measurement") == [(stored,)]
    assert get_document(connection, run["id"])["results"][0]["measurements"][0]["samples"] == [
        list(map(float, each)) for each in samples
    ]
    loom.deliver(dict(reversed(run.items())))  # the same, written in another order, is no contradiction


def test_samples_from_before_they_were_packed_are_read_all_the_same(connection: Connection) -> None:
    loom = Loom(connection)
    lists = [SIX[:3], SIX[3:]]
    run = loom.run_of(
        0, [{**loom.measurement("step_ms", 5.1), "processes": [5.0, 5.3], "value": 5.15, "samples": lists}]
    )
    loom.deliver(run)
    connection.execute(text("UPDATE measurement SET samples_packed = NULL, samples = :samples"), {"samples": SIX})
    assert get_document(connection, run["id"])["results"][0]["measurements"][0]["samples"] == lists
