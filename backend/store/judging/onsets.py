"""Evidence for the cause of a change: the runs around its onset, the series beside it, the commits between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, TextClause, text

from backend.store.base.spans import Period, Read, Spans, period_of_runs

_NEAREST = """SELECT j.position, j.run_id, j.change, j.value, w.name AS worker, e.fingerprint, r.document
       FROM (
         SELECT position, run_id, change, value FROM judgement
         WHERE series_id = :series AND superseded_at IS NULL AND branch_id IS NULL AND position BETWEEN :first AND :last
           AND measured_at >= :since AND measured_at < :until
         ORDER BY position {order} LIMIT :limit) AS j
       JOIN run r ON r.id = j.run_id
       LEFT JOIN worker w ON w.id = r.worker_id
       LEFT JOIN environment e ON e.id = r.environment_id
       ORDER BY j.position"""
_BEFORE = text(_NEAREST.format(order="DESC"))
_AFTER = text(_NEAREST.format(order=""))
_SINCE_ANCHOR = text(
    """SELECT w.name AS worker, j.anchor_change AS change FROM (
         SELECT run_id, anchor_change, position FROM judgement
         WHERE series_id = :series AND superseded_at IS NULL AND branch_id IS NULL AND position BETWEEN :first AND :last
           AND measured_at >= :since AND measured_at < :until
         ORDER BY position DESC LIMIT :limit) AS j
       JOIN run r ON r.id = j.run_id
       LEFT JOIN worker w ON w.id = r.worker_id"""
)
_BESIDE = text(
    """SELECT id, suite, benchmark, variant_key, preset, metric, unit, role, direction, exact FROM series
       WHERE project_id = :project AND testbed_id = :testbed AND suite = :suite AND suite_version = :version
         AND (state_position IS NOT NULL OR id = :lead)
       ORDER BY id = :lead DESC, last_measured_at DESC NULLS LAST, id LIMIT :most"""
)
_VALUES_OF = text(
    """SELECT series_id, run_id, value FROM judgement
       WHERE series_id = ANY(:series) AND superseded_at IS NULL AND branch_id IS NULL
         AND position BETWEEN :first AND :last AND run_id = ANY(:runs)
         AND measured_at >= :since AND measured_at < :until"""
)
_CHANGED_PATHS = text(
    """SELECT k.changed_paths FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id
       WHERE bc.branch_id = :branch AND bc.position > :last_good AND bc.position <= :first_bad"""
)


def runs_around(c: Connection, series_id: int, onset: int, *, before: int, after: int) -> list[Any]:
    """The runs of a series on both sides of an onset, with their environment, their worker and their document."""
    spans = Spans.of_series(c, series_id)
    earlier = spans.nearest_before(onset - 1, before, _reader(c, _BEFORE, series_id, before))
    return earlier + spans.nearest_after(onset, after, _reader(c, _AFTER, series_id, after))


def changes_since_anchor(c: Connection, series_id: int, position: int, *, most: int) -> list[Any]:
    """Of the newest runs up to a position: the worker, and the change against the anchor."""
    read = _reader(c, _SINCE_ANCHOR, series_id, most)
    return [row for row in Spans.of_series(c, series_id).nearest_before(position, most, read) if row.change is not None]


def _reader(c: Connection, statement: TextClause, series_id: int, limit: int) -> Read[list[Any]]:
    """Runs the statement between two positions, which lie in a period."""

    def read(first: int, last: int, period: Period) -> list[Any]:
        values = {"series": series_id, "first": first, "last": last, "limit": limit, **period._asdict()}
        return list(c.execute(statement, values))

    return read


def series_beside(
    c: Connection, lead_series_id: int, *, project_id: int, testbed_id: int, suite: str, version: str, most: int
) -> list[Any]:
    """The series of a suite on a testbed, the lead first."""
    values = {"project": project_id, "testbed": testbed_id, "suite": suite, "version": version}
    return list(c.execute(_BESIDE, {**values, "lead": lead_series_id, "most": most}))


def values_of(c: Connection, series_ids: Iterable[int], run_ids: Iterable[str], first: int, last: int) -> list[Any]:
    """Values of these series in these runs, as judged on the default branch between two positions."""
    runs = list(run_ids)
    values = {"series": list(series_ids), "runs": runs, "first": first, "last": last}
    return list(c.execute(_VALUES_OF, {**values, **period_of_runs(c, runs)._asdict()}))


def changed_paths(c: Connection, branch_id: int, last_good: int, first_bad: int) -> list[list[str] | None]:
    """Of every suspect commit, the paths it changed (None: not known)."""
    values = {"branch": branch_id, "last_good": last_good, "first_bad": first_bad}
    return list(c.execute(_CHANGED_PATHS, values).scalars())
