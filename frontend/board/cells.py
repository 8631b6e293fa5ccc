"""Cells of the board: for each its class, text, words and address.

The page and the live patches are made from the same faces, so an open page and a fresh one never differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.services.board.cells import CODE_OF, STATES, Cell, CellState
from backend.services.board.model import Board, BoardRow
from backend.services.reports.columns import Column
from frontend import numbers
from frontend.board.layout import CellMode, CellUnit, ColumnGroup, Layout, Sheet, codes_of, wanted_columns
from frontend.links import link
from frontend.render import cell_escape
from frontend.words import LOOKS, MOVED

SMALLEST_SHOWN = 0.01  # a mended regression is an improvement that lies at the old baseline


class Face(NamedTuple):
    """The look of a cell: class, content (HTML), accessible words, address; loud ones are links and are named.

    A named tuple because a page may make thousands of them.
    """

    css: str
    html: str
    label: str
    href: str
    loud: bool
    about: str = ""  # whose details a loud cell shows: "s12" for a series, "r01JD…" for a run


@dataclass(frozen=True, slots=True)
class CellPlace:
    """A place in every row. `column`: None for a suite's roll-up, `wide` if it represents folded columns."""

    key: str
    column: int | None
    wide: bool = False


# Cells that are links of their own and are named for those who cannot see them.
LOUD = MOVED | {CellState.RUNNING, CellState.QUEUED}


def face_of(
    cell: Cell,
    column: Column,
    row: BoardRow,
    mode: CellMode,
    largest: float | None = None,
    unit: CellUnit | None = None,
    *,
    above: CellState = CellState.EMPTY,
) -> Face:
    """How one cell looks and reads. `largest`: the largest value of its series, where there is room for a meter.

    `unit`: in which its column writes values. `above`: the state of the cell that leads down to it, where one does.
    """
    css, text = LOOKS[cell.state].css, _content(cell, mode, unit)
    if above is not CellState.EMPTY and cell.state in STILL:
        css, text = f"{css} {STEM}", f'<i class="vh">{text}</i>'
    if above in ONSET_BELOW and cell.state is CellState.REGRESSION:
        css = f"{css} {ONSET_BELOW[above]}"
    if largest is not None and mode is CellMode.VERDICT:
        text = _wide(cell, text, largest)
    if cell.state not in LOUD:
        # Thousands of quiet cells say nothing more: a script names the one that has the focus.
        return Face(css, text, "", "", False) if text else QUIET[css]
    said = f"{column.label}, {row.short}, {spoken(cell)}"
    return Face(css, text, said, cell_href(cell, row), True, _about(cell))


STEM = "sm"
ONSET_BELOW = {CellState.STILL_UNOWNED: "st", CellState.STILL_OWNED: "sk"}
QUIET = {look.css: Face(look.css, "", "", "", False) for look in LOOKS.values()}
# States that show nothing but their colour while cells show verdicts, whatever else is known of the cell.
SILENT = (CellState.UNCHANGED, CellState.NOT_APPLICABLE, CellState.EMPTY)


def silent_faces(layout: Layout) -> list[Face | None]:
    """By the number of a state the face that all its cells have; None where each has its own."""
    alike = SILENT if layout.mode is CellMode.VERDICT and layout.size != "few" else (CellState.EMPTY,)
    return [QUIET[LOOKS[state].css] if state in alike else None for state in STATES]


def _about(cell: Cell | None) -> str:
    if cell is None or not (cell.series_id or cell.run_id):
        return ""
    return f"s{cell.series_id}" if cell.series_id else f"r{cell.run_id}"


def _wide(cell: Cell, glyph: str, largest: float) -> str:
    """A wide cell: glyph, how much, the value, and a meter, so that a column reads as the chart of its commits."""
    if cell.state is CellState.EMPTY:
        return ""
    if cell.state is CellState.RUNNING:
        return f'<span class="in1"><span class="sz">{glyph}</span>{round(100 * (cell.progress or 0))} %</span>'
    if cell.value is None:
        return f'<span class="in1"><span class="sz">{glyph}</span>{LOOKS[cell.state].key}</span>'
    if cell.state in STILL and cell.change is not None:
        glyph += numbers.bare_percent(cell.change)
    share = round(100 * min(1.0, max(0.0, cell.value / largest))) if largest > 0 else 0
    value = cell_escape(numbers.quantity(cell.value, cell.unit))
    return (
        f'<span class="in1"><span class="sz">{glyph}</span><span class="val">{value}</span>'
        f'<i class="meter" style="--w:{share}%"></i></span>'
    )


STILL = (CellState.STILL_UNOWNED, CellState.STILL_OWNED)


def _content(cell: Cell, mode: CellMode, unit: CellUnit | None = None) -> str:
    """The text of a cell. Some states look the same whatever cells are asked to show."""
    state = cell.state
    if state is CellState.RUNNING:
        share = min(100, max(4, round(100 * (cell.progress or 0))))
        return f'<i class="pie" style="--p:{share}%"></i>'
    if state in FIXED_TEXT:
        return FIXED_TEXT[state]
    if state is CellState.UNSTEADY and mode is CellMode.VERDICT:
        return "~" if cell.sees is None else f"~{numbers.bare_percent(cell.sees)}"
    if state is CellState.INSUFFICIENT and mode is not CellMode.VALUE:
        return f"{cell.have}/{cell.need}" if cell.have is not None and cell.need else "…"
    return _measured(cell, mode, unit)


FIXED_TEXT = {
    CellState.QUEUED: "",
    CellState.EMPTY: "",
    CellState.NOT_APPLICABLE: "",
    CellState.FAILED: "✕",
    CellState.QUARANTINED: "Q",
}


NO_CHANGE = numbers.bare_percent(0.0)


def _measured(cell: Cell, mode: CellMode, unit: CellUnit | None) -> str:
    """A judged cell: its value, its change, or the glyph of its verdict with its size."""
    state, change = cell.state, cell.change
    if mode is CellMode.VERDICT and state in STILL:
        return "▽"
    if mode is CellMode.VALUE and cell.value is not None:
        if unit is None or unit.stored != (cell.unit or ""):
            return cell_escape(numbers.quantity(cell.value, cell.unit))  # of another metric than its column's newest
        return cell_escape(numbers.significant(cell.value / unit.factor))
    size = "" if change is None else numbers.bare_percent(change)
    if mode is CellMode.CHANGE and change is not None:
        return "0" if size == NO_CHANGE else f"{'▼' if change > 0 else '▲'}{size}"
    if state is CellState.IMPROVEMENT and change is not None and change > -SMALLEST_SHOWN:
        size = ""  # back where it was: the gain is not against this baseline
    return SIZED[state] + size if state in SIZED else "▽" if state in STILL else ""


SIZED = {CellState.REGRESSION: "▼", CellState.IMPROVEMENT: "▲", CellState.SUSPECT: "?"}


def spoken(cell: Cell) -> str:
    """The state in words, with its change: what a screen reader says."""
    words = LOOKS[cell.state].words
    if cell.state is CellState.INSUFFICIENT and cell.have is not None and cell.need:
        return f"{words}, {cell.have} of {cell.need} runs"
    if cell.state is CellState.UNSTEADY and cell.sees is not None:
        return f"{words}, sees {numbers.percent(cell.sees)}"
    if cell.state is CellState.RUNNING and cell.progress is not None:
        return f"{words}, {round(cell.progress * 100)} percent done"
    if cell.state is CellState.FAILED and cell.error:
        return f"{words}: {cell.error[:120]}"
    if cell.change is not None and cell.state in MOVED:
        return f"{words}, {numbers.percent(cell.change)} {'worse' if cell.change > 0 else 'better'}"
    return words


def cell_href(cell: Cell, row: BoardRow) -> str:
    """Where Enter and a click lead: its regression, if there is one; else the run; else the series at this commit."""
    if cell.regression_id is not None:
        return f"/regressions/{cell.regression_id}"
    if cell.state in (CellState.RUNNING, CellState.QUEUED, CellState.FAILED) and cell.run_id:
        return f"/runs/{cell.run_id}"
    if cell.series_id is not None:
        return link(f"/series/{cell.series_id}", commit=row.sha)
    return f"/runs/{cell.run_id}" if cell.run_id else ""


@dataclass(frozen=True, slots=True)
class Rolls:
    """The roll-up of one group, row by row: its worst state, how many columns have it, and the first that has."""

    codes: list[int]
    numbers: list[int]
    columns: list[int]


def rolls_of(sheet: Sheet, group: ColumnGroup) -> Rolls:
    """The worst of a group in every row: the order of `CellState` is the precedence of a roll-up."""
    mine = sheet.codes[:, list(group.columns)]
    worst = mine.min(axis=1)
    having = (mine == worst[:, None]).sum(axis=1)
    columns = np.array(group.columns)[mine.argmin(axis=1)]
    return Rolls(worst.tolist(), having.tolist(), columns.tolist())


def _roll_face(suite: str, state: CellState, number: int, worst: Cell | None, row: BoardRow) -> Face:
    look = LOOKS[state]
    if state in SILENT:
        return QUIET[look.css]
    if state is CellState.RUNNING:
        text = '<i class="pie"></i>'
    elif state is CellState.INSUFFICIENT:
        text = f"{worst.have}/{worst.need}" if worst is not None and worst.need else "…"
    elif state is CellState.UNSTEADY:
        text = look.glyph
    elif state in MOVED:
        # "×": how many columns, where a column's own cell says how much.
        text = f"{look.glyph}×{min(number, 99)}" if number > 1 else look.glyph
    else:
        text = ""
    label = f"{suite}, {row.short}, {look.words}" + (f", {number} columns" if number > 1 else "")
    return Face(look.css, text, label, cell_href(worst, row) if worst is not None else "", state in LOUD, _about(worst))


def places_of(board: Board, layout: Layout) -> list[CellPlace]:
    """The places of a row in the order of the table: each shown column, and per suite its roll-up."""
    places = []
    for group in layout.groups:
        if not group.folded:
            places += [CellPlace(board.columns[index].key, index) for index in group.columns]
        places.append(CellPlace(f"suite:{group.name}", None, group.folded))
    return places


def faces_of(board: Board, sheet: Sheet, layout: Layout) -> Iterator[list[Face]]:
    """For each row, the faces of all its places.

    The state alone is the face of nearly all cells of a large board: only the others are made.
    """
    shown, silent = list(layout.shown), silent_faces(layout)
    telling = np.array([face is None for face in silent])[sheet.codes]
    told = telling & wanted_columns(sheet, layout)
    rolls = [(group, rolls_of(sheet, group)) for group in layout.groups]
    leads = leads_of(sheet) if layout.mode is CellMode.VERDICT and layout.size != "few" else None
    for number, (row, codes) in enumerate(zip(board.rows, sheet.codes[:, shown].tolist(), strict=True)):
        worst = [roll.columns[number] for _, roll in rolls]
        wanted = told[number]
        wanted[worst] = telling[number, worst]
        cells = sheet.cells(number, wanted)
        mine = [
            silent[code]
            or _face_at(
                cells.get(index),
                index,
                board,
                row,
                layout,
                CellState.EMPTY if leads is None else STATES[leads[number, index]],
            )
            for index, code in zip(shown, codes, strict=True)
        ]
        faces, start = list[Face](), 0
        for (group, roll), column in zip(rolls, worst, strict=True):
            if not group.folded:
                faces += mine[start : start + len(group.columns)]
                start += len(group.columns)
            state = STATES[roll.codes[number]]
            faces.append(_roll_face(group.name, state, roll.numbers[number], cells.get(column), row))
        yield faces


def leads_of(sheet: Sheet) -> NDArray[np.int8]:
    """For cells that are still slower, and for onsets, the state of the cell that leads down to them, else EMPTY: of a
    regression the newest cell says that it is still so. What was not measured in between does not end it."""
    still, nothing = np.isin(sheet.codes, codes_of(STILL)), CODE_OF[CellState.EMPTY]
    led = still | (sheet.codes == CODE_OF[CellState.REGRESSION])
    leads = np.full_like(sheet.codes, nothing)
    above = np.full(sheet.codes.shape[1], nothing, dtype=np.int8)
    for number, codes in enumerate(sheet.codes):
        leads[number] = np.where(led[number], above, nothing)
        above = np.where(codes == nothing, above, np.where(still[number], codes, nothing))
    return leads


def _face_at(cell: Cell | None, index: int, board: Board, row: BoardRow, layout: Layout, above: CellState) -> Face:
    if cell is None:
        return QUIET["e"]
    column, largest, unit = board.columns[index], layout.largest.get(cell.series_id or 0), layout.units.get(index)
    return face_of(cell, column, row, layout.mode, largest, unit, above=above)


def patch(board: Board, sheet: Sheet, layout: Layout) -> dict[str, Any]:
    """The faces of every row as data, for open pages: a quiet cell is its class, a loud one is everything it shows."""
    rows = {
        row.sha: [
            [face.css, face.html, face.label, face.href, face.about] if face.loud else [face.css, face.html]
            for face in faces
        ]
        for row, faces in zip(board.rows, faces_of(board, sheet, layout), strict=True)
    }
    return {"keys": [place.key for place in places_of(board, layout)] if rows else [], "rows": rows}
