"""Reads of a comparison of two commits: measurements, names of their series, results that did not end well."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text

from backend.store.base.spans import period_of


class ComparedRunRow(NamedTuple):
    id: str
    commit_id: int
    suite: str
    state: str
    status: str | None
    error: str | None
    worker: str | None
    environment_id: int | None
    measured_at: datetime | None


class MeasurementRow(NamedTuple):
    run_id: str
    commit_id: int
    series_id: int
    value: float
    processes: list[float] | None
    worker_id: int | None
    worker_offset: float | None
    """By which share its worker is usually dearer than the level of the series; None: not known yet."""


class ComparedSeriesRow(NamedTuple):
    id: int
    suite: str
    benchmark: str
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    noise: float | None


class ComparedResultRow(NamedTuple):
    """One variant in a run, whatever came of it."""

    commit_id: int
    run_id: str
    suite: str
    benchmark: str
    variant_key: str
    preset: str
    status: str
    error: str | None


_RUNS = text(
    """SELECT r.id, r.commit_id, r.suite, r.state, r.status, r.error, w.name, r.environment_id,
         coalesce(r.started_at, r.received_at)
       FROM run r LEFT JOIN worker w ON w.id = r.worker_id
       WHERE r.commit_id = ANY(:commits) AND r.testbed_id = :testbed AND r.state NOT IN ('cancelled', 'superseded')
         AND r.session_id IS NULL
       ORDER BY r.requested_at"""
)
# Run by run, at the moment of each (OFFSET keeps it so): joined as a whole, and thought to be many more than they are,
# the measurements of ten runs were found by reading all runs, or all measurements of a month.
_MEASURED = text(
    """SELECT r.id, r.commit_id, m.series_id, m.value, m.processes, r.worker_id
       FROM unnest(CAST(:runs AS text[]), CAST(:moments AS timestamptz[])) AS wanted (id, moment)
       JOIN run r ON r.id = wanted.id
       CROSS JOIN LATERAL (
         SELECT x.series_id, x.value, x.processes FROM measurement x
         WHERE x.run_id = wanted.id AND x.measured_at = wanted.moment
           AND x.measured_at >= :since AND x.measured_at < :until
         OFFSET 0) AS m"""
)
# By themselves, and not joined with the measurements: the index leads to the judgements of a run, once for each run.
_WORKER_OFFSETS = text(
    """SELECT run_id, series_id, worker_offset FROM judgement
       WHERE run_id = ANY(:runs) AND superseded_at IS NULL AND measured_at >= :since AND measured_at < :until
         AND worker_offset IS NOT NULL"""
)
_SERIES = text(
    """SELECT id, suite, benchmark, variant_key, preset, metric, unit, direction, role, exact,
         CAST(profile ->> 'noise' AS double precision)
       FROM series WHERE id = ANY(:ids) ORDER BY id"""
)
_RESULTS = text(
    """SELECT r.commit_id, x.run_id, r.suite, x.benchmark, x.variant_key, x.preset, x.status, x.error
       FROM result x JOIN run r ON r.id = x.run_id WHERE x.run_id = ANY(:runs) AND x.status <> 'ok'"""
)


def runs(c: Connection, commits: Sequence[int], testbed_id: int) -> list[ComparedRunRow]:
    """Runs of these commits on a testbed, in the order of their requests."""
    rows = c.execute(_RUNS, {"commits": list(commits), "testbed": testbed_id})
    return [ComparedRunRow._make(row) for row in rows.all()]


def measured(c: Connection, ran: Sequence[ComparedRunRow]) -> list[MeasurementRow]:
    """What these runs measured, with what is known of the worker that did."""
    names, moments = [run.id for run in ran], [run.measured_at for run in ran]
    period = period_of(moments)._asdict()
    offsets = {row[:2]: row[2] for row in c.execute(_WORKER_OFFSETS, {"runs": names, **period}).all()}
    rows = c.execute(_MEASURED, {"runs": names, "moments": moments, **period}).all()
    return [MeasurementRow._make((*row, offsets.get((row[0], row[2])))) for row in rows]


def series(c: Connection, ids: Sequence[int]) -> list[ComparedSeriesRow]:
    return [ComparedSeriesRow._make(row) for row in c.execute(_SERIES, {"ids": list(ids)}).all()]


def results_not_ok(c: Connection, ran: Sequence[ComparedRunRow]) -> list[ComparedResultRow]:
    return [ComparedResultRow._make(row) for row in c.execute(_RESULTS, {"runs": [run.id for run in ran]}).all()]
