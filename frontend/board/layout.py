"""Which columns of the board are shown, in which groups, and in which units their values are written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.services.board.cells import CODE_OF, Cell, CellState, RowCells
from backend.services.board.model import Board
from backend.services.reports.columns import Column
from frontend import numbers
from frontend.words import MOVED

FEW_COLUMNS = 6  # up to here cells are wide and show glyph and value together
MID_COLUMNS = 14
ALL_BY_DEFAULT_UP_TO = 60  # columns; above, the board opens with those that moved
FOLD_FROM = 400  # columns; above, each suite is folded to its roll-up until it is opened; so many are open at once
PART = 200  # columns; a suite of more is opened part by part


class Lens(StrEnum):
    """Which columns are shown."""

    MOVED = "moved"
    ALL = "all"
    SUITES = "suites"


class CellMode(StrEnum):
    """The text in cells, beside their colour."""

    VERDICT = "verdict"
    CHANGE = "change"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Neighbouring columns of one suite; folded, only the roll-up is shown."""

    suite: str
    columns: tuple[int, ...]  # indices into Board.columns
    folded: bool = False
    opened: bool = False  # by hand: it can be folded again
    part: str = ""  # of a suite too large to be opened whole: "1–200"

    @property
    def name(self) -> str:
        return f"{self.suite} {self.part}".rstrip()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns are shown, in which groups, and how wide."""

    lens: Lens
    mode: CellMode
    groups: tuple[ColumnGroup, ...]
    moved: frozenset[int]
    pull_requests: bool
    largest: Mapping[int, float]  # the largest value of each series, where cells are wide enough for a meter
    units: Mapping[int, "CellUnit"]  # in which the values of each column are written, where cells show values

    @property
    def shown(self) -> tuple[int, ...]:
        return tuple(index for group in self.groups if not group.folded for index in group.columns)

    @property
    def width(self) -> int:
        """Cells of a row on a wide screen."""
        return len(self.shown) + sum(group.folded for group in self.groups)

    @property
    def size(self) -> str:
        """few: wide cells with values; mid; many: 32 px."""
        return "few" if self.width <= FEW_COLUMNS else "mid" if self.width <= MID_COLUMNS else "many"


class CellUnit(NamedTuple):
    """The divisor and unit in which the values of a column are written. `stored` is the unit they come in."""

    factor: float
    name: str
    stored: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """The states of a board as one array of numbers, rows by columns; a cell is made when it says more than that."""

    codes: NDArray[np.int8]
    rows: Sequence[RowCells | Sequence[Cell]]

    def cells(self, row: int, wanted: NDArray[np.bool_]) -> dict[int, Cell]:
        """The cells of a row by column, of the columns wanted."""
        mine = self.rows[row]
        made = mine.only(wanted) if isinstance(mine, RowCells) else (cell for cell in mine if wanted[cell.column])
        return {cell.column: cell for cell in made}


def sheet_of(board: Board) -> Sheet:
    """The board as it was read."""
    width = len(board.columns)
    codes = [row.cells.codes(width) for row in board.rows]
    return Sheet(np.array(codes, dtype=np.int8).reshape(len(board.rows), width), [row.cells for row in board.rows])


def sheet_of_cells(rows: Sequence[Sequence[Cell]], width: int) -> Sheet:
    """A board put together from others."""
    codes = np.full((len(rows), width), CODE_OF[CellState.EMPTY], dtype=np.int8)
    for number, row in enumerate(rows):
        for cell in row:
            codes[number, cell.column] = CODE_OF[cell.state]
    return Sheet(codes, rows)


def codes_of(states: Iterable[CellState]) -> list[int]:
    return [CODE_OF[state] for state in states]


def moved_columns(sheet: Sheet) -> frozenset[int]:
    """Columns with any state that is more than unchanged."""
    return frozenset(np.flatnonzero(np.isin(sheet.codes, codes_of(MOVED)).any(axis=0)).tolist())


def plan_layout(
    board: Board, sheet: Sheet, lens: Lens | None, mode: CellMode, opened: Sequence[str], pinned: Sequence[str]
) -> Layout:
    """Choose the columns. Without a wish: all of them while they fit a screen, else those that moved."""
    moved = moved_columns(sheet)
    pins = frozenset(index for index, column in enumerate(board.columns) if column.key in pinned)
    chosen = lens or (Lens.ALL if len(board.columns) <= ALL_BY_DEFAULT_UP_TO or not moved else Lens.MOVED)
    kept = {
        suite: [index for index in indices if chosen is not Lens.MOVED or index in moved or index in pins]
        for suite, indices in _by_suite(board.columns)
    }
    # However the columns were chosen: more than a browser draws at once stand folded, each with its worst verdict.
    folded = chosen is Lens.SUITES or sum(map(len, kept.values())) > FOLD_FROM
    groups = tuple(ColumnGroup(suite, tuple(indices)) for suite, indices in kept.items() if indices)
    if folded:
        groups = fold(tuple(part for group in groups for part in parts_of(group)), opened)
    prs = any(row.pull_request for row in board.rows)
    layout = Layout(chosen, mode, groups, moved, prs, {}, {})
    if mode is CellMode.VALUE:
        return replace(layout, units=units_of(sheet, layout))
    return replace(layout, largest=largest_values(sheet, layout)) if layout.size == "few" else layout


def parts_of(group: ColumnGroup) -> list[ColumnGroup]:
    """A suite that a browser could not draw at once, in parts."""
    if len(group.columns) <= FOLD_FROM:
        return [group]
    return [
        replace(group, columns=mine, part=f"{start + 1}–{start + len(mine)}")
        for start in range(0, len(group.columns), PART)
        if (mine := group.columns[start : start + PART])
    ]


def fold(groups: Sequence[ColumnGroup], opened: Sequence[str]) -> tuple[ColumnGroup, ...]:
    """All folded but those opened last, as many as a browser draws at once."""
    by_name, room, kept = {group.name: group for group in groups}, FOLD_FROM, set[str]()
    for name in reversed(opened):
        group = by_name.get(name)
        if group is None or name in kept:
            continue
        room -= len(group.columns)
        if room < 0 and kept:
            break
        kept.add(name)
    return tuple(replace(group, folded=group.name not in kept, opened=group.name in kept) for group in groups)


def wanted_columns(sheet: Sheet, layout: Layout) -> NDArray[np.bool_]:
    wanted = np.zeros(sheet.codes.shape[1], dtype=bool)
    wanted[list(layout.shown)] = True
    return wanted


def largest_values(sheet: Sheet, layout: Layout) -> dict[int, float]:
    """The largest value of each series that is shown; 0: of the cells without one. A column may show several metrics,
    which cannot be compared."""
    wanted, found = wanted_columns(sheet, layout), {0: 0.0}
    for row in range(len(sheet.rows)):
        for cell in sheet.cells(row, wanted).values():
            series = cell.series_id or 0
            found[series] = max(found.get(series, 0.0), cell.value or 0.0)
    return found


def units_of(sheet: Sheet, layout: Layout) -> dict[int, CellUnit]:
    """One unit for all values of a column: that of its newest cell, as large as suits its largest value."""
    wanted, largest, stored = wanted_columns(sheet, layout), dict[int, float](), dict[int, str]()
    for row in range(len(sheet.rows)):
        for column, cell in sheet.cells(row, wanted).items():
            if cell.value is not None and stored.setdefault(column, cell.unit or "") == (cell.unit or ""):
                largest[column] = max(largest.get(column, 0.0), abs(cell.value))
    return {
        column: CellUnit(*numbers.scale_of(most, stored[column]), stored[column]) for column, most in largest.items()
    }


def _by_suite(columns: Sequence[Column]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for index, column in enumerate(columns):
        found.setdefault(column.suite, []).append(index)
    return list(found.items())
