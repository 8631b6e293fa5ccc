"""One series over time: its points with bands, change points, environment changes, and the noise it has.

Points are column-shaped: parallel lists, in order of position. Nothing is judged here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from backend.regression.series.profile import Profile, profile
from backend.regression.series.state import SeriesState
from backend.services.base.errors import BadRequest, NotFound
from backend.services.base.records import shared_fields
from backend.services.base.scope import ALWAYS, TimeRange, find_project, find_scope, find_testbed, storable
from backend.services.judging.state_cache import read_state
from backend.services.policy.resolve import policy_book
from backend.services.reports.notices import Difference, differences
from backend.store.board import board as board_store
from backend.store.board.board import ONSET, VERDICTS
from backend.store.judging import series as series_store
from backend.store.reports import history as store
from backend.store.reports import series as name_store
from backend.store.reports.series import ListedSeries, SeriesInfo

GRANULARITIES = ("commit", "hour", "day", "week")
ROLES = ("gate", "watch", "derived", "phase")
MAX_POINTS = 20_000
MAX_BUCKETS = 5_000
MAX_LIST = 500
MAX_ID = 2**31 - 1
WORDS = np.array(VERDICTS, dtype=object)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """Which series to list. `text`: words that must be somewhere in suite, benchmark, variant or metric."""

    project: str
    testbed: str | None = None
    suite: str | None = None
    benchmark: str | None = None
    metric: str | None = None
    role: str | None = None
    text: str = ""
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SeriesPage:
    """Series with where they stand now (`value`, `verdict`, `change` of their newest point)."""

    items: tuple[Mapping[str, Any], ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSeries:
    """A series by its names. `siblings`: the other metrics of the same variant.

    `profile` is given with the series itself and with an explanation of one of its points, and left out (null) where a
    series only names what an answer is about.
    """

    id: int
    project: str
    testbed: str
    suite: str
    suite_version: str
    benchmark: str
    variant: Mapping[str, Any]
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    profile: Profile | None = None
    alarms_confirmed: int
    alarms_withdrawn: int
    last_measured_at: datetime | None
    siblings: tuple["Sibling", ...] = ()


@dataclass(frozen=True, slots=True)
class Sibling:
    id: int
    metric: str
    unit: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A change of level, as known now; `sha` is its onset. `change` is of cost, as a fraction."""

    kind: str
    direction: str
    state: str
    position: int
    sha: str | None
    last_good_position: int | None
    detected_position: int
    fixed_position: int | None
    change: float
    low: float | None
    high: float | None
    before: float | None
    after: float | None
    regression_id: int | None
    regression_state: str | None
    owner: str | None
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSpan:
    """Where the series was worse: from `start` to `end` (None: it still is), both positions of the branch."""

    regression_id: int | None
    state: str | None
    start: int
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentChange:
    """The point at `position` ran in another environment than the point before it."""

    position: int
    sha: str
    at: datetime
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoints:
    """The points of a series, oldest first. Lists of numbers are numpy arrays; not-a-number: not known.

    At granularity hour, day or week a point is a bucket: `value` is its mean, `low` and `high` its extremes, `runs`
    how many it covers, `verdict` the worst in it; what only a single point has (smoothed, bands) is empty.
    """

    series: NamedSeries
    granularity: str
    position: Sequence[int] | NDArray[Any]
    sha: Sequence[str]
    message: Sequence[str]
    author: Sequence[str]
    run_id: Sequence[str]
    committed_at: Sequence[datetime] | NDArray[Any]
    measured_at: Sequence[datetime] | NDArray[Any]
    value: Sequence[float] | NDArray[Any]
    smoothed: Sequence[float] | NDArray[Any] = ()
    smoothed_low: Sequence[float] | NDArray[Any] = ()
    smoothed_high: Sequence[float] | NDArray[Any] = ()
    baseline: Sequence[float] | NDArray[Any] = ()
    band_low: Sequence[float] | NDArray[Any] = ()
    band_high: Sequence[float] | NDArray[Any] = ()
    anchor: Sequence[float] | NDArray[Any] = ()
    verdict: Sequence[str] = ()
    onset: Sequence[bool] | NDArray[Any] = ()
    change: Sequence[float] | NDArray[Any] = ()
    change_low: Sequence[float] | NDArray[Any] = ()
    change_high: Sequence[float] | NDArray[Any] = ()
    regression_id: Sequence[int] | NDArray[Any] = ()  # 0: none
    low: Sequence[float] | NDArray[Any] = ()
    high: Sequence[float] | NDArray[Any] = ()
    runs: Sequence[int] | NDArray[Any] = ()
    change_points: tuple[LevelChange, ...] = ()
    regressions: tuple[RegressionSpan, ...] = ()
    environment_changes: tuple[EnvironmentChange, ...] = ()

    def __len__(self) -> int:
        return len(self.position)


def list_series(c: Connection, query: SeriesQuery) -> SeriesPage:
    """A page of series, in order of id."""
    if not 1 <= query.limit <= MAX_LIST:
        raise BadRequest.field("limit", query.limit, f"1 to {MAX_LIST}")
    if query.role is not None and query.role not in ROLES:
        raise BadRequest.field("role", query.role, ROLES)
    if query.cursor is not None and not (query.cursor.isdecimal() and len(query.cursor) < 10):
        raise BadRequest.field("cursor", query.cursor, "the `next` of the page before")
    scope = find_scope(c, query.project)
    testbed = None if query.testbed is None else find_testbed(scope.testbeds, query.testbed)
    wanted = name_store.SeriesFilter(
        testbed_id=None if testbed is None else testbed.id,
        suite=_storable(query.suite),
        benchmark=_storable(query.benchmark),
        metric=_storable(query.metric),
        role=query.role,
        words=storable(query.text).split(),
    )
    found = name_store.list_series(c, scope.project.id, wanted, after=int(query.cursor or 0), limit=query.limit + 1)
    page = found[: query.limit]
    return SeriesPage(
        tuple(ListedSeries._asdict(row) for row in page), str(page[-1].id) if len(found) > query.limit else None
    )


def load_series(c: Connection, series_id: int) -> NamedSeries:
    """A series by its names, with its sibling metrics and what the judge knows of its noise."""
    info = series_info(c, series_id)
    return replace(with_siblings(c, info), profile=profile_of(c, info))


def with_siblings(c: Connection, info: SeriesInfo) -> NamedSeries:
    """A series by its names, with its sibling metrics."""
    return series_of(info, tuple(Sibling(*row) for row in name_store.siblings(c, info.id)))


def profile_of(c: Connection, info: SeriesInfo) -> Profile:
    """The noise of a series as the judge remembers it, under the policy that its next point will be judged by."""
    row = series_store.read(c, info.id)
    policy = policy_book(c, info.project).of(
        suite=info.suite, benchmark=info.benchmark, metric=info.metric, testbed=info.testbed
    )
    return profile(read_state(row) or SeriesState.new(row.kind), policy)


def load_points(
    c: Connection,
    series_id: int,
    granularity: str = "commit",
    within: TimeRange = ALWAYS,
    *,
    last: int | None = None,
    up_to: int | None = None,
) -> SeriesPoints:
    """The points of a series in a range, or the newest `last` of it; by commit those up to the position `up_to`."""
    if granularity not in GRANULARITIES:
        raise BadRequest.field("granularity", granularity, GRANULARITIES)
    if last is not None and not 1 <= last <= MAX_POINTS:
        raise BadRequest.field("last", last, f"1 to {MAX_POINTS}")
    info = series_info(c, series_id)
    if granularity != "commit":
        return _buckets(c, info, granularity, within.since, within.until, min(last or MAX_BUCKETS, MAX_BUCKETS))
    first, newest = 0, 2**31 - 1
    if within.since is not None or within.until is not None:
        first, newest = _positions(c, info, within.since, within.until)
    return _commits(c, info, first, newest if up_to is None else min(newest, up_to), last or MAX_POINTS)


def points_around(
    c: Connection, project: str, onsets: Sequence[tuple[int, int]], limit: int
) -> Mapping[tuple[int, int], tuple[list[int], list[float]]]:
    """Positions and values of several series of a project on either side of a position each, oldest first."""
    return store.points_around(c, find_project(c, project).id, onsets, limit) if onsets else {}


def _storable(name: str | None) -> str | None:
    return None if name is None else storable(name)


def series_info(c: Connection, series_id: int) -> SeriesInfo:
    """The series of this id, or a refusal."""
    info = name_store.series_info(c, series_id) if 0 < series_id <= MAX_ID else None
    if info is None:
        raise NotFound.of("series", series_id)
    return info


def series_of(info: SeriesInfo, siblings: tuple[Sibling, ...] = ()) -> NamedSeries:
    """The series that an answer is about."""
    return NamedSeries(**{**shared_fields(info, NamedSeries), "profile": None}, siblings=siblings)


def _positions(c: Connection, info: SeriesInfo, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    branch = find_scope(c, info.project).default_branch
    return (0, -1) if branch is None else board_store.position_range(c, info.project_id, branch.id, since, until)


def _commits(c: Connection, info: SeriesInfo, first: int, newest: int, limit: int) -> SeriesPoints:
    packed = store.packed_points(c, info.id, first, newest, limit)
    numbers = packed.numbers
    columns = {name: numbers[name].astype(numbers[name].dtype.newbyteorder("=")) for name in numbers.dtype.names or ()}
    position = columns["position"]
    verdict = columns["verdict_and_onset"]
    changes = _change_points(c, info.id, int(position[0]), int(position[-1])) if len(position) else ()
    return SeriesPoints(
        series=series_of(info),
        granularity="commit",
        position=position,
        sha=packed.shas,
        message=packed.messages,
        author=packed.authors,
        run_id=packed.run_ids,
        committed_at=columns["committed_at"].astype("datetime64[us]"),
        measured_at=columns["measured_at"].astype("datetime64[us]"),
        verdict=WORDS[verdict % ONSET].tolist(),
        onset=verdict >= ONSET,
        regression_id=columns["regression"],
        **{name: columns[name] for name in store.FLOATS},
        change_points=changes,
        regressions=tuple(
            RegressionSpan(
                regression_id=change.regression_id,
                state=change.regression_state,
                start=change.position,
                end=change.fixed_position,
            )
            for change in changes
            if change.direction == "regression" and change.state in ("confirmed", "fixed")
        ),
        environment_changes=_environment_changes(c, columns, packed.shas),
    )


def _change_points(c: Connection, series_id: int, first: int, last: int) -> tuple[LevelChange, ...]:
    return tuple(
        LevelChange(
            **shared_fields(row, LevelChange),
            position=row.onset_position,
            sha=row.onset_sha,
            low=row.change_low,
            high=row.change_high,
        )
        for row in store.change_points(c, series_id, first, last)
    )


def _environment_changes(
    c: Connection, columns: Mapping[str, NDArray[Any]], shas: Sequence[str]
) -> tuple[EnvironmentChange, ...]:
    """Points whose environment is another than that of the point before; points without one are passed over."""
    environment = columns["environment"]
    known = np.flatnonzero(environment)
    moved = known[1:][environment[known[1:]] != environment[known[:-1]]]
    if not len(moved):
        return ()
    before = dict(zip(known[1:].tolist(), environment[known[:-1]].tolist(), strict=True))
    prints = board_store.fingerprints(c, sorted(set(environment[known].tolist())))
    return tuple(
        EnvironmentChange(
            position=int(columns["position"][index]),
            sha=shas[index],
            at=datetime.fromtimestamp(columns["measured_at"][index] / 1e6, UTC),
            differences=differences(prints[before[index]], prints[int(environment[index])]),
        )
        for index in moved.tolist()
    )


def _buckets(
    c: Connection, info: SeriesInfo, granularity: str, since: datetime | None, until: datetime | None, limit: int
) -> SeriesPoints:
    rows = store.rollups(c, info.id, granularity, since, until, limit)[::-1]
    first, last = (rows[0].position - rows[0].runs, rows[-1].position) if rows else (0, -1)
    changes = _change_points(c, info.id, max(0, first), last) if rows else ()
    return SeriesPoints(
        series=series_of(info),
        granularity=granularity,
        position=[row.position for row in rows],
        sha=(),
        message=(),
        author=(),
        run_id=(),
        committed_at=[row.bucket for row in rows],
        measured_at=[row.bucket for row in rows],
        value=[row.mean for row in rows],
        low=[row.low for row in rows],
        high=[row.high for row in rows],
        runs=[row.runs for row in rows],
        verdict=[row.verdict for row in rows],
        change=[float("nan") if row.change is None else row.change for row in rows],
        change_points=changes,
    )
