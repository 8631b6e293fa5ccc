"""Reads of the Overview: series with their facets, their points over time, onsets, environments, results that failed.

Points come packed: twelve thousand of them are one value for the driver and one array for numpy.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from backend.store.base.newest import newest_points
from backend.store.base.spans import Spans
from backend.store.reports.history import MICROSECONDS_UNTIL_2000


class TrendSeries(NamedTuple):
    """A judged series by its names; `noise` is the spread of one run as a fraction, None while it is not known."""

    id: int
    suite: str
    benchmark: str
    variant: dict[str, Any]
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    noise: float | None
    state_position: int | None
    """Up to where it was judged."""


class OnsetRow(NamedTuple):
    """Where a change of a series began: when its commit was made, and when it was measured."""

    series_id: int
    suite: str
    position: int
    sha: str
    committed_at: datetime
    measured_at: datetime
    direction: str
    state: str
    change: float
    regression_id: int | None
    regression_state: str | None
    owner: str | None
    cause: str | None


class EnvironmentRow(NamedTuple):
    """The first run of a worker in an environment within the range; worker None: results that no worker delivered."""

    worker: int | None
    fingerprint: dict[str, Any]
    started_at: datetime
    committed_at: datetime


class OutcomeRow(NamedTuple):
    """How the results of a suite's newest run within a stretch of time ended."""

    at: datetime
    suite: str
    applicable: int
    passed: int


# `measured_at` is the start of a bucket, or the time of the commit where every commit is a point of its own.
POINT = np.dtype([("series", ">i4"), ("position", ">i4"), ("at", ">i8"), ("value", ">f8")])

LOOKBACK = 500
"""Commits: a suite that was measured at none of so many has no value to begin with."""
WATCHED_SPEED = "busbw_gb_per_s"
"""A speed that is watched, and no gate, where the host moves the data: collectives without GPUs."""
_SERIES = text(
    """SELECT id, suite, benchmark, variant, variant_key, preset, metric, unit, direction, role, exact,
         CAST(profile ->> 'noise' AS float8), state_position
       FROM series
       WHERE project_id = :project AND testbed_id = :testbed AND (role = 'gate' OR metric IN ('mfu', :watched))
       ORDER BY id"""
)
_BUCKETS = text(
    """SELECT string_agg(int4send(series_id) || int4send(last_position) || timestamptz_send(bucket)
                         || float8send(last_value), ''::bytea)
       FROM rollup
       WHERE series_id = ANY(:series) AND granularity = :granularity
         AND bucket >= date_trunc(:granularity, CAST(:since AS timestamptz), 'UTC') AND bucket <= :until"""
)
_COMMITS = text(
    """SELECT string_agg(int4send(j.series_id) || int4send(j.position)
                         || timestamptz_send(coalesce(c.committed_at, c.recorded_at)) || float8send(j.value), ''::bytea)
       FROM (SELECT series_id, position, value, commit_id FROM judgement
             WHERE series_id = ANY(:series) AND position BETWEEN :first AND :last AND superseded_at IS NULL
               AND branch_id IS NULL AND measured_at >= :since AND measured_at < :until OFFSET 0) AS j
       JOIN (SELECT k.id, k.committed_at, k.recorded_at
             FROM project p JOIN branch m ON m.project_id = p.id AND m.name = p.default_branch
             JOIN branch_commit b ON b.branch_id = m.id AND b.position BETWEEN :first AND :last
             JOIN commit k ON k.id = b.commit_id
             WHERE p.id = :project OFFSET 0) AS c ON c.id = j.commit_id"""
)
_COMMITS_BEFORE = text(
    """SELECT string_agg(int4send(u.id) || int4send(j.position) || timestamptz_send(j.measured_at)
                         || float8send(j.value), ''::bytea)
       FROM unnest(CAST(:series AS integer[])) AS u (id)
       CROSS JOIN LATERAL (
         SELECT position, value, measured_at FROM judgement
         WHERE series_id = u.id AND position BETWEEN :first AND :last AND superseded_at IS NULL AND branch_id IS NULL
           AND measured_at >= :since AND measured_at < :until
         ORDER BY position DESC LIMIT 1) AS j"""
)
_BUCKETS_BEFORE = text(
    """SELECT string_agg(int4send(u.id) || int4send(r.last_position) || timestamptz_send(r.bucket)
                         || float8send(r.last_value), ''::bytea)
       FROM unnest(CAST(:series AS integer[])) AS u (id)
       CROSS JOIN LATERAL (
         SELECT last_position, last_value, bucket FROM rollup
         WHERE series_id = u.id AND granularity = :granularity
           AND bucket < date_trunc(:granularity, CAST(:since AS timestamptz), 'UTC')
         ORDER BY bucket DESC LIMIT 1) AS r"""
)
_ONSETS = text(
    """SELECT p.series_id, s.suite, p.onset_position, c.sha, coalesce(c.committed_at, c.recorded_at),
         coalesce(j.measured_at, c.committed_at, c.recorded_at), p.direction, p.state, p.change, p.regression_id,
         g.state, g.owner, g.cause
       FROM change_point p JOIN series s ON s.id = p.series_id JOIN commit c ON c.id = p.onset_commit_id
       LEFT JOIN regression g ON g.id = p.regression_id
       LEFT JOIN LATERAL (
         SELECT measured_at FROM judgement WHERE series_id = p.series_id AND position = p.onset_position
           AND superseded_at IS NULL AND branch_id IS NULL AND measured_at >= :since AND measured_at < :until
         LIMIT 1) AS j ON true
       WHERE p.series_id = ANY(:series) AND p.state <> 'withdrawn' AND p.onset_position BETWEEN :first AND :last
       ORDER BY p.onset_position"""
)
_ENVIRONMENTS = text(
    """SELECT n.worker_id, e.fingerprint, n.started_at, coalesce(c.committed_at, c.recorded_at)
       FROM (SELECT DISTINCT ON (worker_id, environment_id)
               worker_id, environment_id, coalesce(started_at, received_at) AS started_at, commit_id
             FROM run
             WHERE project_id = :project AND testbed_id = :testbed AND received_at >= :since
               AND environment_id IS NOT NULL
             ORDER BY worker_id, environment_id, run.started_at) AS n
       JOIN environment e ON e.id = n.environment_id JOIN commit c ON c.id = n.commit_id
       ORDER BY n.started_at LIMIT 200"""
)
_OUTCOMES = text(
    """SELECT n.at, n.suite, coalesce(n.applicable, x.applicable), coalesce(n.passed, x.passed)
       FROM (SELECT DISTINCT ON (r.suite, date_trunc(:step, r.received_at, 'UTC'))
               date_trunc(:step, r.received_at, 'UTC') AS at, r.suite, r.id, r.applicable, r.passed
             FROM run r
             WHERE r.project_id = :project AND r.testbed_id = :testbed AND r.received_at >= :since
               AND r.received_at <= :until AND r.state = 'done' AND r.session_id IS NULL
             ORDER BY r.suite, date_trunc(:step, r.received_at, 'UTC'), r.received_at DESC) AS n
       CROSS JOIN LATERAL (  -- only of runs from before this was noted with them
         SELECT count(*) FILTER (WHERE status <> 'not_applicable') AS applicable,
           count(*) FILTER (WHERE status = 'ok') AS passed
         FROM result WHERE run_id = n.id AND n.passed IS NULL) AS x
       ORDER BY n.at"""
)
_FACETS = text(
    """SELECT suite, variant ->> 'dtype', variant ->> 'mode', coalesce(variant ->> 'backend', variant ->> 'impl'),
         metric, benchmark || ' ' || variant_key || ' ' || preset
       FROM series WHERE project_id = :project AND testbed_id = :testbed AND role = 'gate'"""
)
_NEWEST = text(
    """SELECT c.sha, left(split_part(c.message, E'\\n', 1), 80)
       FROM branch_commit b JOIN commit c ON c.id = b.commit_id
       WHERE b.branch_id = :branch ORDER BY b.position DESC LIMIT :limit"""
)
_NEWEST_TAGS = text(
    """SELECT t.name, left(split_part(k.message, E'\\n', 1), 80)
       FROM tag t JOIN commit k ON k.id = t.commit_id
       WHERE t.project_id = :project ORDER BY coalesce(k.committed_at, k.recorded_at) DESC, t.name DESC LIMIT :limit"""
)
_TIMES = text(
    """SELECT b.position, coalesce(c.committed_at, c.recorded_at), c.sha
       FROM branch_commit b JOIN commit c ON c.id = b.commit_id
       WHERE b.branch_id = :branch AND b.position = ANY(:positions)"""
)


def judged_series(c: Connection, project_id: int, testbed_id: int) -> list[TrendSeries]:
    """The gates of a project on a testbed, and the shares of a ceiling and speeds that are shown beside them."""
    values = {"project": project_id, "testbed": testbed_id, "watched": WATCHED_SPEED}
    return [TrendSeries._make(row) for row in c.execute(_SERIES, values).all()]


def bucket_points(
    c: Connection, series: Sequence[int], granularity: str, since: datetime, until: datetime
) -> NDArray[np.void]:
    """The last value of each hour, day or week, as records of `POINT`, in any order."""
    parameters = {"series": list(series), "granularity": granularity, "since": since, "until": until}
    return _unpacked(c.scalar(_BUCKETS, parameters))


def commit_points(c: Connection, project_id: int, series: Sequence[int], first: int, last: int) -> NDArray[np.void]:
    """The value at each commit between two positions of the default branch, as records of `POINT`, in any order."""
    period = Spans.of_project(c, project_id).between(first, last)
    values = {"project": project_id, "series": list(series), "first": first, "last": last, **period._asdict()}
    return _unpacked(c.scalar(_COMMITS, values))


def commit_points_before(c: Connection, project_id: int, series: Sequence[int], position: int) -> NDArray[np.void]:
    """The last value of each series at the `LOOKBACK` commits before a position, as records of `POINT`."""
    first, last = max(0, position - LOOKBACK), position - 1
    period = Spans.of_project(c, project_id).between(first, last)
    values = {"series": list(series), "first": first, "last": last, **period._asdict()}
    return _unpacked(c.scalar(_COMMITS_BEFORE, values))


def bucket_points_before(c: Connection, series: Sequence[int], granularity: str, moment: datetime) -> NDArray[np.void]:
    """The last value of each series before the hour, day or week of a moment, as records of `POINT`."""
    values = {"series": list(series), "granularity": granularity, "since": moment}
    return _unpacked(c.scalar(_BUCKETS_BEFORE, values))


def _unpacked(packed: bytes | None) -> NDArray[np.void]:
    found = np.frombuffer(packed or b"", dtype=POINT).copy()
    found["at"] += MICROSECONDS_UNTIL_2000
    return found


def onsets(c: Connection, project_id: int, series: Sequence[int], first: int, last: int) -> list[OnsetRow]:
    """Where changes of these series began between two positions, oldest first."""
    period = Spans.of_project(c, project_id).between(first, last)
    parameters = {"series": list(series), "first": first, "last": last, **period._asdict()}
    return [OnsetRow._make(row) for row in c.execute(_ONSETS, parameters).all()]


def unsteady(c: Connection, project_id: int, series: Mapping[int, int | None]) -> int:
    """How many of these series are too unsteady to be judged, by their newest point on the default branch; `series`
    says up to which position each was judged."""
    newest = newest_points(c, Spans.of_project(c, project_id), series)
    return sum(point.verdict == "unsteady" for point in newest.values())


def environments(c: Connection, project_id: int, testbed_id: int, since: datetime) -> list[EnvironmentRow]:
    """The environments that each worker had since a moment, in the order in which they were first seen."""
    parameters = {"project": project_id, "testbed": testbed_id, "since": since}
    return [EnvironmentRow._make(row) for row in c.execute(_ENVIRONMENTS, parameters).all()]


def outcomes(
    c: Connection, project_id: int, testbed_id: int, step: str, since: datetime, until: datetime
) -> list[OutcomeRow]:
    """How each suite's newest run of each `step` (hour, day, week) ended, oldest first."""
    parameters = {"project": project_id, "testbed": testbed_id, "step": step, "since": since, "until": until}
    return [OutcomeRow._make(row) for row in c.execute(_OUTCOMES, parameters).all()]


def facet_values(c: Connection, project_id: int, testbed_id: int) -> list[tuple[Any, ...]]:
    """(suite, dtype, mode, backend, metric, variant) of every gate: what a facet bar offers."""
    return [tuple(row) for row in c.execute(_FACETS, {"project": project_id, "testbed": testbed_id}).all()]


def commit_times(c: Connection, branch_id: int, positions: Sequence[int]) -> dict[int, tuple[datetime, str]]:
    """When the commits at these positions were made, and their shas."""
    rows = c.execute(_TIMES, {"branch": branch_id, "positions": list(positions)})
    return {row[0]: (row[1], row[2]) for row in rows.all()}


def newest(c: Connection, branch_id: int, limit: int) -> list[tuple[str, str]]:
    """(sha, first line of the message) of the newest commits of a branch."""
    return [(row[0], row[1]) for row in c.execute(_NEWEST, {"branch": branch_id, "limit": limit}).all()]


def newest_tags(c: Connection, project_id: int, limit: int) -> list[tuple[str, str]]:
    """(name, first line of the message) of the tags that point at the newest commits."""
    return [(row[0], row[1]) for row in c.execute(_NEWEST_TAGS, {"project": project_id, "limit": limit}).all()]
