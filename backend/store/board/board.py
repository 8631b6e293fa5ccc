"""The board's reads. What a page needs in bulk comes packed: one bytes value of fixed-size records, decoded by numpy.

200 series x 50 commits are 10,000 cells; fetched as rows they cost four times what the index scan behind them costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from backend.store.base.lookup import COMMIT_COLUMNS, CommitRow

SEEN_PARTS, MOST_SEEN = 10_000, 1_000_000_000  # the change that an unsteady series sees, in such parts
# What a packed record's verdict number means; the SQL below is written from it.
VERDICTS = ("unchanged", "insufficient", "improvement", "suspect", "regression", "unsteady")
ONSET = 8  # added to the number when the point is itself the first bad one


class BoardSeriesRow(NamedTuple):
    """A series by its names. The variant is JSON text, so that rows can be hashed: most pages have the same ones."""

    id: int
    suite: str
    benchmark: str
    variant: str
    variant_key: str
    preset: str
    metric: str
    unit: str


class BoardRunRow(NamedTuple):
    id: str
    commit_id: int
    suite: str
    state: str
    status: str | None
    error: str | None
    progress: dict[str, Any] | None
    started_at: datetime | None
    received_at: datetime | None
    environment_id: int | None
    worker: str | None
    has_broken_results: bool


class BoardResultRow(NamedTuple):
    run_id: str
    suite: str
    benchmark: str
    variant: str
    variant_key: str
    preset: str
    status: str
    error: str | None


class DetailRow(NamedTuple):
    series_id: int
    position: int
    low: float | None
    high: float | None
    baseline: float | None


@dataclass(frozen=True, slots=True)
class CellRegression:
    id: int
    state: str
    owner: str | None
    cause: str | None


class AlarmRow(NamedTuple):
    """An open or past regression whose cause is the machine or its environment."""

    id: int
    position: int
    cause: str
    state: str
    change: float | None


_OLDEST_SINCE = text(
    """SELECT b.position FROM commit c JOIN branch_commit b ON b.commit_id = c.id AND b.branch_id = :branch
       WHERE c.project_id = :project AND coalesce(c.committed_at, c.recorded_at) >= :moment
       ORDER BY coalesce(c.committed_at, c.recorded_at) LIMIT 1"""
)
_NEWEST_UNTIL = text(
    """SELECT b.position FROM commit c JOIN branch_commit b ON b.commit_id = c.id AND b.branch_id = :branch
       WHERE c.project_id = :project AND coalesce(c.committed_at, c.recorded_at) <= :moment
       ORDER BY coalesce(c.committed_at, c.recorded_at) DESC LIMIT 1"""
)
_HEAD = text("SELECT max(position) FROM branch_commit WHERE branch_id = :branch")

_WORDS = """ AND (c.message ILIKE :words OR c.author_name ILIKE :words OR c.sha LIKE :sha
       OR EXISTS (SELECT FROM unnest(c.changed_paths) AS path WHERE path ILIKE :words))"""
_POSITIONS = " AND b.position = ANY(:positions)"
_ON_DEFAULT = "LEFT JOIN branch_commit d ON d.commit_id = b.commit_id AND d.branch_id = :default_branch"
# A statement for each combination of filters: most pages have none, and planning the others costs more than reading.
_WINDOWS = {
    (other_branch, words, positions): text(
        f"""SELECT {COMMIT_COLUMNS}, b.position, {"d" if other_branch else "b"}.position
            FROM branch_commit b JOIN commit c ON c.id = b.commit_id {_ON_DEFAULT if other_branch else ""}
            WHERE b.branch_id = :branch AND b.position BETWEEN :first AND :last
            {_WORDS if words else ""}{_POSITIONS if positions else ""} ORDER BY b.position DESC LIMIT :limit"""
    )
    for other_branch in (False, True)
    for words in (False, True)
    for positions in (False, True)
}
# The newest of each series by an index, and of those the newest: never all that ever moved.
_MOVED = text(
    """SELECT DISTINCT m.position FROM unnest(CAST(:series AS integer[])) AS s (id) CROSS JOIN LATERAL (
         (SELECT DISTINCT onset_position FROM change_point
          WHERE series_id = s.id AND onset_position BETWEEN :first AND :last AND state <> 'withdrawn'
          ORDER BY onset_position DESC LIMIT :limit)
         UNION ALL
         (SELECT DISTINCT fixed_position FROM change_point
          WHERE series_id = s.id AND fixed_position BETWEEN :first AND :last AND state = 'fixed'
          ORDER BY fixed_position DESC LIMIT :limit)) AS m (position)
       ORDER BY m.position DESC LIMIT :limit"""
)
_STANDS_BELOW = text(
    """SELECT EXISTS (SELECT FROM regression g JOIN series s ON s.id = g.lead_series_id
         WHERE s.id = ANY(:series) AND g.first_bad_position BETWEEN :first AND :last
           AND g.state IN ('confirmed', 'acknowledged'))"""
)
_NEWEST_RUN = text(
    """SELECT b.position FROM branch_commit b WHERE b.branch_id = :branch AND b.position BETWEEN :first AND :last
         AND EXISTS (SELECT FROM run r
                     WHERE r.commit_id = b.commit_id AND r.testbed_id = :testbed AND r.state = 'done')
       ORDER BY b.position DESC LIMIT 1"""
)
_SERIES = text(
    """SELECT id, suite, benchmark, CAST(variant AS text), variant_key, preset, metric, unit FROM series
       WHERE project_id = :project AND testbed_id = :testbed AND role = 'gate'
         AND (CAST(:since AS timestamptz) IS NULL OR last_measured_at >= :since) ORDER BY id"""
)
_RUNS = text(
    """SELECT r.id, r.commit_id, r.suite, r.state, r.status, r.error, r.progress, r.started_at, r.received_at,
         r.environment_id, w.name, EXISTS (SELECT FROM result x WHERE x.run_id = r.id AND x.status <> 'ok')
       FROM run r LEFT JOIN worker w ON w.id = r.worker_id
       WHERE r.commit_id = ANY(:commits) AND r.testbed_id = :testbed AND r.state NOT IN ('cancelled', 'superseded')
         AND r.session_id IS NULL
       ORDER BY r.requested_at"""
)
_RESULT_COLUMNS = "x.run_id, r.suite, x.benchmark, CAST(x.variant AS text), x.variant_key, x.preset, x.status, x.error"
_RESULTS_NOT_OK = text(
    f"""SELECT {_RESULT_COLUMNS} FROM result x JOIN run r ON r.id = x.run_id
        WHERE x.run_id = ANY(:runs) AND x.status <> 'ok'"""
)
_RESULTS_OK = text(
    f"""SELECT {_RESULT_COLUMNS} FROM result x JOIN run r ON r.id = x.run_id
        WHERE x.run_id = ANY(:runs) AND x.status = 'ok'"""
)

NUMBER_OF_VERDICT = (
    "CASE verdict " + " ".join(f"WHEN '{word}' THEN {number}" for number, word in enumerate(VERDICTS)) + " END"
)
# Fixed size, so nothing is null: series, position and verdict, value, change. What an unchanged cell does not have
# comes apart, in the same order: its regression; where the verdict is `insufficient`, runs had and still needed; where
# it is `unsteady`, the change that would be seen.
PACKED = np.dtype([("series", ">i4"), ("position_and_verdict", ">i4"), ("value", ">f8"), ("change", ">f4")])
_PACK = f"""
SELECT string_agg(
    int8send((series_id::int8 << 32) | (position << 4) | {NUMBER_OF_VERDICT} | CASE WHEN onset THEN {ONSET} ELSE 0 END)
    || float8send(value) || float4send(coalesce(change, 'NaN')), ''::bytea),
  string_agg(
    int4send(CASE verdict
             WHEN 'insufficient' THEN (coalesce(have, 0)::int4 << 16) | coalesce(need, 0)::int4
             WHEN 'unsteady' THEN
               least({MOST_SEEN}, {SEEN_PARTS} * coalesce(sees, 0))::int4
             ELSE coalesce(regression_id, 0) END), ''::bytea) FILTER (WHERE verdict <> 'unchanged')
FROM judgement
WHERE series_id = ANY(:series) AND position BETWEEN :first AND :last AND superseded_at IS NULL
  AND measured_at BETWEEN :since AND :until AND """
PACKED_BY_WHERE = {
    (on_branch, scattered): text(
        _PACK
        + ("branch_id = :branch" if on_branch else "branch_id IS NULL")
        + (" AND position = ANY(:positions)" if scattered else "")
    )
    for on_branch in (False, True)
    for scattered in (False, True)
}
_DETAILS = """
SELECT j.series_id, j.position, j.change_low, j.change_high, j.baseline
FROM unnest(CAST(:series AS integer[]), CAST(:positions AS integer[])) AS wanted (series_id, position)
JOIN judgement j ON j.series_id = wanted.series_id AND j.position = wanted.position
WHERE j.superseded_at IS NULL AND j.measured_at BETWEEN :since AND :until AND """
_DETAILS_DEFAULT = text(_DETAILS + "j.branch_id IS NULL")
_DETAILS_BRANCH = text(_DETAILS + "j.branch_id = :branch")
_REGRESSIONS = text("SELECT id, state, owner, cause FROM regression WHERE id = ANY(:ids)")
_IMPROVEMENTS = text(
    """SELECT DISTINCT ON (series_id, onset_position) series_id, onset_position, change_low, change_high, before, change
       FROM change_point
       WHERE direction = 'improvement' AND state = 'confirmed' AND onset_position BETWEEN :first AND :last
         AND series_id = ANY(:series)
       ORDER BY series_id, onset_position, id DESC"""
)
_ALARMS = text(
    """SELECT id, first_bad_position, cause, state, lead_change FROM regression
       WHERE project_id = :project AND testbed_id = :testbed AND first_bad_position BETWEEN :first AND :last
         AND cause IN ('environment', 'hardware') AND state NOT IN ('withdrawn', 'invalid')"""
)
_ENVIRONMENTS = text("SELECT id, fingerprint FROM environment WHERE id = ANY(:ids)")
_ENVIRONMENTS_BEFORE = text(
    """SELECT oldest.suite, oldest.worker, earlier.environment_id
       FROM unnest(CAST(:suites AS text[]), CAST(:workers AS text[]), CAST(:started AS timestamptz[]),
                   CAST(:received AS timestamptz[])) AS oldest (suite, worker, started_at, received_at)
       JOIN worker w ON w.name = oldest.worker
       CROSS JOIN LATERAL (
         SELECT r.environment_id FROM run r
         WHERE r.project_id = :project AND r.testbed_id = :testbed AND r.received_at <= oldest.received_at
           AND r.started_at < oldest.started_at AND r.suite = oldest.suite AND r.worker_id = w.id
           AND r.environment_id IS NOT NULL
         ORDER BY r.received_at DESC, r.started_at DESC LIMIT 1) AS earlier"""
)


def position_range(
    connection: Connection, project_id: int, branch_id: int, since: datetime | None, until: datetime | None
) -> tuple[int, int]:
    """First and last position of the branch within a time range; an empty range ends before it begins."""
    head = connection.scalar(_HEAD, {"branch": branch_id})
    if head is None:
        return 0, -1
    names = {"project": project_id, "branch": branch_id}
    first = 0 if since is None else connection.scalar(_OLDEST_SINCE, {**names, "moment": since})
    last = head if until is None else connection.scalar(_NEWEST_UNTIL, {**names, "moment": until})
    return (head + 1, head) if first is None or last is None else (first, last)


def window(
    connection: Connection,
    *,
    branch_id: int,
    default_branch_id: int,
    first: int,
    last: int,
    limit: int,
    words: str = "",
    positions: Sequence[int] | None = None,
) -> list[CommitRow]:
    """Commits of a branch from `last` down to `first`; `words` looks in message, author, sha and changed paths."""
    pattern = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    parameters = {
        "branch": branch_id,
        "default_branch": default_branch_id,
        "first": first,
        "last": last,
        "limit": limit,
        "words": f"%{pattern}%",
        "sha": f"{pattern.lower()}%",
        "positions": None if positions is None else list(positions),
    }
    statement = _WINDOWS[branch_id != default_branch_id, bool(words), positions is not None]
    return [CommitRow._make(row) for row in connection.execute(statement, parameters).all()]


def moved_positions(connection: Connection, series: Sequence[int], first: int, last: int, limit: int) -> list[int]:
    """Positions at which a change began or a regression was fixed, newest first."""
    parameters = {"series": list(series), "first": first, "last": last, "limit": limit}
    return list(connection.scalars(_MOVED, parameters))


def case_began(connection: Connection, series: Sequence[int], first: int, last: int) -> bool:
    """Whether a regression that is open began between two positions."""
    return bool(connection.scalar(_STANDS_BELOW, {"series": list(series), "first": first, "last": last}))


def newest_run(connection: Connection, branch_id: int, testbed_id: int, first: int, last: int) -> int | None:
    """The newest position between two that was measured."""
    parameters = {"branch": branch_id, "testbed": testbed_id, "first": first, "last": last}
    found: int | None = connection.scalar(_NEWEST_RUN, parameters)
    return found


def gate_series(
    connection: Connection, project_id: int, testbed_id: int, since: datetime | None
) -> list[BoardSeriesRow]:
    """The gate series measured since a moment (all, without one), in order of id."""
    rows = connection.execute(_SERIES, {"project": project_id, "testbed": testbed_id, "since": since})
    return [BoardSeriesRow._make(row) for row in rows.all()]


def runs_of_commits(connection: Connection, commit_ids: Sequence[int], testbed_id: int) -> list[BoardRunRow]:
    """Runs in the order of their requests: for one suite and commit the last is the newest."""
    rows = connection.execute(_RUNS, {"commits": list(commit_ids), "testbed": testbed_id})
    return [BoardRunRow._make(row) for row in rows.all()]


def results_not_ok(connection: Connection, run_ids: Sequence[str]) -> list[BoardResultRow]:
    return [BoardResultRow._make(row) for row in connection.execute(_RESULTS_NOT_OK, {"runs": list(run_ids)}).all()]


def results_ok(connection: Connection, run_ids: Sequence[str]) -> list[BoardResultRow]:
    return [BoardResultRow._make(row) for row in connection.execute(_RESULTS_OK, {"runs": list(run_ids)}).all()]


def packed_judgements(
    connection: Connection,
    series: Sequence[int],
    first: int,
    last: int,
    since: datetime,
    until: datetime,
    branch_id: int | None = None,
    positions: Sequence[int] | None = None,
) -> tuple[NDArray[np.void], NDArray[np.int32]]:
    """The standing judgements of these series from position `first` to `last`, as records of `PACKED`, in any order;
    beside them what the verdicts other than `unchanged` have more, in the same order.

    `since` and `until` bound the start of the runs, so that only the partitions of those months are touched.
    With `positions` only those, for pages whose commits lie far apart.
    """
    parameters = {
        "series": list(series),
        "first": first,
        "last": last,
        "since": since,
        "until": until,
        "branch": branch_id,
        "positions": None if positions is None else list(positions),
    }
    statement = PACKED_BY_WHERE[branch_id is not None, positions is not None]
    packed, more = connection.execute(statement, parameters).one()
    return np.frombuffer(packed or b"", dtype=PACKED), np.frombuffer(more or b"", dtype=">i4")


def judgement_details(
    connection: Connection,
    series: Sequence[int],
    positions: Sequence[int],
    since: datetime,
    until: datetime,
    branch_id: int | None = None,
) -> list[DetailRow]:
    """Interval and baseline of single points: `series[n]` at `positions[n]`."""
    parameters = {"series": list(series), "positions": list(positions), "since": since, "until": until}
    statement = _DETAILS_DEFAULT
    if branch_id is not None:
        statement, parameters["branch"] = _DETAILS_BRANCH, branch_id
    return [DetailRow._make(row) for row in connection.execute(statement, parameters).all()]


def regressions_of_ids(connection: Connection, ids: Sequence[int]) -> dict[int, CellRegression]:
    return {row.id: CellRegression(*row) for row in connection.execute(_REGRESSIONS, {"ids": list(ids)}).all()}


def improvements(connection: Connection, series: Sequence[int], first: int, last: int) -> list[tuple[DetailRow, float]]:
    """Where series got better between two positions of the default branch, and by how much."""
    parameters = {"series": list(series), "first": first, "last": last}
    return [(DetailRow._make(row[:5]), float(row[5])) for row in connection.execute(_IMPROVEMENTS, parameters).all()]


def infra_alarms(connection: Connection, project_id: int, testbed_id: int, first: int, last: int) -> list[AlarmRow]:
    parameters = {"project": project_id, "testbed": testbed_id, "first": first, "last": last}
    return [AlarmRow._make(row) for row in connection.execute(_ALARMS, parameters).all()]


def fingerprints(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Environments by their id."""
    return {row[0]: row[1] for row in connection.execute(_ENVIRONMENTS, {"ids": list(ids)}).all()}


def environments_before(
    connection: Connection, project_id: int, testbed_id: int, runs: Sequence[BoardRunRow]
) -> dict[tuple[str, str], int]:
    """The environment in which the worker of each of these runs had run the suite before, by (suite, worker)."""
    parameters = {
        "project": project_id,
        "testbed": testbed_id,
        "suites": [run.suite for run in runs],
        "workers": [run.worker for run in runs],
        "started": [run.started_at for run in runs],
        "received": [run.received_at for run in runs],
    }
    return {(row[0], row[1]): row[2] for row in connection.execute(_ENVIRONMENTS_BEFORE, parameters).all()}
