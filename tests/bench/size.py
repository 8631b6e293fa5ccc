"""Budget of the disk: what a measurement of 30 samples takes, beside its floats alone."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import text

from tests.bench.registry import Figure, row
from tests.bench.stage import Stage

SAMPLES, PROCESSES, ROWS = 30, 5, 50_000
FLOAT_BYTES = 8

_FILL = text(
    """INSERT INTO bench_sized (series_id, run_id, measured_at, commit_id, result_index, measurement_index, value,
                                processes, samples, sample_counts)
       SELECT n % 200, 'B' || lpad(CAST(n / 200 AS text), 25, '0'), now() + n / 200 * interval '1 hour', n / 200,
         n % 40, 0, random(), ARRAY(SELECT random() + n * 0 FROM generate_series(1, :processes)),
         ARRAY(SELECT random() + n * 0 FROM generate_series(1, :samples)),
         NULL -- as many in each process, which follows
       FROM generate_series(1, :rows) AS n"""
)


@row("bytes")
def bytes_of_a_measurement(stage: Stage) -> Iterable[Figure]:
    """Table and indexes of `measurement`, against 30 floats."""
    with stage.connect() as connection:
        connection.execute(text("DROP TABLE IF EXISTS bench_sized"))
        connection.execute(text("CREATE TABLE bench_sized (LIKE measurement INCLUDING ALL)"))
        connection.execute(_FILL, {"rows": ROWS, "samples": SAMPLES, "processes": PROCESSES})
        size = connection.scalar(text("SELECT pg_total_relation_size('bench_sized')")) or 0
        connection.rollback()
    yield Figure(
        what=f"bytes of a measurement with {SAMPLES} samples",
        value_ms=size / ROWS,
        yardstick="its floats",
        yardstick_ms=SAMPLES * FLOAT_BYTES,
        at_most=1.3,
        note="bytes, not milliseconds; indexes included",
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
