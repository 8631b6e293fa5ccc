"""The cells of a board in columns: ten thousand of them are a few numpy arrays until a single one is needed.

The order of `CellState` is the precedence of a roll-up: of all states that apply to a cell, the first is shown.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from backend.store.board.board import ONSET, SEEN_PARTS, VERDICTS, CellRegression, DetailRow


class CellState(StrEnum):
    REGRESSION = "regression"  # onset
    SUSPECT = "suspect"
    STILL_UNOWNED = "still_unowned"
    STILL_OWNED = "still_owned"
    IMPROVEMENT = "improvement"
    FAILED = "failed"
    RUNNING = "running"
    QUARANTINED = "quarantined"
    UNSTEADY = "unsteady"
    INSUFFICIENT = "insufficient"
    QUEUED = "queued"
    UNCHANGED = "unchanged"
    NOT_APPLICABLE = "not_applicable"
    EMPTY = "empty"


STATES = tuple(CellState)
CODE_OF = {state: code for code, state in enumerate(STATES)}
WORDS = np.array([state.value for state in STATES], dtype=object)
# States with a magnitude that a person may doubt: their interval and baseline come along.
WITH_DETAILS = (CellState.REGRESSION, CellState.SUSPECT, CellState.IMPROVEMENT)
# A regression in one of these states is in somebody's hands, or needs none.
IN_HAND = ("acknowledged", "expected", "fixed", "invalid", "withdrawn")
# What a cell may say by its verdict at a commit where its series got better.
MAY_IMPROVE = (CellState.UNCHANGED, CellState.UNSTEADY, CellState.INSUFFICIENT, CellState.IMPROVEMENT)
NOT_REAL = ("invalid", "withdrawn")

# What few cells have; JSON carries it by column.
MORE = ("low", "high", "baseline", "metric", "run_id", "have", "need", "sees", "error", "progress")
NO_DETAIL = DetailRow(0, 0, None, None, None)

_STATE_OF_VERDICT = {
    "unchanged": CellState.UNCHANGED,
    "insufficient": CellState.INSUFFICIENT,
    "unsteady": CellState.UNSTEADY,
    "improvement": CellState.IMPROVEMENT,
    "suspect": CellState.SUSPECT,
    "regression": CellState.STILL_UNOWNED,
}
UNCHANGED = VERDICTS.index("unchanged")
_CODES = np.zeros(2 * ONSET, dtype=np.int8)
for _number, _word in enumerate(VERDICTS):
    _CODES[_number] = _CODES[_number + ONSET] = CODE_OF[_STATE_OF_VERDICT[_word]]
_CODES[VERDICTS.index("regression") + ONSET] = CODE_OF[CellState.REGRESSION]

_UNCHANGED = CellState.UNCHANGED
_WITHOUT_REGRESSION = [CODE_OF[state] for state in (CellState.INSUFFICIENT, CellState.UNSTEADY)]
_PLAIN = [CODE_OF[state] for state in (_UNCHANGED, CellState.STILL_OWNED, CellState.STILL_UNOWNED)]

RECORD = np.dtype(
    [
        ("row", np.int32),
        ("column", np.int32),
        ("series", np.int32),
        ("position", np.int32),
        ("code", np.int8),
        ("more", np.int32),  # regression; see `_PACK`; or a number of `specials`
        ("value", np.float64),
        ("change", np.float32),
    ]
)


class Special(NamedTuple):
    """State of a cell without a judgement."""

    state: CellState
    run_id: str
    error: str | None = None
    progress: float | None = None


class Cell(NamedTuple):
    """One variant at one commit: its worst gate metric, or why there is none. Changes are cost fractions.

    A named tuple because a page makes thousands of them.
    """

    column: int
    state: CellState
    change: float | None = None
    low: float | None = None
    high: float | None = None
    metric: str | None = None
    series_id: int | None = None
    value: float | None = None
    unit: str | None = None
    baseline: float | None = None
    run_id: str | None = None
    regression_id: int | None = None
    have: int | None = None
    need: int | None = None
    sees: float | None = None  # the smallest change that an unsteady series would show
    error: str | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class CellContext:
    """Names for the numbers of a table: metric and unit of a series, suites of columns, runs of rows."""

    metrics: Mapping[int, tuple[str, str]]
    suites: Sequence[str]
    runs: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTable:
    """The cells of a board, sorted by row, then column. Cells of row r are `starts[r]` up to `starts[r + 1]`."""

    records: NDArray[np.void]
    starts: NDArray[np.int64]
    specials: Sequence[Special] = ()
    details: Mapping[tuple[int, int], DetailRow] = field(default_factory=dict)  # by series and position
    context: CellContext

    def row(self, row: int) -> "RowCells":
        return RowCells(self, row, int(self.starts[row]), int(self.starts[row + 1]))


class RowCells(Sequence[Cell]):
    """The cells of one row; each is created on demand. (Not a dataclass: JSON uses `as_columns` instead.)"""

    __slots__ = ("row", "start", "stop", "table")

    def __init__(self, table: CellTable, row: int, start: int, stop: int) -> None:
        self.table, self.row, self.start, self.stop = table, row, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    @overload
    def __getitem__(self, index: int) -> Cell: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Cell]: ...
    def __getitem__(self, index: int | slice) -> Cell | Sequence[Cell]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[Cell]:
        return self._made(self.table.records[self.start : self.stop])

    def only(self, wanted: NDArray[np.bool_]) -> Iterator[Cell]:
        """The cells of some columns: of the thousands on a board, those that a page shows."""
        part = self.table.records[self.start : self.stop]
        return self._made(part[wanted[part["column"]]])

    def codes(self, columns: int) -> NDArray[np.int8]:
        """The state of every column as its number (`CODE_OF`)."""
        part = self.table.records[self.start : self.stop]
        found = np.full(columns, CODE_OF[CellState.EMPTY], dtype=np.int8)
        found[part["column"]] = part["code"]
        return found

    def states(self) -> list[str]:
        """Only the state words: what a ribbon or a count needs."""
        words: list[str] = WORDS[self.table.records["code"][self.start : self.stop]].tolist()
        return words

    def as_columns(self) -> dict[str, Any]:
        """For JSON: parallel lists of what every cell has (ids are 0 if there is none), and `more`, by column."""
        part = self.table.records[self.start : self.stop]
        explained = part[~np.isin(part["code"], _PLAIN)]
        no_regression = np.isin(part["code"], _WITHOUT_REGRESSION) | (part["series"] == 0)
        return {
            "column": np.ascontiguousarray(part["column"]),
            "state": WORDS[part["code"]].tolist(),
            "change": np.ascontiguousarray(part["change"]),
            "value": np.ascontiguousarray(part["value"]),
            "series_id": np.ascontiguousarray(part["series"]),
            "regression_id": np.where(no_regression, 0, part["more"]),
            "more": {
                str(cell.column): {name: value for name in MORE if (value := getattr(cell, name)) is not None}
                for cell in self._made(explained)
            },
        }

    def _made(self, records: NDArray[np.void]) -> Iterator[Cell]:
        table, context = self.table, self.table.context
        runs, suites, metrics, unchanged = context.runs[self.row], context.suites, context.metrics, _PLAIN[0]
        nothing = (None,) * 6
        for _, column, series, position, code, more, value, change in records.tolist():
            if series == 0:
                yield Cell(column, **table.specials[more]._asdict())
                continue
            metric, unit = metrics[series]
            if code == unchanged:  # nearly all of them, so without the cost of names
                known = None if math.isnan(change) else change
                run_id = runs.get(suites[column])
                yield tuple.__new__(
                    Cell,
                    (column, _UNCHANGED, known, None, None, metric, series, value, unit, None, run_id, *nothing),
                )
                continue
            state = STATES[code]
            insufficient = state is CellState.INSUFFICIENT
            low, high, baseline = table.details.get((series, position), NO_DETAIL)[2:]
            yield Cell(
                column=column,
                state=state,
                change=None if math.isnan(change) else change,
                low=low,
                high=high,
                metric=metric,
                series_id=series,
                value=value,
                unit=unit,
                baseline=baseline,
                run_id=runs.get(suites[column]),
                regression_id=None if code in _WITHOUT_REGRESSION else more or None,
                have=more >> 16 if insufficient else None,
                need=(more >> 16) + (more & 0xFFFF) if insufficient else None,
                sees=more / SEEN_PARTS if more and state is CellState.UNSTEADY else None,
            )


def code_of_verdict(verdict: str, *, onset: bool) -> int:
    """The number of the state that follows from the verdict alone."""
    return int(_CODES[VERDICTS.index(verdict) + (ONSET if onset else 0)])


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a judgement: the row of its position and the column of its series."""

    first_position: int
    row_of_position: NDArray[np.int32]  # from `first_position` on; -1: no row
    series: NDArray[np.int32]  # ascending
    column_of_series: NDArray[np.int32]


def judged_records(packed: NDArray[np.void], more: NDArray[np.int32], placed: Placed) -> NDArray[np.void]:
    """Records of the packed judgements that have a row, with the state that follows from the verdict alone.

    `more` belongs to those whose verdict is not `unchanged`, one after another.
    """
    position = packed["position_and_verdict"].astype(np.int32)
    number = position & 15
    position >>= 4
    row = placed.row_of_position[position - placed.first_position]
    records = np.empty(len(packed), dtype=RECORD)
    records["row"] = row
    records["series"] = packed["series"]
    records["column"] = placed.column_of_series[np.searchsorted(placed.series, records["series"])]
    records["position"] = position
    records["code"] = _CODES[number]
    records["more"] = 0
    records["more"][number % ONSET != UNCHANGED] = more
    records["value"] = packed["value"]
    records["change"] = packed["change"]
    return records if (row >= 0).all() else records[row >= 0]


def regressions_in(records: NDArray[np.void]) -> list[int]:
    """Ids of the regressions that these cells are part of."""
    told = np.isin(records["code"], [CODE_OF[CellState.REGRESSION], CODE_OF[CellState.STILL_UNOWNED]])
    return [regression for regression in np.unique(records["more"][told]).tolist() if regression]


def with_owners(records: NDArray[np.void], regressions: Iterable[CellRegression]) -> NDArray[np.void]:
    """The same cells with people's decisions: an assigned regression counts as owned, one not real as unchanged."""
    records = records.copy()
    for regression in regressions:
        mine = records["more"] == regression.id
        still = mine & (records["code"] == CODE_OF[CellState.STILL_UNOWNED])
        onset = mine & (records["code"] == CODE_OF[CellState.REGRESSION])
        if regression.state in NOT_REAL:
            records["code"][still | onset] = CODE_OF[CellState.UNCHANGED]
        elif regression.owner or regression.state in IN_HAND:
            records["code"][still] = CODE_OF[CellState.STILL_OWNED]
    return records


def with_improvements(records: NDArray[np.void], improvements: Iterable[tuple[int, int, float]]) -> NDArray[np.void]:
    """The same cells, with improvements marked where a series got better, by (series, position, change).

    At a fix the verdict is `unchanged`, because the baseline is the one from before the regression. The chart marks the
    change point there with the gain, and so does the cell.
    """
    records = records.copy()
    quiet = np.isin(records["code"], [CODE_OF[state] for state in MAY_IMPROVE])
    for series, position, change in improvements:
        here = quiet & (records["series"] == series) & (records["position"] == position)
        records["code"][here] = CODE_OF[CellState.IMPROVEMENT]
        records["change"][here] = change
        records["more"][here] = 0
    return records


def rolled_up(
    records: NDArray[np.void],
    specials: Mapping[tuple[int, int], Special],
    *,
    rows: int,
    columns: int,
    context: CellContext,
) -> CellTable:
    """One cell per row and column: the worst of its judgements and of the other known states.

    Among gate metrics in the same state, the suite's first one is used (its headline, the step): a column is then about
    one metric from commit to commit.
    """
    told = list(specials.items())
    extra = np.zeros(len(told), dtype=RECORD)
    for index, ((row, column), special) in enumerate(told):
        extra[index] = (row, column, 0, 0, CODE_OF[special.state], index, math.nan, math.nan)
    records = np.concatenate([records, extra])
    key = records["row"].astype(np.int64) * columns + records["column"]
    order = np.arange(len(records))
    chosen = np.full(rows * columns, -1, dtype=np.int64)
    chosen[key] = order
    if (chosen[key] != order).any():  # several for one cell: the worst last, so that it stays
        order = np.lexsort((-records["series"], -records["code"].astype(np.int32)))
        chosen[key[order]] = order
    keys = np.flatnonzero(chosen >= 0)
    return CellTable(
        records=records[chosen[keys]],
        starts=np.searchsorted(keys, np.arange(rows + 1, dtype=np.int64) * columns),
        specials=tuple(special for _, special in told),
        context=context,
    )


def no_cells(rows: int) -> CellTable:
    """A table of empty rows."""
    return CellTable(
        records=np.empty(0, dtype=RECORD),
        starts=np.zeros(rows + 1, dtype=np.int64),
        context=CellContext({}, (), [{} for _ in range(rows)]),
    )


def narrowed(table: CellTable, keep_rows: NDArray[np.bool_], keep_columns: NDArray[np.bool_]) -> CellTable:
    """The table without some rows and columns, renumbered without gaps."""
    records = table.records
    kept = records[keep_rows[records["row"]] & keep_columns[records["column"]]]
    kept["row"] = (np.cumsum(keep_rows) - 1)[kept["row"]]
    kept["column"] = (np.cumsum(keep_columns) - 1)[kept["column"]]
    context = table.context
    return replace(
        table,
        records=kept,
        starts=np.searchsorted(kept["row"], np.arange(int(keep_rows.sum()) + 1)),
        context=CellContext(
            context.metrics,
            [suite for suite, keep in zip(context.suites, keep_columns, strict=True) if keep],
            [runs for runs, keep in zip(context.runs, keep_rows, strict=True) if keep],
        ),
    )
