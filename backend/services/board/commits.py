"""A page of the board with one row for each commit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import orjson
from numpy.typing import NDArray
from sqlalchemy import Connection

from backend.services.base.scope import QueryScope, storable
from backend.services.board import cells
from backend.services.board.cells import CODE_OF, CellContext, CellState, CellTable, Placed, Special
from backend.services.board.model import BoardPage, BoardQuery, BoardRow, Span
from backend.services.reports.columns import Column, columns_of, key_of, matches
from backend.services.reports.facets import passes
from backend.services.reports.notices import Notice, notices_by_row
from backend.store.base.lookup import CommitRow, TestbedRow
from backend.store.board import board as store
from backend.store.board.board import BoardResultRow, BoardRunRow, BoardSeriesRow, DetailRow

# A change begins there, or is suspected to: what a person calls a commit that moved something.
MOVED = (CellState.REGRESSION, CellState.SUSPECT, CellState.IMPROVEMENT)
WAITING = {"queued": CellState.QUEUED, "leased": CellState.RUNNING, "running": CellState.RUNNING}
BROKEN = ("failed", "incomplete")
# Runs are stored with microseconds; judgements take their moment from the run.
SLACK = timedelta(seconds=1)
SPARSE = 4  # rows further apart than this on average are read one by one


@dataclass(frozen=True, slots=True)
class Ran:
    """Runs of the commits of a page, before any verdict."""

    runs: Sequence[BoardRunRow]
    row_of_commit: Mapping[int, int]
    results: Sequence[BoardResultRow]  # those that did not end well, and all of quarantined runs
    quarantined: frozenset[str]

    def row(self, run: BoardRunRow) -> int:
        return self.row_of_commit[run.commit_id]


def commit_page(c: Connection, scope: QueryScope, query: BoardQuery, span: Span) -> BoardPage:
    """The page of commits from `span.start` downwards, with the columns that have a cell on it."""
    commits, after = _commits(c, scope, query, span)
    if scope.testbed is None or not commits:
        return BoardPage(rows=_rows(commits, None, {}), next=after)
    ran = _ran(c, commits, scope.testbed)
    gates = store.gate_series(c, scope.project.id, scope.testbed.id, _first_start(ran.runs))
    series = wanted_series(gates, query)
    words = query.text.lower().split()
    results = [row for row in ran.results if matches(row, words) and wanted_result(row, query)]
    waiting = {run.suite for run in ran.runs if not query.suites or run.suite in query.suites} if not words else set()
    names = dict.fromkeys(row._replace(run_id="", status="", error=None) for row in results)
    columns = columns_of(tuple(series), tuple(names), tuple(sorted(waiting)), among=tuple(gates))
    table = _table(c, scope, commits, ran, series, results, columns)
    notices = notices_by_row(c, scope.project.id, scope.testbed, commits, ran.runs)
    rows = _rows(commits, table, notices)
    return BoardPage(*_filtered(columns, rows, table, _states_asked(scope, query)), after, metric_names(gates))


def wanted_series(gates: Iterable[BoardSeriesRow], query: BoardQuery) -> list[BoardSeriesRow]:
    """The gate series that the filters of a query leave."""
    words = query.text.lower().split()
    return [
        row
        for row in gates
        if (not query.suites or row.suite in query.suites)
        and (query.metric is None or row.metric == query.metric)
        and (not query.facets or passes(query.facets, row.suite, row.metric, orjson.loads(row.variant)))
        and (not words or matches(row, words, row.metric))
    ]


def wanted_result(row: BoardResultRow, query: BoardQuery) -> bool:
    """Whether a result without any measurement is one of those that the filters of a query leave."""
    if query.suites and row.suite not in query.suites:
        return False
    facets = {name: values for name, values in query.facets.items() if name != "metric"}
    return not facets or passes(facets, row.suite, "", orjson.loads(row.variant))


def begins_out_of_sight(c: Connection, scope: QueryScope, query: BoardQuery, span: Span) -> bool:
    """Whether the newest commits alone would not tell the story: an open regression began before them, or nothing
    begins or ends among them while something did before."""
    lowest = max(span.first, span.last - span.limit + 1)
    if scope.testbed is None or lowest <= span.first:
        return False
    gates = wanted_series(store.gate_series(c, scope.project.id, scope.testbed.id, None), query)
    ids = [row.id for row in gates]
    if store.case_began(c, ids, span.first, lowest - 1):
        return True
    moved = store.moved_positions(c, ids, span.first, span.last, 1)
    return bool(moved) and moved[0] < lowest


def metric_names(gates: Iterable[BoardSeriesRow]) -> list[str]:
    return list(dict.fromkeys(row.metric for row in gates))


def _commits(c: Connection, scope: QueryScope, query: BoardQuery, span: Span) -> tuple[list[CommitRow], str | None]:
    """The commits of the page, and the cursor of the next one."""
    assert scope.branch is not None  # without a branch the span is empty
    positions = None
    if query.only_changed and scope.testbed is not None and scope.branch == scope.default_branch:
        gates = wanted_series(store.gate_series(c, scope.project.id, scope.testbed.id, None), query)
        ids = [row.id for row in gates]
        positions = store.moved_positions(c, ids, span.first, span.start, span.limit + 1)
        if query.newest_too and query.cursor is None:
            newest = store.newest_run(c, scope.branch.id, scope.testbed.id, span.first, span.last)
            positions += [newest] if newest is not None and newest not in positions else []
    found = store.window(
        c,
        branch_id=scope.branch.id,
        default_branch_id=scope.branch.id if scope.default_branch is None else scope.default_branch.id,
        first=span.first,
        last=span.start,
        limit=span.limit + 1,
        words=storable(query.commit_text).strip(),
        positions=positions,
    )
    commits = found[: span.limit]
    return commits, str(commits[-1].position) if len(found) > span.limit else None


def _ran(c: Connection, commits: Sequence[CommitRow], testbed: TestbedRow) -> Ran:
    runs = store.runs_of_commits(c, [commit.id for commit in commits], testbed.id)
    quarantined = frozenset(run.id for run in runs if run.status == "quarantined")
    broken = [run.id for run in runs if run.has_broken_results]
    results = store.results_not_ok(c, broken) if broken else []
    if quarantined:
        results += store.results_ok(c, sorted(quarantined))
    return Ran(runs, {commit.id: row for row, commit in enumerate(commits)}, results, quarantined)


def _first_start(runs: Iterable[BoardRunRow]) -> datetime | None:
    moments = _measured(runs)
    return min(moments) - SLACK if moments else None


def _measured(runs: Iterable[BoardRunRow]) -> list[datetime]:
    """The moments by which judgements of the runs are filed: when one started, or arrived if it does not say."""
    stated = (run.started_at or run.received_at for run in runs)
    return [moment for moment in stated if moment is not None]


def _table(
    c: Connection,
    scope: QueryScope,
    commits: Sequence[CommitRow],
    ran: Ran,
    series: Sequence[BoardSeriesRow],
    results: Sequence[BoardResultRow],
    columns: Sequence[Column],
) -> CellTable:
    column_of_series = {series_id: index for index, column in enumerate(columns) for series_id in column.series}
    context = CellContext(
        {row.id: (row.metric, row.unit) for row in series},
        [column.suite for column in columns],
        _runs_by_suite(len(commits), ran),
    )
    read = _Judgements(c, scope, commits, ran, column_of_series)
    records = read.records()
    regressions = cells.regressions_in(records)
    if regressions:
        records = cells.with_owners(records, store.regressions_of_ids(c, regressions).values())
    better = read.improvements()
    if better:
        found = [(row.series_id, row.position, change) for row, change in better]
        records = cells.with_improvements(records, found)
    specials = _specials(ran, results, columns)
    table = cells.rolled_up(records, specials, rows=len(commits), columns=len(columns), context=context)
    details = read.details(table) | {(row.series_id, row.position): row for row, _ in better}
    return replace(table, details=details)


@dataclass(frozen=True, slots=True)
class _Judgements:
    """Reads the judgements of a page: those of the default branch, and those of the branch itself if it is another."""

    c: Connection
    scope: QueryScope
    commits: Sequence[CommitRow]
    ran: Ran
    column_of_series: Mapping[int, int]

    def records(self) -> NDArray[np.void]:
        parts = [self._part(branch, positions) for branch, positions in self._parts()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=cells.RECORD)

    def improvements(self) -> list[tuple[DetailRow, float]]:
        """Where the series of the page got better: the fix of a regression is a verdict of no point."""
        shared = next((rows for branch, rows in self._parts() if branch is None), {})
        if not shared:
            return []
        return store.improvements(self.c, sorted(self.column_of_series), min(shared), max(shared))

    def details(self, table: CellTable) -> dict[tuple[int, int], DetailRow]:
        """Interval and baseline of the cells that say that something changed."""
        told = table.records[np.isin(table.records["code"], [CODE_OF[state] for state in cells.WITH_DETAILS])]
        told = told[told["series"] > 0]
        if not len(told) or (times := self._times()) is None:
            return {}
        found: dict[tuple[int, int], DetailRow] = {}
        series, positions = told["series"].tolist(), told["position"].tolist()
        for branch, _ in self._parts():
            for row in store.judgement_details(self.c, series, positions, *times, branch_id=branch):
                found[row.series_id, row.position] = row
        return found

    def _parts(self) -> list[tuple[int | None, dict[int, int]]]:
        """(branch as judgements name it, row by position): commits shared with the default branch are judged there."""
        if not self.column_of_series or self.scope.branch is None:
            return []
        numbered = list(enumerate(self.commits))
        shared = {item.default_position: row for row, item in numbered if item.default_position is not None}
        own = {
            item.position: row for row, item in numbered if item.default_position is None and item.position is not None
        }
        parts: list[tuple[int | None, dict[int, int]]] = [(None, shared), (self.scope.branch.id, own)]
        return [part for part in parts if part[1]]

    def _part(self, branch_id: int | None, row_of_position: Mapping[int, int]) -> NDArray[np.void]:
        if (times := self._times()) is None:
            return np.empty(0, dtype=cells.RECORD)
        first, last = min(row_of_position), max(row_of_position)
        series = sorted(self.column_of_series)
        scattered = last - first >= SPARSE * len(row_of_position)
        packed, more = store.packed_judgements(
            self.c,
            series,
            first,
            last,
            *times,
            branch_id=branch_id,
            positions=sorted(row_of_position) if scattered else None,
        )
        rows = np.full(last - first + 1, -1, dtype=np.int32)
        rows[np.fromiter(row_of_position, dtype=np.int64) - first] = list(row_of_position.values())
        column_of = np.array([self.column_of_series[series_id] for series_id in series], dtype=np.int32)
        return cells.judged_records(packed, more, Placed(first, rows, np.array(series, dtype=np.int32), column_of))

    def _times(self) -> tuple[datetime, datetime] | None:
        """Between which moments the page's runs were measured: judgements lie in the partitions of these months."""
        moments = _measured(self.ran.runs)
        return (min(moments) - SLACK, max(moments) + SLACK) if moments else None


def _runs_by_suite(rows: int, ran: Ran) -> list[dict[str, str]]:
    """For each row the newest run of each suite."""
    found: list[dict[str, str]] = [{} for _ in range(rows)]
    for run in ran.runs:
        found[ran.row(run)][run.suite] = run.id
    return found


def _specials(ran: Ran, results: Iterable[BoardResultRow], columns: Sequence[Column]) -> dict[tuple[int, int], Special]:
    """Cells that have no verdict: failed, held back, not applicable, running, queued. The most telling one each."""
    specials: dict[tuple[int, int], Special] = {}
    index_of = {column.key: index for index, column in enumerate(columns)}
    of_suite: dict[str, list[int]] = {}
    for index, column in enumerate(columns):
        of_suite.setdefault(column.suite, []).append(index)

    def put(row: int, column: int, special: Special) -> None:
        known = specials.get((row, column))
        if known is None or CODE_OF[special.state] < CODE_OF[known.state]:
            specials[row, column] = special

    runs = {run.id: run for run in ran.runs}
    for result in results:
        special = Special(_state_of_result(result, ran), result.run_id, result.error)
        put(ran.row(runs[result.run_id]), index_of[key_of(result).text], special)
    for run, special in _whole_runs(ran):
        for index in of_suite.get(run.suite, ()):
            put(ran.row(run), index, special)
    return specials


def _state_of_result(result: BoardResultRow, ran: Ran) -> CellState:
    if result.status == "not_applicable":
        return CellState.NOT_APPLICABLE
    return CellState.QUARANTINED if result.run_id in ran.quarantined else CellState.FAILED


def _whole_runs(ran: Ran) -> Iterable[tuple[BoardRunRow, Special]]:
    """Runs that say the same of every variant of their suite: waiting ones, and those that broke before any result."""
    delivered = {result.run_id for result in ran.results}
    good = {(run.commit_id, run.suite) for run in ran.runs if run.status == "ok"}
    for run in ran.runs:
        if run.state in WAITING:
            yield run, Special(WAITING[run.state], run.id, progress=_share_done(run))
        elif _broke(run) and run.id not in delivered and (run.commit_id, run.suite) not in good:
            yield run, Special(CellState.FAILED, run.id, run.error)


def _broke(run: BoardRunRow) -> bool:
    return run.state == "failed" or run.status in BROKEN


def _share_done(run: BoardRunRow) -> float | None:
    """How much of a running run is done, as a fraction, as far as it said."""
    progress = run.progress or {}
    done, total = progress.get("done"), progress.get("total")
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        return max(0.0, min(1.0, done / total))
    return None


def _rows(
    commits: Sequence[CommitRow], table: CellTable | None, notices: Mapping[int, tuple[Notice, ...]]
) -> list[BoardRow]:
    table = table or cells.no_cells(len(commits))
    return [
        BoardRow(
            sha=commit.sha,
            short=commit.sha[:7],
            position=commit.position if commit.position is not None else -1,
            message=commit.message.partition("\n")[0].strip(),
            author=commit.author_name,
            committed_at=commit.committed_at,
            pull_request=commit.pull_request,
            benchmarked=bool(runs),
            skipped_reason=None if runs else commit.skipped_reason,
            cells=table.row(row),
            notices=notices.get(row, ()),
            runs=runs,
        )
        for row, (commit, runs) in enumerate(zip(commits, table.context.runs, strict=True))
    ]


def _states_asked(scope: QueryScope, query: BoardQuery) -> Sequence[CellState]:
    """The states that a row must show. Other branches keep no change points: their moves are seen in the cells."""
    if query.states:
        return query.states
    return MOVED if query.only_changed and scope.branch != scope.default_branch else ()


def _filtered(
    columns: Sequence[Column], rows: Sequence[BoardRow], table: CellTable, states: Sequence[CellState]
) -> tuple[Sequence[Column], Sequence[BoardRow]]:
    """Rows that the state filter leaves, and columns with a cell in them, renumbered without gaps."""
    codes = [CODE_OF[state] for state in states]
    keep_rows = np.ones(len(rows), dtype=bool)
    keep_columns = np.zeros(len(columns), dtype=bool)
    told = table.records[np.isin(table.records["code"], codes)] if codes else table.records
    keep_columns[told["column"]] = True
    if codes:
        keep_rows[:] = False
        keep_rows[told["row"]] = True
    if keep_rows.all() and keep_columns.all():
        return columns, rows
    slim = cells.narrowed(table, keep_rows, keep_columns)
    kept = [row for row, keep in zip(rows, keep_rows, strict=True) if keep]
    return (
        [column for column, keep in zip(columns, keep_columns, strict=True) if keep],
        [replace(row, cells=slim.row(index)) for index, row in enumerate(kept)],
    )
