"""Reads of one series over time, and the list of series. Points come packed, as the board's do: see `POINT`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from backend.store.base import wire
from backend.store.base.lookup import CommitRow
from backend.store.base.newest import NewestPoint, newest_points
from backend.store.base.spans import REACHES, Period, Spans, period_of_commits
from backend.store.board.board import NUMBER_OF_VERDICT, ONSET
from backend.store.ingest.samples import COLUMNS, by_process


class SeriesInfo(NamedTuple):
    """A series by its names, and what the judge knows of its noise."""

    id: int
    project_id: int
    project: str
    testbed_id: int
    testbed: str
    suite: str
    suite_version: str
    benchmark: str
    variant: dict[str, Any]
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    profile: dict[str, Any] | None
    alarms_confirmed: int
    alarms_withdrawn: int
    last_measured_at: datetime | None
    state_position: int | None


class ListedSeries(NamedTuple):
    """A series in a list, with where it stands now."""

    id: int
    testbed: str
    suite: str
    suite_version: str
    benchmark: str
    variant: dict[str, Any]
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    last_measured_at: datetime | None
    value: float | None
    verdict: str | None
    red: bool | None
    change: float | None
    noise: float | None
    minimum_detectable_effect: float | None


class ChangePointRow(NamedTuple):
    kind: str
    direction: str
    state: str
    onset_position: int
    onset_sha: str | None
    last_good_position: int | None
    detected_position: int
    fixed_position: int | None
    change: float
    change_low: float | None
    change_high: float | None
    before: float | None
    after: float | None
    regression_id: int | None
    regression_state: str | None
    owner: str | None
    cause: str | None
    still_bad: bool | None


@dataclass(frozen=True, slots=True)
class PackedPoints:
    """`numbers` are records of `POINT` in order of position; the texts run alongside."""

    numbers: NDArray[np.void]
    shas: list[str]
    messages: list[str]
    authors: list[str]
    run_ids: list[str]

    def __len__(self) -> int:
        return len(self.numbers)


class RollupRow(NamedTuple):
    bucket: datetime
    runs: int
    mean: float
    low: float
    high: float
    last: float
    position: int
    verdict: str
    change: float | None


class SampleRow(NamedTuple):
    run_id: str
    processes: list[float] | None
    samples: list[list[float]]  # of each process
    worker: str | None
    started_at: datetime | None


_INFO = """
SELECT s.id, s.project_id, p.slug, s.testbed_id, t.name, s.suite, s.suite_version, s.benchmark, s.variant,
  s.variant_key, s.preset, s.metric, s.unit, s.direction, s.role, s.exact, s.profile, s.alarms_confirmed,
  s.alarms_withdrawn, s.last_measured_at, s.state_position
FROM series s JOIN project p ON p.id = s.project_id JOIN testbed t ON t.id = s.testbed_id WHERE s.id = %(series)s
"""
_SIBLINGS = text(
    """SELECT o.id, o.metric, o.unit, o.role FROM series s JOIN series o ON o.project_id = s.project_id
         AND o.testbed_id = s.testbed_id AND o.suite = s.suite AND o.benchmark = s.benchmark
         AND o.variant_key = s.variant_key AND o.preset = s.preset AND o.suite_version = s.suite_version
       WHERE s.id = :series ORDER BY array_position(ARRAY['gate', 'watch', 'derived', 'phase'], o.role), o.metric"""
)
_LIST = text(
    """SELECT s.id, t.name, s.suite, s.suite_version, s.benchmark, s.variant, s.variant_key, s.preset, s.metric, s.unit,
         s.direction, s.role, s.last_measured_at, CAST(s.profile ->> 'noise' AS float8),
         CAST(s.profile ->> 'minimum_detectable_effect' AS float8), s.state_position
       FROM series s JOIN testbed t ON t.id = s.testbed_id
       WHERE s.project_id = :project AND s.id > :after
         AND (CAST(:testbed AS integer) IS NULL OR s.testbed_id = :testbed)
         AND (CAST(:suite AS text) IS NULL OR s.suite = :suite)
         AND (CAST(:benchmark AS text) IS NULL OR s.benchmark = :benchmark)
         AND (CAST(:metric AS text) IS NULL OR s.metric = :metric)
         AND (CAST(:role AS text) IS NULL OR s.role = :role)
         AND (s.suite || ' ' || s.benchmark || ' ' || s.variant_key || ' ' || s.metric) ILIKE ALL (:patterns)
       ORDER BY s.id LIMIT :limit"""
)
FLOATS = (
    "value",
    "smoothed",
    "smoothed_low",
    "smoothed_high",
    "baseline",
    "band_low",
    "band_high",
    "anchor",
    "change",
    "change_low",
    "change_high",
)
_RESULT_NAMED = text(
    """SELECT r.id, x.status, coalesce(x.error, r.error)
       FROM run r JOIN result x ON x.run_id = r.id AND x.benchmark = :benchmark AND x.variant_key = :variant
         AND x.preset = :preset
       WHERE r.project_id = :project AND r.commit_id = :commit AND r.testbed_id = :testbed AND r.suite = :suite
       ORDER BY r.requested_at DESC LIMIT 1"""
)
# One record a point; what is null is not a number, or 0 for an id.
POINT = np.dtype(
    [
        ("position", ">i4"),
        ("verdict_and_onset", ">i4"),
        ("regression", ">i4"),
        ("environment", ">i4"),
        ("committed_at", ">i8"),  # microseconds since 1970
        ("measured_at", ">i8"),
        *((name, ">f8") for name in FLOATS),
    ]
)
MICROSECONDS_UNTIL_2000 = 946_684_800_000_000  # from 1970 on: PostgreSQL sends moments as microseconds since 2000
_RECORD = " || ".join(
    [
        "int4send(j.position)",
        f"int4send({NUMBER_OF_VERDICT} | CASE WHEN onset THEN {ONSET} ELSE 0 END)",
        "int4send(coalesce(j.regression_id, 0))",
        "int4send(coalesce(r.environment_id, 0))",
        "timestamptz_send(coalesce(c.committed_at, c.recorded_at))",
        "timestamptz_send(j.measured_at)",
        *(f"float8send(coalesce(j.{name}, 'NaN'))" for name in FLOATS),
    ]
)
# `OFFSET 0` keeps the planner from reading all commits and runs to join them with five hundred points.
_POINTS = f"""
SELECT string_agg({_RECORD}, ''::bytea ORDER BY j.position), string_agg(c.sha, E'\\n' ORDER BY j.position),
       string_agg(left(split_part(c.message, E'\\n', 1), 120), E'\\n' ORDER BY j.position),
       string_agg(translate(c.author_name, E'\\n', ' '), E'\\n' ORDER BY j.position),
       string_agg(j.run_id, E'\\n' ORDER BY j.position)
FROM (SELECT * FROM judgement
      WHERE series_id = %(series)s AND superseded_at IS NULL AND branch_id IS NULL
        AND position BETWEEN %(first)s AND %(last)s AND measured_at >= %(since)s AND measured_at < %(until)s
      ORDER BY position DESC LIMIT %(limit)s) AS j
CROSS JOIN LATERAL (SELECT * FROM commit WHERE id = j.commit_id OFFSET 0) AS c
CROSS JOIN LATERAL (SELECT environment_id FROM run WHERE id = j.run_id OFFSET 0) AS r
"""
_AROUND = text(
    """SELECT u.id, u.onset, array_agg(j.position ORDER BY j.position), array_agg(j.value ORDER BY j.position)
       FROM unnest(CAST(:series AS integer[]), CAST(:onsets AS integer[])) AS u (id, onset)
       CROSS JOIN LATERAL (
         (SELECT position, value FROM judgement
          WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL
            AND position >= u.onset - :reach AND position < u.onset AND measured_at >= :since AND measured_at < :until
          ORDER BY position DESC LIMIT :limit)
         UNION ALL
         (SELECT position, value FROM judgement
          WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL
            AND position >= u.onset AND position < u.onset + :reach AND measured_at >= :since AND measured_at < :until
          ORDER BY position LIMIT :limit)) AS j
       GROUP BY u.id, u.onset"""
)
_CHANGE_POINTS = """
SELECT p.kind, p.direction, p.state, p.onset_position, c.sha, p.last_good_position, p.detected_position,
  p.fixed_position, p.change, p.change_low, p.change_high, p.before, p.after, p.regression_id, g.state, g.owner,
  g.cause, g.still_bad
FROM change_point p
LEFT JOIN regression g ON g.id = p.regression_id LEFT JOIN commit c ON c.id = p.onset_commit_id
WHERE p.series_id = %(series)s AND p.onset_position <= %(last)s
  AND (p.onset_position >= %(first)s OR (p.state = 'confirmed' AND p.direction = 'regression')
       OR p.fixed_position >= %(first)s)
ORDER BY p.onset_position
"""
_ROLLUPS = text(
    """SELECT bucket, runs, value_sum / runs, value_min, value_max, last_value, last_position, worst_verdict,
         worst_change
       FROM rollup WHERE series_id = :series AND granularity = :granularity
         AND (CAST(:since AS timestamptz) IS NULL
              OR bucket >= date_trunc(:granularity, CAST(:since AS timestamptz), 'UTC'))
         AND (CAST(:until AS timestamptz) IS NULL OR bucket <= :until)
       ORDER BY bucket DESC LIMIT :limit"""
)
_JUDGEMENT = """
SELECT j.*, c.sha AS commit, c.message, c.author_name, c.committed_at, r.suite, w.name AS worker, r.error
FROM judgement j JOIN commit c ON c.id = j.commit_id JOIN run r ON r.id = j.run_id
LEFT JOIN worker w ON w.id = r.worker_id
WHERE j.series_id = :series AND j.superseded_at IS NULL AND j.measured_at >= :since AND j.measured_at < :until AND """
_JUDGEMENT_DEFAULT = text(_JUDGEMENT + "j.branch_id IS NULL AND j.position = :position")
_JUDGEMENT_BRANCH = text(_JUDGEMENT + "j.branch_id = ANY(:branches) AND j.commit_id = :commit LIMIT 1")
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
_NAMES = text(
    """SELECT b.position, c.sha FROM branch_commit b JOIN commit c ON c.id = b.commit_id
       WHERE b.branch_id = :branch AND b.position = ANY(:positions)"""
)


def series_info(connection: Connection, series_id: int) -> SeriesInfo | None:
    (rows,) = wire.send(connection, (_INFO, {"series": series_id}))
    return SeriesInfo._make(rows[0]) if rows else None


def siblings(connection: Connection, series_id: int) -> list[tuple[int, str, str, str]]:
    """(id, metric, unit, role) of every metric of the same variant, gates first."""
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(_SIBLINGS, {"series": series_id}).all()]


def list_series(
    connection: Connection,
    project_id: int,
    *,
    testbed_id: int | None,
    suite: str | None,
    benchmark: str | None,
    metric: str | None,
    role: str | None,
    words: Sequence[str],
    after: int,
    limit: int,
) -> list[ListedSeries]:
    """Series in order of id from `after` on, whose names contain every word."""
    parameters = {
        "project": project_id,
        "testbed": testbed_id,
        "suite": suite,
        "benchmark": benchmark,
        "metric": metric,
        "role": role,
        "patterns": [f"%{escaped(word)}%" for word in words] or ["%"],
        "after": after,
        "limit": limit,
    }
    rows = connection.execute(_LIST, parameters).all()
    newest = newest_points(connection, Spans.of_project(connection, project_id), {row[0]: row[15] for row in rows})
    return [_listed(row, newest.get(row[0])) for row in rows]


def _listed(row: Any, newest: NewestPoint | None) -> ListedSeries:
    stands = (None,) * 4 if newest is None else (newest.value, newest.verdict, newest.red, newest.change)
    return ListedSeries._make((*row[:13], *stands, *row[13:15]))


def escaped(word: str) -> str:
    """A word as LIKE takes it literally."""
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def packed_points(connection: Connection, series_id: int, first: int, last: int, limit: int) -> PackedPoints:
    """The newest `limit` points of a series on the default branch between two positions."""

    def read(first: int, last: int, period: Period) -> PackedPoints:
        values = {"series": series_id, "first": first, "last": last, "limit": limit, **period._asdict()}
        ((row,),) = wire.send(connection, (_POINTS, values))
        return _unpacked(row)

    return Spans.of_series(connection, series_id).nearest_before(last, limit, read, first=first)


def _unpacked(row: Any) -> PackedPoints:
    numbers, shas, messages, authors, run_ids = row
    if numbers is None:
        return PackedPoints(np.empty(0, dtype=POINT), [], [], [], [])
    records = np.frombuffer(numbers, dtype=POINT).copy()
    for moment in ("committed_at", "measured_at"):
        records[moment] += MICROSECONDS_UNTIL_2000
    return PackedPoints(
        records,
        *(texts.split("\n") for texts in (shas, messages, authors, run_ids)),
    )


def points_around(
    connection: Connection, project_id: int, onsets: Sequence[tuple[int, int]], limit: int
) -> dict[tuple[int, int], tuple[list[int], list[float]]]:
    """Positions and values of up to `limit` points on either side of each (series, position), oldest first."""
    reach = limit * REACHES[0]
    places = [onset for _, onset in onsets]
    period = Spans.of_project(connection, project_id).between(min(places) - reach, max(places) + reach)
    values = {"series": [series for series, _ in onsets], "onsets": places, "reach": reach, "limit": limit}
    rows = connection.execute(_AROUND, {**values, **period._asdict()})
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def change_points(connection: Connection, series_id: int, first: int, last: int) -> list[ChangePointRow]:
    """Change points that reach into a stretch of positions: begun in it, or still open or fixed in it."""
    parameters = {"series": series_id, "first": first, "last": last}
    (rows,) = wire.send(connection, (_CHANGE_POINTS, parameters))
    return [ChangePointRow._make(row) for row in rows]


def rollups(
    connection: Connection,
    series_id: int,
    granularity: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[RollupRow]:
    """Newest first."""
    parameters = {
        "series": series_id,
        "granularity": granularity,
        "since": since,
        "until": until,
        "limit": limit,
    }
    return [RollupRow._make(row) for row in connection.execute(_ROLLUPS, parameters).all()]


def judgement_of(connection: Connection, series_id: int, commit: CommitRow, branches: Sequence[int]) -> Any | None:
    """The standing judgement of a series at a commit (a row with the columns of `judgement`), and who measured it.

    A commit that is not on the default branch is looked up on `branches`.
    """
    if commit.default_position is None:
        period = period_of_commits(connection, [commit.id])
        parameters = {"series": series_id, "commit": commit.id, "branches": list(branches), **period._asdict()}
        return connection.execute(_JUDGEMENT_BRANCH, parameters).one_or_none()
    position = commit.default_position
    period = Spans.of_series(connection, series_id).between(position, position)
    parameters = {"series": series_id, "position": position, **period._asdict()}
    return connection.execute(_JUDGEMENT_DEFAULT, parameters).one_or_none()


def samples_of(connection: Connection, series_id: int, commit_id: int) -> list[SampleRow]:
    """Measurements of a series by each run of a commit."""
    period = period_of_commits(connection, [commit_id])
    rows = connection.execute(_SAMPLES, {"series": series_id, "commit": commit_id, **period._asdict()})
    return [
        SampleRow(run_id, columns[0], by_process(*columns), worker, started_at)
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


def commit_names(connection: Connection, branch_id: int, positions: Sequence[int]) -> dict[int, str]:
    """Shas of positions of a branch."""
    rows = connection.execute(_NAMES, {"branch": branch_id, "positions": list(positions)})
    return {row[0]: row[1] for row in rows.all()}
