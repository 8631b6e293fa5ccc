"""The board: commits down, benchmark variants across, one verdict per cell. A plain read of stored verdicts."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from backend.services.base.errors import BadRequest
from backend.services.base.scope import QueryScope, TimeRange, find_scope, time_range
from backend.services.board.buckets import bucket_page
from backend.services.board.cell_detail import CellDetail, load_cell
from backend.services.board.cells import Cell, CellState
from backend.services.board.commits import begins_out_of_sight, commit_page
from backend.services.board.model import GRANULARITIES, MAX_LIMIT, Board, BoardPage, BoardQuery, BoardRow, Span
from backend.services.reports.columns import Column
from backend.services.reports.notices import Notice
from backend.store.board import board as store
from backend.store.board import summary as summary_store
from backend.store.board.summary import Summary

__all__ = [
    "Board",
    "BoardQuery",
    "BoardRow",
    "Cell",
    "CellDetail",
    "CellState",
    "Column",
    "Notice",
    "Summary",
    "load_board",
    "load_cell",
    "opens_with_moves",
]

ALARM_SCORE = timedelta(days=90)
FAILED_RUNS = timedelta(days=7)


def load_board(c: Connection, query: BoardQuery, *, now: datetime | None = None) -> Board:
    """One page of the board: find the commits, then what was judged, failed or is still running there."""
    now = now or datetime.now(UTC)
    if query.granularity not in GRANULARITIES:
        raise BadRequest.field("granularity", query.granularity, GRANULARITIES)
    scope = find_scope(c, query.project, query.branch, query.testbed)
    asked = time_range(query.range, query.since, query.until, now=now)
    span = _span(c, scope, query, asked)
    page = BoardPage()
    if not span.empty:
        page = (commit_page if query.granularity == "commit" else bucket_page)(c, scope, query, span)
    suites, summary = _summary(c, scope, now)
    return Board(
        project=scope.project.slug,
        branch=None if scope.branch is None else scope.branch.name,
        testbed=None if scope.testbed is None else scope.testbed.name,
        granularity=query.granularity,
        testbeds=tuple(testbed.name for testbed in scope.testbeds),
        branches=tuple(branch.name for branch in scope.branches),
        suites=suites,
        metrics=tuple(page.metrics),
        columns=tuple(page.columns),
        rows=tuple(page.rows),
        summary=summary,
        next=page.next,
        range=asked,
        commits_in_range=span.commits,
    )


def opens_with_moves(c: Connection, query: BoardQuery, *, now: datetime | None = None) -> bool:
    """Whether a reader who selected no commits is better served by those in which something changed."""
    if query.granularity != "commit" or query.cursor or query.commit_text or query.states or query.last is not None:
        return False
    scope = find_scope(c, query.project, query.branch, query.testbed)
    if scope.branch is None or scope.branch != scope.default_branch:
        return False
    span = _span(c, scope, query, time_range(query.range, query.since, query.until, now=now or datetime.now(UTC)))
    return not span.empty and begins_out_of_sight(c, scope, query, span)


def _span(c: Connection, scope: QueryScope, query: BoardQuery, asked: TimeRange) -> Span:
    if not 1 <= query.limit <= MAX_LIMIT:
        raise BadRequest.field("limit", query.limit, f"1 to {MAX_LIMIT}")
    if query.last is not None and query.last < 1:
        raise BadRequest.field("last", query.last, "1 or more")
    if query.cursor is not None and not (query.cursor.isdecimal() and len(query.cursor) < 10):
        raise BadRequest.field("cursor", query.cursor, "the `next` of the page before")
    if scope.branch is None:
        return Span(0, -1, -1, query.limit)
    first, last = store.position_range(c, scope.project.id, scope.branch.id, asked.since, asked.until)
    if query.last is not None:
        first = max(first, last - query.last + 1)
    start = last if query.cursor is None else min(last, int(query.cursor) - 1)
    return Span(first, last, start, query.limit)


def _summary(c: Connection, scope: QueryScope, now: datetime) -> tuple[tuple[str, ...], Summary]:
    """The suites that there are, and the summary strip."""
    if scope.testbed is None:
        return (), Summary()
    suites, summary = summary_store.summary(
        c, scope.project.id, scope.testbed.id, alarms_since=now - ALARM_SCORE, failed_since=now - FAILED_RUNS
    )
    return tuple(suites), summary
