"""How is the project doing? Speed, pass rate, compile time, memory and utilisation over time, against a chosen base.

Answered from what is stored when results come in: the roll-ups of hours, days and weeks, or for a short range the
judgements of each commit. Nothing is judged here.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
from sqlalchemy import Connection

from backend.services.base.errors import BadRequest
from backend.services.base.scope import QueryScope, find_commit, find_scope, time_range
from backend.services.policy.resolve import policy_book
from backend.services.reports.columns import natural
from backend.services.reports.facets import passes
from backend.services.reports.notices import differences
from backend.services.reports.trend_grid import Grid, Mean, changes, grid_of, mean_of, moved, numbers, performance
from backend.store.board import board as board_store
from backend.store.reports import trends as store
from backend.store.reports.trends import EnvironmentRow, OnsetRow, TrendSeries

GRANULARITIES = ("commit", "hour", "day", "week")
FINE = 12_000  # points a chart by commit may have; with more, a point is a day
SHORT = timedelta(days=7)
SHOWN_MOVED = 3
RECENT_COMMITS = 60
_LENGTH = {"hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000}
BASES = {"7d": timedelta(days=7), "24h": timedelta(hours=24), "30d": timedelta(days=30), "90d": timedelta(days=90)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendQuery:
    """Of what, and against what. `base` and `head`: a commit, a branch, a date, or how long ago (`7d`)."""

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
    """Base or head: the commit that a comparison begins or ends at."""

    name: str
    at: datetime
    sha: str | None
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendLine:
    """One series of a strip against its own base."""

    series_id: int
    name: str
    unit: str
    value: float | None
    change: float | None
    points: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """Changes of one suite that began at one commit; `change` is the largest, of cost."""

    at: datetime
    sha: str
    change: float
    series: int
    state: str
    direction: str
    regression_id: int | None
    owned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentMark:
    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A suite by its headline metric. `value` is the geometric mean at the head, in `unit`."""

    suite: str
    metric: str
    unit: str
    direction: str
    value: float | None
    mean: Mean
    lines: tuple[TrendLine, ...]
    onsets: tuple[Onset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """Results that ended well, of those that apply: the newest run of each suite. `line` runs over `at`."""

    applicable: int = 0
    passed: int = 0
    before: float | None = None
    line: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """The answer. A mean is None where no such metric is measured. `least`: from which change on a series moved."""

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
    """Series, not variants: gates whose newest point says that they cannot be judged."""
    strips: tuple[Strip, ...] = ()
    environments: tuple[EnvironmentMark, ...] = ()
    values: Mapping[int, tuple[float | None, ...]] = field(default_factory=dict)
    """Of each series, its performance against the base: for the pictures of cases."""


def load_trends(c: Connection, query: TrendQuery, *, now: datetime) -> Trends:
    """Find the series and the moments, read their points once, and say how each group of them stands."""
    if query.granularity not in (None, *GRANULARITIES):
        raise BadRequest.field("granularity", query.granularity, GRANULARITIES)
    scope = find_scope(c, query.project, None, query.testbed)
    least = policy_book(c, scope.project.slug).general.min_change
    asked = time_range(query.range, query.since, query.until, now=now, default="30d")
    until = min(asked.until or now, now)
    nothing = Trends(
        project=scope.project.slug,
        testbed=None if scope.testbed is None else scope.testbed.name,
        granularity=query.granularity or "commit",
        least=least,
        base=None,
        head=None,
    )
    if scope.testbed is None or scope.default_branch is None:
        return nothing
    every = store.judged_series(c, scope.project.id, scope.testbed.id)
    series = [each for each in every if passes(query.facets, each.suite, each.metric, each.variant)]
    base_at = _moment(c, scope, query.base, "base", now)
    head_at = _moment(c, scope, query.head, "head", now)
    since = asked.since
    if base_at is not None and since is not None and base_at < since:
        since = base_at - timedelta(days=1)
    branch = scope.default_branch.id
    first, last = board_store.position_range(c, scope.project.id, branch, since, asked.until)
    granularity = query.granularity or ("commit" if (last - first + 1) * len(series) <= FINE else "day")
    ids = [each.id for each in series]
    since = since or datetime(2000, 1, 1, tzinfo=UTC)
    if granularity == "commit":
        points = store.commit_points(c, scope.project.id, ids, first, last)
    else:
        points = store.bucket_points(c, ids, granularity, since, until)
        # A bucket is shown by its last value, which stands where the bucket ends.
        points["at"] = np.minimum(points["at"] + _LENGTH[granularity], _micros(now))
    grid = grid_of(series, points, _micros(base_at or since), _micros(head_at or until))
    if grid is None:
        return nothing
    ends = _ends(c, branch, grid, query)
    moments = tuple(_when(each) for each in grid.at.tolist())
    found = store.onsets(c, scope.project.id, ids, int(grid.position.min()), int(grid.position.max()))
    speed = _rows(grid, _is_speed)
    rows = _variants(grid)
    slower, faster = moved(grid, least)
    names = [_variant(each) for each in series]
    relative = performance(grid)
    return Trends(
        project=scope.project.slug,
        testbed=scope.testbed.name,
        granularity=granularity,
        least=least,
        base=ends[0],
        head=ends[1],
        at=moments,
        positions=tuple(grid.position.tolist()),
        speed=_mean(grid, speed, least),
        compile_time=_mean(grid, _rows(grid, _is_compile), least),
        compile_ms=_level(grid, _rows(grid, _is_compile)),
        memory=_mean(grid, _rows(grid, _is_memory), least),
        memory_bytes=_level(grid, _rows(grid, _is_memory)),
        utilisation=_mean(grid, _rows(grid, _is_utilisation), least),
        utilisation_now=_level(grid, _rows(grid, _is_utilisation)),
        pass_rate=_pass_rate(c, scope, query, since, until, grid),
        variants=len(set(names)),
        compared=len({names[row] for row in rows if np.isfinite(relative[row, grid.head])}),
        slower=len({names[row] for row in rows if slower[row]}),
        faster=len({names[row] for row in rows if faster[row] and not slower[row]}),
        unsteady=store.unsteady(
            c, scope.project.id, {each.id: each.state_position for each in series if each.role == "gate"}
        ),
        strips=_strips(grid, found, least, by_commit=granularity == "commit"),
        environments=_environments(c, scope, since, by_commit=granularity == "commit"),
        values={each.id: numbers(relative[row]) for row, each in enumerate(series)},
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


def _moment(c: Connection, scope: QueryScope, name: str, field_name: str, now: datetime) -> datetime | None:
    """The moment that a name of base or head stands for; None: the end of the range."""
    if not name:
        return None
    if name in BASES:
        return now - BASES[name]
    try:
        found = datetime.fromisoformat(name)
    except ValueError:
        commit = find_commit(c, scope, name)
        if commit.committed_at is None:
            raise BadRequest.field(field_name, name, "a commit with a date") from None
        return commit.committed_at
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1e6)


def _when(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)


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


def _is_compile(each: TrendSeries) -> bool:
    return each.role == "gate" and "compile" in each.metric and not each.exact


def _is_memory(each: TrendSeries) -> bool:
    return each.role == "gate" and each.unit == "B"


def _is_speed(each: TrendSeries) -> bool:
    return each.role == "gate" and not each.exact and each.unit != "B" and not _is_compile(each)


def _is_utilisation(each: TrendSeries) -> bool:
    return each.metric == "mfu"


def _rows(grid: Grid, wanted: Callable[[TrendSeries], bool]) -> list[int]:
    return [row for row, each in enumerate(grid.series) if wanted(each)]


def _variants(grid: Grid) -> list[int]:
    return [row for row, each in enumerate(grid.series) if each.role == "gate"]


def _mean(grid: Grid, rows: Sequence[int], least: float) -> Mean | None:
    return mean_of(grid.only(rows), least) if rows else None


def _level(grid: Grid, rows: Sequence[int]) -> float | None:
    """The geometric mean of values at the head."""
    values = grid.value[list(rows), grid.head]
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(values).mean())) if values.size else None


# --- strips ----------------------------------------------------------------------------------------------------------


def _strips(grid: Grid, found: Sequence[OnsetRow], least: float, *, by_commit: bool) -> tuple[Strip, ...]:
    suites = sorted({each.suite for each in grid.series if each.role == "gate"}, key=natural)
    return tuple(_strip(grid, suite, found, least, by_commit) for suite in suites)


def _headline(grid: Grid, suite: str) -> str:
    """The metric that most variants of a suite have: of times and rates that are gates, else of those that are watched,
    where there are any."""
    counts: dict[str, int] = {}
    for each in grid.series:
        if each.suite == suite and (each.role == "gate" or each.metric == store.WATCHED_SPEED):
            weight = 1_000_000 if _is_speed(each) else 1000 if each.metric == store.WATCHED_SPEED else 1
            counts[each.metric] = counts.get(each.metric, 0) + weight
    return max(counts, key=lambda metric: (counts[metric], metric))


def _strip(grid: Grid, suite: str, found: Sequence[OnsetRow], least: float, by_commit: bool) -> Strip:
    metric = _headline(grid, suite)
    rows = [row for row, each in enumerate(grid.series) if each.suite == suite and each.metric == metric]
    mine = grid.only(rows)
    change, relative = changes(mine), performance(mine)
    names = _names(mine.series)
    size = np.where(np.isfinite(change), np.abs(change), 0)
    lines = []
    for row in np.argsort(-size, kind="stable")[:SHOWN_MOVED].tolist():
        if size[row] < least / 2:
            break
        each = mine.series[row]
        value = float(mine.value[row, mine.head])
        lines.append(
            TrendLine(
                series_id=each.id,
                name=names[row],
                unit=each.unit,
                value=value if np.isfinite(value) else None,
                change=float(change[row]),
                points=numbers(relative[row]),
            )
        )
    first = mine.series[0]
    return Strip(
        suite=suite,
        metric=metric,
        unit=first.unit,
        direction=first.direction,
        value=_level(mine, range(len(rows))),
        mean=mean_of(mine, least),
        lines=tuple(lines),
        onsets=onset_marks(
            [each for each in found if each.suite == suite], {each.id for each in mine.series}, by_commit=by_commit
        ),
    )


def _names(series: Sequence[TrendSeries]) -> list[str]:
    """Short names: the parameters in which each variant differs from the others of its suite."""
    values: dict[str, set[str]] = {}
    for each in series:
        for key, value in each.variant.items():
            values.setdefault(key, set()).add(str(value))
    benchmarks = len({each.benchmark for each in series})
    named = []
    for each in series:
        parts = [each.benchmark.rpartition(".")[2]] if benchmarks > 1 else []
        for key, value in each.variant.items():
            if len(values[key]) > 1 or not all(key in other.variant for other in series):
                parts.append(value if isinstance(value, str) and not value.isdecimal() else f"{key}={value}")
        named.append(" ".join(parts) or each.benchmark)
    return named


def onset_marks(found: Sequence[OnsetRow], drawn: Set[int], *, by_commit: bool) -> tuple[Onset, ...]:
    """One mark for all changes of one direction at one commit: as large as the largest of the series that are `drawn`,
    or of the others where none of these changed."""
    groups: dict[tuple[int, str], list[OnsetRow]] = {}
    for row in found:
        groups.setdefault((row.position, row.direction), []).append(row)
    marks = []
    for rows in groups.values():
        worst = max(rows, key=lambda row: (row.series_id in drawn, abs(row.change)))
        marks.append(
            Onset(
                at=worst.committed_at if by_commit else worst.measured_at,
                sha=worst.sha,
                change=worst.change,
                series=len({row.series_id for row in rows}),
                state=worst.regression_state or worst.state,
                direction=worst.direction,
                regression_id=worst.regression_id,
                owned=worst.owner is not None or worst.regression_state == "acknowledged",
            )
        )
    return tuple(marks)


def _environments(c: Connection, scope: QueryScope, since: datetime, *, by_commit: bool) -> tuple[EnvironmentMark, ...]:
    assert scope.testbed is not None
    rows = store.environments(c, scope.project.id, scope.testbed.id, since)
    return environment_marks(rows, by_commit=by_commit)


def environment_marks(rows: Sequence[EnvironmentRow], *, by_commit: bool) -> tuple[EnvironmentMark, ...]:
    """Where a worker's software became another. One upgrade of several machines is one line, at the first of them:
    what one machine has and another hasn't is no upgrade."""
    newest: dict[int | None, EnvironmentRow] = {}
    told: dict[frozenset[tuple[str, str]], EnvironmentMark] = {}
    for after in rows:
        before = newest.get(after.worker)
        newest[after.worker] = after
        if before is None:
            continue
        differing = [each for each in differences(before.fingerprint, after.fingerprint) if each.name in SOFTWARE]
        words = ", ".join(f"{each.name} {each.before or 'none'} → {each.after or 'none'}" for each in differing[:2])
        if words:
            at = after.committed_at if by_commit else after.started_at
            told.setdefault(
                frozenset((each.name, each.after or "") for each in differing), EnvironmentMark(at=at, text=words)
            )
    return tuple(told.values())


SOFTWARE = frozenset({"torch", "cuda", "driver", "nccl", "triton", "python", "container", "cudnn", "accelerator"})


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
