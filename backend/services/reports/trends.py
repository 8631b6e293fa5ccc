"""How is the project doing? Speed, pass rate, compile time, memory and utilization over time, against a chosen base.

Read from what is stored when results arrive: the roll-ups of hours, days and weeks, or for a short range the
judgements of each commit. Nothing is judged here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from backend.services.base.errors import BadRequest
from backend.services.base.scope import QueryScope, find_commit, find_scope, in_zone, time_range
from backend.services.policy.resolve import policy_book
from backend.services.reports.facets import passes
from backend.services.reports.trend_grid import (
    Grid,
    Mean,
    grid_of,
    is_compile,
    is_memory,
    is_speed,
    is_utilisation,
    level,
    mean_of,
    moved,
    performance,
)
from backend.services.reports.trend_strips import EnvironmentMark, Strip, environment_marks, strips_of
from backend.store.base import lookup
from backend.store.board import board as board_store
from backend.store.reports import trends as store
from backend.store.reports.trends import TrendSeries

GRANULARITIES = ("commit", "hour", "day", "week")
FINE = 12_000  # points a chart by commit may have; with more, a point is a day
SHORT = timedelta(days=7)
RECENT_COMMITS = 60
_LENGTH = {"hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000}
BASES = {"7d": timedelta(days=7), "24h": timedelta(hours=24), "30d": timedelta(days=30), "90d": timedelta(days=90)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendQuery:
    """What to compare, and with what. `base` and `head`: a commit, a branch, a date, or an age (`7d`)."""

    project: str
    testbed: str | None = None
    facets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    range: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    granularity: str | None = None
    base: str = ""
    head: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Base or head: the commit at which a comparison begins or ends."""

    name: str
    at: datetime
    sha: str | None
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """The share of applicable results that succeeded, in the newest run of each suite. `line` runs over `at`."""

    applicable: int = 0
    passed: int = 0
    before: float | None = None
    line: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """The answer. A mean is None if no such metric is measured. `least`: the smallest change that counts as a move."""

    project: str
    testbed: str | None
    granularity: str
    least: float
    base: End | None
    head: End | None
    at: tuple[datetime, ...] = ()
    positions: tuple[int, ...] = ()
    speed: Mean | None = None
    compile_time: Mean | None = None
    memory: Mean | None = None
    memory_bytes: float | None = None
    compile_ms: float | None = None
    utilisation: Mean | None = None
    utilisation_now: float | None = None
    pass_rate: PassRate = PassRate()
    variants: int = 0
    compared: int = 0
    slower: int = 0
    faster: int = 0
    unsteady: int = 0
    """Series, not variants: gate metrics whose newest point says that they cannot be judged."""
    strips: tuple[Strip, ...] = ()
    environments: tuple[EnvironmentMark, ...] = ()

    @property
    def one_commit(self) -> bool:
        """Whether base and head are the same commit, so that nothing is compared."""
        return self.base is not None and self.head is not None and self.base.position == self.head.position


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """What is read: positions or moments, and at which of them base and head stand."""

    since: datetime
    until: datetime
    base_at: datetime
    head_at: datetime
    first: int
    last: int
    granularity: str

    @property
    def by_commit(self) -> bool:
        return self.granularity == "commit"


def load_trends(c: Connection, query: TrendQuery, *, now: datetime) -> Trends:
    """Find the series and the moments, read their points once, and summarize each group of them."""
    if query.granularity not in (None, *GRANULARITIES):
        raise BadRequest.field("granularity", query.granularity, GRANULARITIES)
    scope = find_scope(c, query.project, None, query.testbed)
    nothing = Trends(
        project=scope.project.slug,
        testbed=None if scope.testbed is None else scope.testbed.name,
        granularity=query.granularity or "commit",
        least=policy_book(c, scope.project.slug).general.min_change,
        base=None,
        head=None,
    )
    if scope.testbed is None or scope.default_branch is None:
        return nothing
    every = store.judged_series(c, scope.project.id, scope.testbed.id)
    series = [each for each in every if passes(query.facets, each.suite, each.metric, each.variant)]
    window = _window(c, scope, scope.default_branch.id, query, len(series), now)
    points = _points(c, scope, [each.id for each in series], window, now)
    grid = grid_of(series, points, _micros(window.base_at), _micros(window.head_at))
    if grid is None:
        return nothing
    base, head = _ends(c, scope.default_branch.id, grid, query)
    means = replace(
        _with_means(_with_counts(nothing, grid), grid),
        granularity=window.granularity,
        base=base,
        head=head,
        at=tuple(_when(each) for each in grid.at.tolist()),
        positions=tuple(grid.position.tolist()),
    )
    return _with_history(c, scope, query, window, grid, means)


def _window(c: Connection, scope: QueryScope, branch: int, query: TrendQuery, series: int, now: datetime) -> _Window:
    asked = time_range(query.range, query.since, query.until, now=now, default="30d")
    base_at = _moment(c, scope, query.base, "base", now)
    since = asked.since
    if base_at is not None and since is not None and base_at < since:
        since = base_at - timedelta(days=1)
    until = min(asked.until or now, now)
    first, last = board_store.position_range(c, scope.project.id, branch, since, asked.until)
    since = since or datetime(2000, 1, 1, tzinfo=UTC)
    return _Window(
        since=since,
        until=until,
        base_at=base_at or since,
        head_at=_moment(c, scope, query.head, "head", now) or until,
        first=first,
        last=last,
        granularity=query.granularity or ("commit" if (last - first + 1) * series <= FINE else "day"),
    )


def _points(c: Connection, scope: QueryScope, ids: Sequence[int], window: _Window, now: datetime) -> NDArray[np.void]:
    """What was measured in the window; before it stands what each series had when it began, as a suite need not have
    been measured at its first commit."""
    points = _measured(c, scope, ids, window, now)
    if not points.size or window.first <= 0:
        return points
    if window.by_commit:
        before = store.commit_points_before(c, scope.project.id, ids, window.first)
    else:
        before = store.bucket_points_before(c, ids, window.granularity, window.since)
    before["at"] = min(_micros(window.since), int(points["at"].min()) - 1)
    before["position"] = window.first - 1
    return np.concatenate([before, points])


def _measured(c: Connection, scope: QueryScope, ids: Sequence[int], window: _Window, now: datetime) -> NDArray[np.void]:
    if window.by_commit:
        return store.commit_points(c, scope.project.id, ids, window.first, window.last)
    points = store.bucket_points(c, ids, window.granularity, window.since, window.until)
    # A bucket is shown by its last value, which stands where the bucket ends.
    points["at"] = np.minimum(points["at"] + _LENGTH[window.granularity], _micros(now))
    return points


def _with_counts(trends: Trends, grid: Grid) -> Trends:
    """How many variants were compared, and how many of them moved."""
    slower, faster = moved(grid, trends.least)
    relative = performance(grid)
    names = [_variant(each) for each in grid.series]
    rows = _variants(grid)
    return replace(
        trends,
        variants=len(set(names)),
        compared=len({names[row] for row in rows if np.isfinite(relative[row, grid.head])}),
        slower=len({names[row] for row in rows if slower[row]}),
        faster=len({names[row] for row in rows if faster[row] and not slower[row]}),
    )


def _with_means(trends: Trends, grid: Grid) -> Trends:
    """The tiles: geometric means of performance, and of values where their unit says something."""
    compile_time, memory, utilisation = (_rows(grid, wanted) for wanted in (is_compile, is_memory, is_utilisation))
    return replace(
        trends,
        speed=_mean(grid, _rows(grid, is_speed), trends.least),
        compile_time=_mean(grid, compile_time, trends.least),
        compile_ms=level(grid, compile_time),
        memory=_mean(grid, memory, trends.least),
        memory_bytes=level(grid, memory),
        utilisation=_mean(grid, utilisation, trends.least),
        utilisation_now=level(grid, utilisation),
    )


def _with_history(
    c: Connection, scope: QueryScope, query: TrendQuery, window: _Window, grid: Grid, trends: Trends
) -> Trends:
    """What happened in the window: onsets by suite, environments, results that ended badly, series too unsteady."""
    ids = [each.id for each in grid.series]
    found = store.onsets(c, scope.project.id, ids, int(grid.position.min()), int(grid.position.max()))
    gates = {each.id: each.state_position for each in grid.series if each.role == "gate"}
    return replace(
        trends,
        pass_rate=_pass_rate(c, scope, query, window.since, window.until, grid),
        unsteady=store.unsteady(c, scope.project.id, gates),
        strips=strips_of(grid, found, trends.least, by_commit=window.by_commit),
        environments=_environments(c, scope, window.since, by_commit=window.by_commit),
    )


def recent_values(c: Connection, project: str, series: Sequence[int]) -> dict[int, list[float]]:
    """Values of each series at the newest commits of the default branch, oldest first."""
    scope = find_scope(c, project)
    if scope.default_branch is None or not series:
        return {}
    _, head = board_store.position_range(c, scope.project.id, scope.default_branch.id, None, None)
    recent = store.commit_points(c, scope.project.id, series, head - RECENT_COMMITS, head)
    points = np.sort(recent, order=["series", "position"])
    found: dict[int, list[float]] = {}
    for number, value in zip(points["series"].tolist(), points["value"].tolist(), strict=True):
        found.setdefault(number, []).append(value)
    return found


# --- moments ---------------------------------------------------------------------------------------------------------


def _when(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)


def _moment(c: Connection, scope: QueryScope, name: str, field_name: str, now: datetime) -> datetime | None:
    """The moment that a name of base or head stands for; None: the end of the range."""
    if not name:
        return None
    if name in BASES:
        return now - BASES[name]
    moment = _dated(name)
    if moment is not None and lookup.commit_of_tag(c, scope.project.id, name) is None:  # nightly tags are often dates
        return moment
    commit = find_commit(c, scope, name)
    if commit.committed_at is None:
        raise BadRequest.field(field_name, name, "a commit with a date")
    return commit.committed_at


def _dated(text: str) -> datetime | None:
    """The moment that a text is; None: it is none."""
    try:
        return in_zone(datetime.fromisoformat(text))
    except ValueError:
        return None


def _micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1e6)


def _ends(c: Connection, branch: int, grid: Grid, query: TrendQuery) -> tuple[End, End]:
    positions = [int(grid.position[grid.base]), int(grid.position[grid.head])]
    known = store.commit_times(c, branch, positions)
    base, head = (
        End(
            name=name,
            at=_when(int(grid.at[index])),
            sha=known[position][1] if position in known else None,
            position=position,
        )
        for name, index, position in (
            (query.base, grid.base, positions[0]),
            (query.head, grid.head, positions[1]),
        )
    )
    return base, head


# --- groups of series ------------------------------------------------------------------------------------------------


def _variant(each: TrendSeries) -> tuple[str, str, str, str]:
    return each.suite, each.benchmark, each.variant_key, each.preset


def _rows(grid: Grid, wanted: Callable[[TrendSeries], bool]) -> list[int]:
    return [row for row, each in enumerate(grid.series) if wanted(each)]


def _variants(grid: Grid) -> list[int]:
    return [row for row, each in enumerate(grid.series) if each.role == "gate"]


def _mean(grid: Grid, rows: Sequence[int], least: float) -> Mean | None:
    return mean_of(grid.only(rows), least) if rows else None


def _environments(c: Connection, scope: QueryScope, since: datetime, *, by_commit: bool) -> tuple[EnvironmentMark, ...]:
    assert scope.testbed is not None
    rows = store.environments(c, scope.project.id, scope.testbed.id, since)
    return environment_marks(rows, by_commit=by_commit)


def _pass_rate(
    c: Connection, scope: QueryScope, query: TrendQuery, since: datetime, until: datetime, grid: Grid
) -> PassRate:
    """Of the newest run of each suite; the line says how it was at each step of the range."""
    assert scope.testbed is not None
    step = query.granularity if query.granularity in ("hour", "week") else "day"
    if until - since <= SHORT:
        step = "hour"
    suites = query.facets.get("suite")
    newest: dict[str, tuple[int, int]] = {}
    line: list[float] = []
    rows = store.outcomes(c, scope.project.id, scope.testbed.id, step, since, until)
    for index, row in enumerate(rows):
        if suites and row.suite not in suites:
            continue
        newest[row.suite] = (row.applicable, row.passed)
        if index + 1 == len(rows) or rows[index + 1].at != row.at:
            total = sum(each[0] for each in newest.values())
            line.append(sum(each[1] for each in newest.values()) / total if total else 1.0)
    applicable, passed = (sum(each[n] for each in newest.values()) for n in (0, 1))
    return PassRate(applicable=applicable, passed=passed, before=line[0] if line else None, line=tuple(line))
