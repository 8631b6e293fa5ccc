"""What this machine takes for the bare parts of a write: HTTP, a durable INSERT, a COPY; by one and by eight."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg

from backend.store.ingest.packed import pack
from tests.bench.stage import Client, Stage

SAMPLES = 30
TIMINGS = [round(5.0 * (1 + number % 7 / 100), 5) for number in range(SAMPLES)]
TURNS_A_CLIENT = 60
COPIED_ROWS = 4_000
COPIED_ROUNDS = 5
TABLES = """
CREATE TABLE IF NOT EXISTS bench_yardstick (id bigserial PRIMARY KEY, value float8);
DROP TABLE IF EXISTS bench_copied, bench_copied_plain;
CREATE TABLE bench_copied (LIKE measurement INCLUDING INDEXES);
CREATE TABLE bench_copied_plain (LIKE measurement INCLUDING INDEXES);
ALTER TABLE bench_copied_plain ALTER samples_packed TYPE float8[] USING NULL
"""
MEASUREMENT_COLUMNS = {
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
INSERT: LiteralString = "INSERT INTO bench_yardstick (value) VALUES (1.0)"
# A NOTIFY takes a lock of the whole cluster until its transaction is on disk.
NOTIFIES_INSIDE: LiteralString = f"BEGIN; {INSERT}; NOTIFY bench; COMMIT"
NOTIFIES_AFTER: LiteralString = f"BEGIN; {INSERT}; COMMIT; NOTIFY bench"
COPY = f"COPY bench_copied ({', '.join(MEASUREMENT_COLUMNS)}) FROM STDIN (FORMAT BINARY)"
# The rows that the budget of ingest was set for, before samples were packed.
PLAIN_COLUMNS = {**MEASUREMENT_COLUMNS, "samples_packed": "float8[]"}
COPY_PLAIN = COPY.replace("bench_copied", "bench_copied_plain")


@dataclass(slots=True)
class Floors:
    """The bare parts, on connections of their own."""

    stage: Stage
    connection: psycopg.Connection[Any]
    bare: Client
    copied: int = 0

    @classmethod
    @contextmanager
    def of(cls, stage: Stage) -> Iterator[Floors]:
        with psycopg.connect(stage.database_url, autocommit=True) as connection:
            connection.execute(TABLES)
            yield cls(stage, connection, Client(stage.bare_port))

    def insert(self) -> None:
        """One row, durable."""
        self.connection.execute(INSERT)

    def bare_put(self, body: bytes) -> None:
        """The same bytes to an endpoint that reads them and answers `{}`."""
        self.bare.send("PUT", "/bare", body)

    def copy(self, rows: int) -> None:
        """So many measurements of 30 samples into a table with the indexes of `measurement`, durable."""
        self.copied += 1
        processes, moment, told = [5.0] * 5, datetime.now(UTC), (1, 0, 0, 5.0)
        packed = pack(TIMINGS * rows, [SAMPLES] * rows)
        with self.connection.cursor() as cursor, cursor.copy(COPY) as copying:
            copying.set_types(list(MEASUREMENT_COLUMNS.values()))
            for number, samples_packed in enumerate(packed):
                copying.write_row((number, 1, f"run-{self.copied}", moment, *told, processes, samples_packed, None))

    def copy_plain(self, rows: int) -> None:
        """The same with samples and their counts as plain arrays."""
        self.copied += 1
        processes, moment, told = [5.0] * 5, datetime.now(UTC), (1, 0, 0, 5.0)
        with self.connection.cursor() as cursor, cursor.copy(COPY_PLAIN) as copying:
            copying.set_types(list(PLAIN_COLUMNS.values()))
            for number in range(rows):
                copying.write_row((number, 1, f"run-{self.copied}", moment, *told, processes, TIMINGS, [6] * 5))

    def copied_rows_a_second(self, copy: Callable[[int], None]) -> float:
        """Rows a second that one connection copies in large pieces, making them included."""
        times = []
        for _ in range(COPIED_ROUNDS):
            began = time.perf_counter()
            copy(COPIED_ROWS)
            times.append(time.perf_counter() - began)
        return COPIED_ROWS / statistics.median(times)

    def gains_of(self, clients: int) -> str:
        """By how much so many clients do more of the bare parts a second than one does."""
        inserts, puts = self._gain_of(clients, INSERT), self._gain_of_puts(clients)
        inside, after = self._gain_of(clients, NOTIFIES_INSIDE), self._gain_of(clients, NOTIFIES_AFTER)
        return (
            f"floor: {clients} raw INSERT connections {inserts:.1f}× of one ({inside:.1f}× with a NOTIFY before the "
            f"commit, {after:.1f}× with one after it), {clients} bare HTTP clients {puts:.1f}×"
        )

    def _gain_of(self, clients: int, sql: LiteralString) -> float:
        with ExitStack() as stack:
            connections = [
                stack.enter_context(psycopg.connect(self.stage.database_url, autocommit=True)) for _ in range(clients)
            ]
            return _gain([lambda c=c: c.execute(sql, prepare=False) for c in connections])

    def _gain_of_puts(self, clients: int) -> float:
        senders = [Client(self.stage.bare_port) for _ in range(clients)]
        return _gain([lambda c=c: c.send("PUT", "/bare", b"{}" * 500) for c in senders])


def _gain(acts: Sequence[Callable[[], object]]) -> float:
    """How much faster all of these are together than the first alone."""
    for act in acts:
        act()
    return _rate(acts) / _rate(acts[:1])


def _rate(acts: Sequence[Callable[[], object]]) -> float:
    def often(act: Callable[[], object]) -> None:
        for _ in range(TURNS_A_CLIENT):
            act()

    with ThreadPoolExecutor(len(acts)) as pool:
        began = time.perf_counter()
        list(pool.map(often, acts))
        return len(acts) * TURNS_A_CLIENT / (time.perf_counter() - began)
