"""Budget of the disk: what a measurement of 30 samples takes, beside its floats alone."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable

from sqlalchemy import Connection, text

from backend.store.ingest.packed import pack
from tests.bench.registry import Figure, row
from tests.bench.stage import Stage

SERIES, SAMPLES, PROCESSES, ROWS = 200, 30, 5, 50_000
FLOAT_BYTES = 8

_FILL = text(
    """INSERT INTO bench_sized (series_id, project_id, run_id, measured_at, commit_id, result_index, measurement_index,
                                value, processes, samples_packed)
       SELECT n % :series, 1, 'B' || lpad(CAST(n / :series AS text), 25, '0'), now() + n / :series * interval '1 hour',
         n / :series, n % 40, 0, random(), ARRAY(SELECT random() + n * 0 FROM generate_series(1, :processes)), packed
       FROM unnest(CAST(:packed AS bytea[])) WITH ORDINALITY AS u (packed, n)"""
)


@row("bytes")
def bytes_of_a_measurement(stage: Stage) -> Iterable[Figure]:
    """Table and indexes of `measurement`, against 30 floats, by how many digits the clock told."""
    for clock, told, at_most in CLOCKS:
        with stage.connect() as connection:
            size = _size(connection, told)
            connection.rollback()
        yield Figure(
            what=f"bytes of a measurement with {SAMPLES} samples{clock}",
            value_ms=size / ROWS,
            yardstick="its floats",
            yardstick_ms=SAMPLES * FLOAT_BYTES,
            at_most=at_most,
            note="bytes, not milliseconds; indexes included",
        )


def _size(connection: Connection, told: Callable[[float], float]) -> int:
    """Bytes of so many measurements whose timings differ by a percent or so."""
    chance = random.Random(1)
    timings = [told(_level(n) * (1 + chance.gauss(0, 0.01))) for n in range(ROWS) for _ in range(SAMPLES)]
    connection.execute(text("DROP TABLE IF EXISTS bench_sized"))
    connection.execute(text("CREATE TABLE bench_sized (LIKE measurement INCLUDING ALL)"))
    connection.execute(_FILL, {"packed": pack(timings, [SAMPLES] * ROWS), "series": SERIES, "processes": PROCESSES})
    return int(connection.scalar(text("SELECT pg_total_relation_size('bench_sized')")) or 0)


def _level(number: int) -> float:
    """Of the timings of a series: from a tenth of a millisecond to a second."""
    return float(10.0 ** (number % SERIES / SERIES * 4 - 1))


def seven_digits(value: float) -> float:
    """As the suite writes them."""
    return float(f"{value:.7g}")


def float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


CLOCKS: tuple[tuple[str, Callable[[float], float], float | None], ...] = (
    ("", seven_digits, 1.3),
    (", to the nanosecond", lambda value: round(value, 6), None),
    (", as float32", float32, None),
    (", every bit of a float64", float, None),
)

_PER_ROW = text(
    """SELECT sum(pg_total_relation_size(p.oid)) / (SELECT count(*) FROM judgement)
       FROM pg_partition_tree('judgement') t JOIN pg_class p ON p.oid = t.relid"""
)
_PER_BUCKET = text("SELECT CAST(pg_total_relation_size('rollup') AS float8) / count(*) FROM rollup")


@row("bytes of what is judged")
def bytes_of_a_judgement(stage: Stage) -> Iterable[Figure]:
    """Tables and indexes of `judgement` and of `rollup`, a row; beside the one float that each is about."""
    _ = stage.filled
    with stage.connect() as connection:
        for what, statement in (("a judgement", _PER_ROW), ("a bucket of a roll-up", _PER_BUCKET)):
            yield Figure(
                what=f"bytes of {what}",
                value_ms=float(connection.scalar(statement) or 0.0),
                yardstick="its value",
                yardstick_ms=FLOAT_BYTES,
                note="bytes, not milliseconds; indexes included",
            )
