"""Two commits compared by the results of their runs: per metric the change with its interval, per suite the mean.

The verdicts are those of `backend.regression.compare` on the stored process values; its two conditions apply here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from sqlalchemy import Connection

from backend.regression.compare import ComparedMetric, Comparison, MetricComparison, compare
from backend.regression.policy import Policy
from backend.regression.terms import Direction, Role, Verdict
from backend.services.base.errors import NotFound
from backend.services.base.scope import LAST_GOOD, QueryScope, find_commit, find_scope
from backend.services.comparison.rows import ComparisonRow, NotCompared, SuiteMean, mean_of, suite_means, worst_first
from backend.services.policy.resolve import policy_book
from backend.services.reports.columns import VariantKey
from backend.services.reports.facets import passes, variant_of
from backend.services.reports.notices import Difference, differences
from backend.store.base.lookup import CommitRow
from backend.store.board import board as board_store
from backend.store.reports import comparison as store
from backend.store.reports.comparison import ComparedResultRow, ComparedRunRow, ComparedSeriesRow

NEVER_RUN = "never_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSide:
    """One of the two commits, and its runs."""

    name: str  # as it was asked for
    sha: str
    message: str
    author: str
    committed_at: datetime | None
    pull_request: int | None
    position: int | None
    runs: Mapping[str, str]  # newest run by suite
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDifference:
    """A part of a step on both sides; phases show where a change is and are not judged here."""

    suite: str
    benchmark: str
    variant_key: str
    phase: str
    unit: str
    base: float
    head: float

    @property
    def difference(self) -> float:
        return self.head - self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitComparison:
    project: str
    testbed: str
    base: ComparisonSide
    head: ComparisonSide
    rows: tuple[ComparisonRow, ...]  # those asked for: gates and watched metrics, the worst first
    hidden: int  # rows that `only_changed` left out
    levelled: int  # metrics whose workers usually differ, which is taken off both values
    suites: tuple[SuiteMean, ...]
    overall: SuiteMean
    phases: tuple[PhaseDifference, ...]
    not_compared: tuple[NotCompared, ...]
    environment: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class _Measurements:
    """Measurements of one side: values and series by key (`_key`)."""

    values: dict[str, tuple[float, ...]]
    series: dict[str, ComparedSeriesRow]
    workers: dict[str, frozenset[int]]
    """Who measured them, of workers whose usual distance from the level of the series is known."""
    on_level: dict[str, tuple[float, ...]]
    """The values without that distance."""

    @property
    def variants(self) -> set[VariantKey]:
        return {VariantKey(*row[1:5]) for row in self.series.values()}

    def gates(self) -> dict[str, str]:
        """The suites of its gates, by key."""
        return {key: row.suite for key, row in self.series.items() if row.role == Role.GATE.value}


def _key(row: ComparedSeriesRow) -> str:
    """The key a series has on both sides: a metric of a variant, whichever version of its suite measured it."""
    return "|".join(row[1:6])


def compare_commits(
    c: Connection,
    project: str,
    base: str,
    head: str,
    testbed: str | None = None,
    *,
    suites: Sequence[str] = (),
    facets: Mapping[str, Sequence[str]] | None = None,
    only_changed: bool = False,
) -> CommitComparison:
    """Compare two commits, each named by sha, branch, `#123`, or (the base) `last-good`. `facets` keep the variants
    that have one of the chosen values of each."""
    scope = find_scope(c, project, None, testbed)
    if scope.testbed is None:
        raise NotFound(f"nothing has run in {project} yet, so there is nothing to compare")
    head_commit = find_commit(c, scope, head)
    base_commit = find_commit(c, scope, base, before=head_commit.default_position if base == LAST_GOOD else None)
    ran = store.runs(c, sorted({base_commit.id, head_commit.id}), scope.testbed.id)
    ran = [run for run in ran if not suites or run.suite in suites]
    left, right, levelled = _level(*_measurements(c, ran, base_commit, head_commit, facets or {}))
    judged = _judge(c, scope, left, right)
    rows = _rows(judged, right)
    missing = [
        each
        for each in _not_compared(c, ran, base_commit, head_commit, left, right)
        if not facets or passes({**facets, "metric": ()}, each.suite, "", variant_of(each.variant_key))
    ]
    shown = [row for row in rows if not only_changed or row.verdict != Verdict.UNCHANGED.value]
    gates = left.gates() | right.gates()
    return CommitComparison(
        project=project,
        testbed=scope.testbed.name,
        base=_side(base, base_commit, ran),
        head=_side(head, head_commit, ran),
        rows=tuple(sorted(shown, key=worst_first)),
        hidden=len(rows) - len(shown),
        levelled=levelled,
        suites=suite_means(rows, gates, missing),
        overall=mean_of(None, rows, len(gates), len(missing)),
        phases=_phases(left, right),
        not_compared=tuple(missing),
        environment=_environment(c, ran, base_commit, head_commit),
    )


def commit_at(c: Connection, scope: QueryScope, moment: datetime) -> str:
    """The sha of the newest commit of the default branch at a moment."""
    branch = scope.default_branch
    last = -1 if branch is None else board_store.position_range(c, scope.project.id, branch.id, None, moment)[1]
    if branch is None or last < 0:
        raise NotFound(f"no commit of {scope.project.slug} is from before {moment:%Y-%m-%d %H:%M}")
    found = board_store.window(c, branch_id=branch.id, default_branch_id=branch.id, first=last, last=last, limit=1)
    return found[0].sha


def _left(row: ComparedSeriesRow, facets: Mapping[str, Sequence[str]]) -> bool:
    """Whether the facets leave a series; a phase belongs to its variant whatever metric was chosen."""
    of_variant = {**facets, "metric": ()} if row.role == Role.PHASE.value else facets
    return passes(of_variant, row.suite, row.metric, variant_of(row.variant_key))


def _measurements(
    c: Connection,
    ran: Sequence[ComparedRunRow],
    base: CommitRow,
    head: CommitRow,
    facets: Mapping[str, Sequence[str]],
) -> tuple[_Measurements, _Measurements]:
    """The values of both sides. Processes of several good runs of one commit are pooled."""
    rows = store.measured(c, [run for run in ran if run.status == "ok"])
    named = store.series(c, list({row.series_id for row in rows}))
    series = {row.id: row for row in named if not facets or _left(row, facets)}
    rows = [row for row in rows if row.series_id in series]
    keys = {row.id: _key(row) for row in series.values()}
    sides = {commit.id: _Measurements({}, {}, {}, {}) for commit in (base, head)}
    for row in rows:
        side, key, found = sides[row.commit_id], keys[row.series_id], series[row.series_id]
        values, offset = tuple(row.processes or (row.value,)), row.worker_offset or 0.0
        dearer = 1 + offset if found.direction == Direction.LOWER.value else 1 / (1 + offset)
        side.values[key] = side.values.get(key, ()) + values
        side.on_level[key] = side.on_level.get(key, ()) + tuple(value / dearer for value in values)
        known = () if row.worker_offset is None or row.worker_id is None else (row.worker_id,)
        side.workers[key] = side.workers.get(key, frozenset()).union(known)
        side.series[key] = found
    return sides[base.id], sides[head.id]


def _level(left: _Measurements, right: _Measurements) -> tuple[_Measurements, _Measurements, int]:
    """Both sides as on one worker, and of how many metrics that took something off."""
    differ = {
        key
        for key in left.series.keys() & right.series.keys()
        if left.workers[key] and right.workers[key] and left.workers[key] != right.workers[key]
        if left.on_level[key] != left.values[key] or right.on_level[key] != right.values[key]
    }
    left, right = (
        replace(side, values={**side.values, **{key: side.on_level[key] for key in differ}}) for side in (left, right)
    )
    return left, right, len(differ)


def _judge(c: Connection, scope: QueryScope, left: _Measurements, right: _Measurements) -> Comparison:
    """The rule's verdict for every metric that a person compares; phases are told apart from it."""
    book = policy_book(c, scope.project.slug)
    testbed = "" if scope.testbed is None else scope.testbed.name
    policies: dict[str, Policy] = {}
    sides: list[list[ComparedMetric]] = []
    spread: dict[str, float] = {}
    for side in (left, right):
        measured = []
        for key, series in side.series.items():
            if series.role == Role.PHASE.value:
                continue
            policies[key] = book.of(
                suite=series.suite, benchmark=series.benchmark, metric=series.metric, testbed=testbed
            )
            if series.noise is not None:
                spread[key] = series.noise
            measured.append(
                ComparedMetric(
                    key,
                    series.metric,
                    series.unit,
                    Direction(series.direction),
                    Role(series.role),
                    series.exact,
                    side.values[key],
                    benchmark=series.benchmark,
                )
            )
        sides.append(measured)
    return compare(sides[0], sides[1], policies, spread)


def _rows(judged: Comparison, right: _Measurements) -> list[ComparisonRow]:
    return [_row(row, right.series[row.key]) for row in judged.rows]


def _row(row: MetricComparison, series: ComparedSeriesRow) -> ComparisonRow:
    return ComparisonRow(
        suite=series.suite,
        benchmark=series.benchmark,
        variant_key=series.variant_key,
        preset=series.preset,
        metric=series.metric,
        unit=series.unit,
        direction=series.direction,
        role=series.role,
        base=row.base,
        head=row.head,
        change=row.change,
        low=row.low,
        high=row.high,
        verdict=row.verdict.value,
        reason=row.reason.value,
        needed_runs=row.needed_runs,
        traded_for=row.traded_for,
        series_id=series.id,
    )


def _phases(left: _Measurements, right: _Measurements) -> tuple[PhaseDifference, ...]:
    """Phases of both sides, in the order of the head."""
    found = [
        PhaseDifference(
            suite=series.suite,
            benchmark=series.benchmark,
            variant_key=series.variant_key,
            phase=series.metric.removesuffix("_ms"),
            unit=series.unit,
            base=median(left.values[key]),
            head=median(right.values[key]),
        )
        for key, series in right.series.items()
        if series.role == Role.PHASE.value and key in left.values
    ]
    return tuple(found)


def _not_compared(
    c: Connection,
    ran: Sequence[ComparedRunRow],
    base: CommitRow,
    head: CommitRow,
    left: _Measurements,
    right: _Measurements,
) -> list[NotCompared]:
    """Variants that were measured well on one side only, or on none although they were tried."""
    broken = {(row.commit_id, VariantKey(*row[2:6])): row for row in store.results_not_ok(c, ran)}
    good = {base.id: left.variants, head.id: right.variants}
    variants = good[base.id] ^ good[head.id]
    variants |= {key for _, key in broken if not all(key in side for side in good.values())}
    whole = _runs_by_suite(ran)
    found = []
    for key in sorted(variants):
        statuses, error, run_id = [], None, None
        for commit in (base, head):
            status, why, run = _status(commit.id, key, good, broken, whole)
            statuses.append(status)
            if status != "ok":
                error, run_id = error or why, run_id or run
        if statuses == ["not_applicable"] * 2:
            continue
        found.append(
            NotCompared(**key._asdict(), base_status=statuses[0], head_status=statuses[1], error=error, run_id=run_id)
        )
    return found


def _status(
    commit_id: int,
    key: VariantKey,
    good: Mapping[int, set[VariantKey]],
    broken: Mapping[tuple[int, VariantKey], ComparedResultRow],
    whole: Mapping[tuple[int, str], ComparedRunRow],
) -> tuple[str, str | None, str | None]:
    """Outcome of a variant on one side: (status, error, run)."""
    if key in good[commit_id]:
        return "ok", None, None
    result = broken.get((commit_id, key))
    if result is not None:
        return result.status, result.error, result.run_id
    run = whole.get((commit_id, key.suite))
    if run is None or (run.state == "done" and run.status == "ok"):
        return NEVER_RUN, None, None
    return run.status or run.state, run.error, run.id


def _runs_by_suite(ran: Iterable[ComparedRunRow]) -> dict[tuple[int, str], ComparedRunRow]:
    """The newest run of each commit and suite, a good one before any other."""
    found: dict[tuple[int, str], ComparedRunRow] = {}
    for run in ran:
        known = found.get((run.commit_id, run.suite))
        if known is None or known.status != "ok" or run.status == "ok":
            found[run.commit_id, run.suite] = run
    return found


def _side(name: str, commit: CommitRow, ran: Sequence[ComparedRunRow]) -> ComparisonSide:
    mine = {suite: run for (commit_id, suite), run in _runs_by_suite(ran).items() if commit_id == commit.id}
    return ComparisonSide(
        name=name,
        sha=commit.sha,
        message=commit.message.partition("\n")[0].strip(),
        author=commit.author_name,
        committed_at=commit.committed_at,
        pull_request=commit.pull_request,
        position=commit.position,
        runs={suite: run.id for suite, run in mine.items()},
        workers=tuple(sorted({run.worker for run in mine.values() if run.worker is not None})),
    )


def _environment(
    c: Connection, ran: Sequence[ComparedRunRow], base: CommitRow, head: CommitRow
) -> tuple[Difference, ...]:
    """How the environments of both sides differ, over the suites that ran on both."""
    newest = _runs_by_suite(ran)
    pairs = {
        (run.environment_id, other.environment_id)
        for (commit_id, suite), run in newest.items()
        if commit_id == base.id and (other := newest.get((head.id, suite))) is not None
    }
    moved = [(old, new) for old, new in pairs if old is not None and new is not None and old != new]
    if not moved:
        return ()
    prints = board_store.fingerprints(c, sorted({number for pair in moved for number in pair}))
    return tuple(dict.fromkeys(item for old, new in moved for item in differences(prints[old], prints[new])))
