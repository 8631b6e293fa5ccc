"""Reads of a series at one commit: what was judged there, what the run measured, and its phases."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from backend.store.base.commits import UNREAD
from backend.store.base.lookup import CommitRow
from backend.store.base.spans import Period, Spans, period_of_commits
from backend.store.ingest.samples import COLUMNS, by_process


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Measurements of one run behind a point: process values, and the samples of each process."""

    run_id: str
    worker: str | None
    started_at: datetime | None
    processes: tuple[float, ...]
    samples: tuple[tuple[float, ...], ...]


_RESULT_NAMED = text(
    """SELECT r.id, x.status, coalesce(x.error, r.error)
       FROM run r JOIN result x ON x.run_id = r.id AND x.benchmark = :benchmark AND x.variant_key = :variant
         AND x.preset = :preset
       WHERE r.project_id = :project AND r.commit_id = :commit AND r.testbed_id = :testbed AND r.suite = :suite
       ORDER BY r.requested_at DESC LIMIT 1"""
)
_JUDGEMENT = """
SELECT j.*, c.sha AS commit, c.message, c.author_name, c.committed_at, r.suite, w.name AS worker, r.error
FROM judgement j JOIN commit c ON c.id = j.commit_id JOIN run r ON r.id = j.run_id
LEFT JOIN worker w ON w.id = r.worker_id
WHERE j.series_id = :series AND j.superseded_at IS NULL AND j.measured_at >= :since AND j.measured_at < :until AND """
_JUDGEMENT_DEFAULT = text(_JUDGEMENT + "j.branch_id IS NULL AND j.position = :position")
_JUDGEMENT_BRANCH = text(
    f"""{_JUDGEMENT} j.branch_id IS NOT NULL AND r.commit_id = :commit
    ORDER BY (SELECT b.deleted_at IS NULL AND right(b.name, length(:unread)) <> :unread
              FROM branch b WHERE b.id = j.branch_id) DESC, j.measured_at DESC LIMIT 1"""
)
_SAMPLES = text(
    f"""SELECT m.run_id, w.name, r.started_at, {COLUMNS}
       FROM run r
       JOIN measurement m ON m.run_id = r.id AND m.series_id = :series
         AND m.measured_at = coalesce(r.started_at, r.received_at)
         AND m.measured_at >= :since AND m.measured_at < :until
       LEFT JOIN worker w ON w.id = r.worker_id
       WHERE r.commit_id = :commit ORDER BY r.started_at"""
)
_AFTER = text(
    """SELECT position FROM judgement
       WHERE series_id = :series AND superseded_at IS NULL AND branch_id IS NULL AND position BETWEEN :first AND :last
         AND measured_at >= :since AND measured_at < :until
       ORDER BY position LIMIT :limit"""
)
_RESULT = text(
    """SELECT r.id, x.status, x.error, r.error
       FROM series s JOIN run r ON r.commit_id = :commit AND r.suite = s.suite AND r.testbed_id = s.testbed_id
         AND r.session_id IS NULL
       LEFT JOIN result x ON x.run_id = r.id AND x.benchmark = s.benchmark AND x.variant_key = s.variant_key
         AND x.preset = s.preset
       WHERE s.id = :series ORDER BY r.requested_at DESC LIMIT 1"""
)
_PHASES_AT = text(
    """SELECT s.metric, s.unit, j.value, j.baseline
       FROM series s JOIN series lead ON lead.id = :series
       JOIN judgement j ON j.series_id = s.id AND j.position = :position AND j.branch_id IS NULL
         AND j.superseded_at IS NULL AND j.baseline IS NOT NULL
       WHERE s.role = 'phase' AND s.project_id = lead.project_id AND s.testbed_id = lead.testbed_id
         AND s.suite = lead.suite AND s.benchmark = lead.benchmark AND s.variant_key = lead.variant_key
         AND s.preset = lead.preset AND s.suite_version = lead.suite_version
       ORDER BY s.id"""
)


def judgement_of(connection: Connection, series_id: int, commit: CommitRow) -> Any | None:
    """The standing judgement of a series at a commit (a row with the columns of `judgement`), and who measured it.

    A commit that is not on the default branch is looked up on the others, rather on one that still exists.
    """
    if commit.default_position is None:
        period = period_of_commits(connection, [commit.id])
        parameters = {"series": series_id, "commit": commit.id, "unread": UNREAD, **period._asdict()}
        return connection.execute(_JUDGEMENT_BRANCH, parameters).one_or_none()
    position = commit.default_position
    period = Spans.of_series(connection, series_id).between(position, position)
    parameters = {"series": series_id, "position": position, **period._asdict()}
    return connection.execute(_JUDGEMENT_DEFAULT, parameters).one_or_none()


def samples_of(connection: Connection, series_id: int, commit_id: int) -> list[Sampled]:
    """Measurements of a series by each run of a commit."""
    period = period_of_commits(connection, [commit_id])
    rows = connection.execute(_SAMPLES, {"series": series_id, "commit": commit_id, **period._asdict()})
    return [
        Sampled(
            run_id=run_id,
            worker=worker,
            started_at=started_at,
            processes=tuple(columns[0] or ()),
            samples=tuple(map(tuple, by_process(*columns))),
        )
        for run_id, worker, started_at, *columns in rows.all()
    ]


def positions_after(connection: Connection, series_id: int, position: int, limit: int) -> list[int]:
    """Positions of the points that follow a point, nearest first."""

    def read(first: int, last: int, period: Period) -> list[int]:
        values = {"series": series_id, "first": first, "last": last, "limit": limit, **period._asdict()}
        return list(connection.scalars(_AFTER, values))

    return Spans.of_series(connection, series_id).nearest_after(position + 1, limit, read)


def result_of(connection: Connection, series_id: int, commit_id: int) -> tuple[str, str | None, str | None] | None:
    """(run, status, error) of what the newest run of a commit says of a series' variant."""
    row = connection.execute(_RESULT, {"series": series_id, "commit": commit_id}).one_or_none()
    return None if row is None else (row[0], row[1], row[2] or row[3])


def result_named(
    connection: Connection, project_id: int, testbed_id: int, commit_id: int, names: Sequence[str]
) -> tuple[str, str, str | None] | None:
    """(run, status, error) of the newest result of a variant, by suite, benchmark, variant and preset."""
    suite, benchmark, variant_key, preset = names
    values = {
        "project": project_id,
        "testbed": testbed_id,
        "commit": commit_id,
        "suite": suite,
        "benchmark": benchmark,
        "variant": variant_key,
        "preset": preset,
    }
    row = connection.execute(_RESULT_NAMED, values).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


def phases_at(connection: Connection, series_id: int, position: int) -> list[tuple[str, str, float, float]]:
    """(metric, unit, value, baseline) of the phases of a series' variant at a position."""
    rows = connection.execute(_PHASES_AT, {"series": series_id, "position": position})
    return [(row[0], row[1], row[2], row[3]) for row in rows.all()]
