"""The floor of a delivery: a service that parses a run, stores as many rows as the real one does, and commits.

It looks nothing up, judges nothing and answers `{}`. Its tables are like the real ones, with their indexes; what it
writes has the size of what is written there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import Any, LiteralString
from zlib import crc32

import orjson
from fastapi import FastAPI, Request, Response
from psycopg import Connection
from psycopg_pool import ConnectionPool
from starlette.concurrency import run_in_threadpool

from backend.contract import Measurement, Run, parse_run
from backend.store.ingest.packed import pack
from backend.store.ingest.record import pack_document
from backend.store.ingest.samples import stored_counts

TABLES: tuple[LiteralString, ...] = (
    "CREATE TABLE IF NOT EXISTS floor_run (id text PRIMARY KEY, received_at timestamptz, document bytea)",
    "CREATE TABLE IF NOT EXISTS floor_measurement (LIKE measurement INCLUDING ALL)",
    "CREATE TABLE IF NOT EXISTS floor_judgement (LIKE judgement INCLUDING ALL)",
    "CREATE TABLE IF NOT EXISTS floor_rollup (LIKE rollup INCLUDING ALL)",
    "CREATE TABLE IF NOT EXISTS floor_series (id int PRIMARY KEY, state_tail bytea) WITH (fillfactor = 50)",
)
MEASUREMENT = {
    "series_id": "int4",
    "project_id": "int4",
    "run_id": "text",
    "measured_at": "timestamptz",
    "commit_id": "int8",
    "result_index": "int2",
    "measurement_index": "int2",
    "value": "float8",
    "processes": "float8[]",
    "samples_packed": "bytea",
    "sample_counts": "int4[]",
}
NUMBERS = {
    **dict.fromkeys(
        ("value", "baseline", "band_low", "band_high", "smoothed", "smoothed_low", "smoothed_high"), "float8"
    ),
    **dict.fromkeys(("change", "change_low", "change_high", "anchor_change"), "float4"),
    "anchor": "float8",
}
JUDGEMENT = {
    "project_id": "int4",
    "measured_at": "timestamptz",
    "series_id": "int4",
    "position": "int4",
    "commit_id": "int8",
    "run_id": "text",
    "verdict": "text",
    "reason": "text",
    "noise": "float8",
    "minimum_detectable_effect": "float8",
    "n_baseline": "int4",
    "min_change": "float8",
    "runs_of_level": "int4",
    "worker_offset": "float8",
    "sustained_runs": "int2",
    "policy_version": "text",
    "judged_at": "timestamptz",
    **NUMBERS,
}
EXPLAINED = 0.0051234567891234, 0.0151234567891234, 32, 0.05, 32, 0.0, 3
TAIL = bytes(500)
ROLLUPS: LiteralString = """
INSERT INTO floor_rollup AS r (series_id, project_id, granularity, bucket, runs, value_sum, value_min, value_max,
                               last_value, last_position, worst_verdict, worst_change)
SELECT id, 1, name, date_trunc(name, %(at)s, 'UTC'), 1, value, value, value, value, 1, 'unchanged', 0
FROM unnest(%(ids)s::int[], %(values)s::float8[]) AS u (id, value), unnest(ARRAY['hour', 'day', 'week']) AS g (name)
ON CONFLICT (series_id, granularity, bucket, project_id) DO UPDATE SET runs = r.runs + 1
"""
STATES: LiteralString = """
INSERT INTO floor_series SELECT unnest(%(ids)s::int[]), %(tail)s
ON CONFLICT (id) DO UPDATE SET state_tail = excluded.state_tail
"""


def floor(database_url: str) -> FastAPI:
    app = FastAPI()
    # Connections are used in turns: each prepares its statements when it first sees them, as ours do.
    pool: ConnectionPool[Connection[Any]] = ConnectionPool(
        database_url.replace("+psycopg", ""), min_size=8, kwargs={"prepare_threshold": 0}
    )
    with pool.connection() as connection:
        for table in TABLES:
            connection.execute(table)

    def keep(body: bytes) -> None:
        run = parse_run(body)
        with pool.connection() as connection:
            store(connection, run, body)

    @app.put("/floor")
    async def take(request: Request) -> Response:
        await run_in_threadpool(keep, await request.body())
        return Response(b"{}", media_type="application/json")

    return app


def store(c: Connection[Any], run: Run, body: bytes) -> None:
    """All rows of one run; each project has series of its own, as in the service, so that none waits for another's."""
    now, at = datetime.now(UTC), run.started or datetime.now(UTC)
    measured = [
        (number, index) for number, result in enumerate(run.results) for index in range(len(result.measurements))
    ]
    measurements = [run.results[number].measurements[index] for number, index in measured]
    values = [measurement.value for measurement in measurements]
    samples = [list(chain.from_iterable(measurement.samples)) for measurement in measurements]
    packed = pack(list(chain.from_iterable(samples)), list(map(len, samples)))
    first = 1 + crc32(run.project.encode()) % 1_000_000 * 1_000
    ids = list(range(first, first + len(measured)))
    with c.pipeline(), c.cursor() as cursor:
        cursor.execute("INSERT INTO floor_run VALUES (%s, %s, %s)", (run.id, now, pack_document(orjson.loads(body))))
        cursor.execute(STATES, {"ids": ids, "tail": TAIL})
        cursor.execute(ROLLUPS, {"ids": ids, "values": values, "at": at})
    with c.cursor() as cursor:
        copy: LiteralString = f"COPY floor_measurement ({', '.join(MEASUREMENT)}) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(copy) as copying:
            copying.set_types(list(MEASUREMENT.values()))
            for series, (place, measurement, samples_packed) in enumerate(
                zip(measured, measurements, packed, strict=True), first
            ):
                numbers = measurement.value, list(measurement.processes), samples_packed, _counts(measurement)
                copying.write_row((series, 1, run.id, at, 1, *place, *numbers))
        copy = f"COPY floor_judgement ({', '.join(JUDGEMENT)}) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(copy) as copying:
            copying.set_types(list(JUDGEMENT.values()))
            for series, value in enumerate(values, first):
                said = 1, at, series, 1, 1, run.id, "unchanged", "within_band", *EXPLAINED, "0123456789ab", now
                copying.write_row((*said, *([value] * len(NUMBERS))))


def _counts(measurement: Measurement) -> list[int] | None:
    return list(stored_counts(list(map(len, measurement.samples)), len(measurement.processes))) or None
