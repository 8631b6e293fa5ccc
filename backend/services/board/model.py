"""Types of the board: the query, rows, columns, the summary strip."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backend.services.base.scope import TimeRange
from backend.services.board.cells import CellState, RowCells
from backend.services.reports.columns import Column
from backend.services.reports.notices import Notice
from backend.store.board.summary import Summary

GRANULARITIES = ("commit", "hour", "day", "week")
MAX_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardQuery:
    """Query of a board. Without a range: the newest `limit` commits. `cursor` is `Board.next` of the page before."""

    project: str
    branch: str | None = None
    testbed: str | None = None
    suites: tuple[str, ...] = ()
    facets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    text: str = ""  # words in suite, benchmark, variant, metric: which columns
    commit_text: str = ""  # message, author, sha, changed path: which rows
    metric: str | None = None  # only this gate metric instead of the worst
    states: tuple[CellState, ...] = ()  # only rows and columns with a cell in one of these
    only_changed: bool = False  # only commits at which something got slower or faster
    newest_too: bool = False  # and the newest that was measured, for what stands there now
    range: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    last: int | None = None  # only the newest N commits
    limit: int = 50
    cursor: str | None = None
    granularity: str = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """A commit; at a coarser granularity the newest judged commit of an hour, day or week (`bucket`)."""

    sha: str
    short: str
    position: int
    message: str
    author: str
    committed_at: datetime | None
    pull_request: int | None
    benchmarked: bool
    skipped_reason: str | None
    cells: RowCells
    notices: tuple[Notice, ...] = ()
    runs: Mapping[str, str]  # run id by suite
    bucket: datetime | None = None


@dataclass(frozen=True, slots=True)
class BoardPage:
    """Rows newest first with the columns that they fill; `next` requests older ones."""

    columns: Sequence[Column] = ()
    rows: Sequence[BoardRow] = ()
    next: str | None = None
    metrics: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One page of the board. `commits_in_range` counts the commits of the range, filters aside."""

    project: str
    branch: str | None
    testbed: str | None
    granularity: str
    testbeds: tuple[str, ...]
    branches: tuple[str, ...]
    suites: tuple[str, ...]
    metrics: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[BoardRow, ...]
    summary: Summary
    next: str | None
    range: TimeRange
    commits_in_range: int


@dataclass(frozen=True, slots=True)
class Span:
    """The positions that a query is about; a page begins at `start` (the cursor) and goes down to `first`."""

    first: int
    last: int
    start: int
    limit: int

    @property
    def commits(self) -> int:
        return max(0, self.last - self.first + 1)

    @property
    def empty(self) -> bool:
        return self.start < self.first
