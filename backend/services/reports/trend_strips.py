"""The strips of the Overview: each suite by its headline metric, with its onsets and what became of its machines."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from backend.services.reports.columns import natural
from backend.services.reports.notices import differences
from backend.services.reports.trend_grid import Grid, Mean, changes, is_speed, level, mean_of, numbers, performance
from backend.store.reports.trends import WATCHED_SPEED, EnvironmentRow, OnsetRow, TrendSeries

SHOWN_MOVED = 3
SOFTWARE = frozenset({"torch", "cuda", "driver", "nccl", "triton", "python", "container", "cudnn", "accelerator"})


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


def strips_of(grid: Grid, found: Sequence[OnsetRow], least: float, *, by_commit: bool) -> tuple[Strip, ...]:
    suites = sorted({each.suite for each in grid.series if each.role == "gate"}, key=natural)
    return tuple(_strip(grid, suite, found, least, by_commit) for suite in suites)


def _headline(grid: Grid, suite: str) -> str:
    """The metric that most variants of a suite have: of times and rates that are gates, else of those that are watched,
    where there are any."""
    counts: dict[str, int] = {}
    for each in grid.series:
        if each.suite == suite and (each.role == "gate" or each.metric == WATCHED_SPEED):
            weight = 1_000_000 if is_speed(each) else 1000 if each.metric == WATCHED_SPEED else 1
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
        value=level(mine, range(len(rows))),
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
