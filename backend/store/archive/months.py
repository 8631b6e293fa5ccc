"""The months of measurements and judgements as the database keeps them: one partition of each table."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from backend.store.base.schema import PARTITIONED_TABLES
from backend.store.ingest.samples import COLUMNS, by_process

BATCH = 5_000
NAME_BYTES = 6


class KeptMonth(NamedTuple):
    """An existing month. `name` is that of its file: it belongs to the partition, goes with it into a backup, and a
    month that was dropped and created again has another. None: it has none yet."""

    month: datetime
    name: str | None


_MONTHS = text(
    """SELECT substr(p.relname, 13), obj_description(p.oid, 'pg_class')
       FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhrelid
       WHERE i.inhparent = CAST('measurement' AS regclass) ORDER BY 1"""
)
_PROJECTS = text("SELECT id, slug FROM project ORDER BY slug")
_ROWS = text(
    f"""SELECT m.series_id, t.name AS testbed, s.suite, s.suite_version, s.benchmark, s.variant_key AS variant,
         s.preset, s.metric, s.unit, s.direction, s.role, k.sha AS commit, r.branch_name AS branch, j.position,
         m.run_id, w.name AS worker, m.measured_at, m.value, {COLUMNS}, j.verdict, j.red, j.onset,
         j.change, j.change_low, j.change_high, j.baseline, j.regression_id
       FROM measurement m
       JOIN series s ON s.id = m.series_id
       JOIN testbed t ON t.id = s.testbed_id
       JOIN run r ON r.id = m.run_id
       JOIN commit k ON k.id = m.commit_id
       LEFT JOIN worker w ON w.id = r.worker_id
       LEFT JOIN judgement j ON j.series_id = m.series_id AND j.run_id = m.run_id AND j.measured_at = m.measured_at
         AND j.superseded_at IS NULL AND j.measured_at >= :since AND j.measured_at < :until
       WHERE s.project_id = :project AND m.measured_at >= :since AND m.measured_at < :until
       ORDER BY m.measured_at, m.series_id, m.run_id"""
)


def kept_months(c: Connection) -> list[KeptMonth]:
    """Every month there is, the earliest first."""
    return [
        KeptMonth(datetime.strptime(month, "%Y_%m").replace(tzinfo=UTC), name) for month, name in c.execute(_MONTHS)
    ]


def name_months(c: Connection) -> None:
    """Give each month that has none the name of its file."""
    for kept in kept_months(c):
        if kept.name is None:
            c.execute(text(f"COMMENT ON TABLE measurement_{kept.month:%Y_%m} IS '{secrets.token_hex(NAME_BYTES)}'"))


_NEEDED = text(
    """SELECT min(k.month) FROM change_point p
       JOIN series s ON s.id = p.series_id AND s.last_measured_at >= :since
       JOIN position_span k ON k.project_id = s.project_id
         AND k.last_position >= coalesce(p.last_good_position, p.onset_position)
       JOIN regression g ON g.id = p.regression_id AND g.state IN ('suspect', 'confirmed', 'acknowledged')
       WHERE p.direction = 'regression' AND p.state IN ('suspect', 'confirmed')"""
)


def first_needed(c: Connection, since: datetime) -> datetime | None:
    """The month in which the earliest change began that is still open, in a series that was measured `since` then."""
    found: datetime | None = c.execute(_NEEDED, {"since": since}).scalar_one()
    return found


def projects(c: Connection) -> list[tuple[int, str]]:
    """(id, slug) of every project."""
    return [(row[0], row[1]) for row in c.execute(_PROJECTS)]


def rows_of(c: Connection, project_id: int, since: datetime, until: datetime) -> Iterator[list[dict[str, Any]]]:
    """Measurements of a project from one moment until another, with the judgements that stand, in batches."""
    values = {"project": project_id, "since": since, "until": until}
    found = c.execute(_ROWS, values, execution_options={"stream_results": True, "yield_per": BATCH})
    for part in found.mappings().partitions():
        yield [_with_samples(dict(row)) for row in part]


def _with_samples(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its samples as numbers, and how many belong to each process; None: there are none."""
    lists = by_process(row["processes"], row["samples"], row.pop("samples_packed"), row["sample_counts"])
    row["samples"] = [sample for samples in lists for sample in samples] or None
    row["sample_counts"] = list(map(len, lists)) or None
    return row


def hold(c: Connection, month: datetime) -> None:
    """Nothing is written into this month before the transaction is over; reading continues."""
    for table in PARTITIONED_TABLES:
        c.execute(text(f"LOCK TABLE {table}_{month:%Y_%m} IN SHARE MODE"))


def drop(c: Connection, month: datetime) -> None:
    """Take a month out of its tables, and remove it. It waits for half a second at most for those who read."""
    c.execute(text("SET LOCAL lock_timeout = '500ms'"))
    for table in PARTITIONED_TABLES:
        c.execute(text(f"ALTER TABLE {table} DETACH PARTITION {table}_{month:%Y_%m}"))
        c.execute(text(f"DROP TABLE {table}_{month:%Y_%m}"))
