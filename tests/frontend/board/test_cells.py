"""What a cell of the board shows."""

# ruff: noqa: E501 (a line of data stays one line)

from dataclasses import replace

import pytest

from backend.services.base.scope import TimeRange
from backend.services.board.cells import STATES, Cell, CellState
from backend.services.board.model import Board, BoardRow
from backend.services.reports.columns import Column
from backend.store.board.summary import Summary
from frontend.board.cells import Face, face_of, faces_of, leads_of, places_of, rolls_of
from frontend.board.grid import slower_now
from frontend.board.layout import (
    CellMode,
    CellUnit,
    ColumnGroup,
    Lens,
    moved_columns,
    plan_layout,
    sheet_of_cells,
)
from frontend.words import LOOKS

COLUMN = Column(
    key="moe/moe.layer/e=64/cpu",
    suite="moe",
    benchmark="moe.layer",
    variant={"e": 64},
    label="e=64",
    preset="cpu",
    series=(7,),
)
ROW = BoardRow(
    sha="9f3c2e1" + "0" * 33, short="9f3c2e1", position=4, message="m", author="a", committed_at=None, pull_request=None,
    benchmarked=True, skipped_reason=None, cells=(), runs={},  # type: ignore[arg-type]
)  # fmt: skip


def shown(
    cell: Cell, mode: CellMode = CellMode.VERDICT, largest: float | None = None, unit: CellUnit | None = None
) -> tuple[str, str]:
    face = face_of(cell, COLUMN, ROW, mode, largest, unit)
    return face.css, face.html


@pytest.mark.parametrize(
    ("cell", "css", "html"),
    [
        (Cell(0, CellState.REGRESSION, change=0.0741), "r", "▼7.4"),
        (Cell(0, CellState.REGRESSION, change=0.182), "r", "▼18"),
        (Cell(0, CellState.STILL_UNOWNED, change=0.07), "t", "▽"),
        (Cell(0, CellState.STILL_OWNED, change=0.07), "k", "▽"),
        (Cell(0, CellState.SUSPECT, change=0.056), "u", "?5.6"),
        (Cell(0, CellState.IMPROVEMENT, change=-0.06), "i", "▲6.0"),
        (Cell(0, CellState.UNCHANGED, change=0.001), "s", ""),
        (Cell(0, CellState.UNSTEADY, change=0.01, sees=0.23), "n", "~23"),
        (Cell(0, CellState.INSUFFICIENT, have=2, need=5), "n", "2/5"),
        (Cell(0, CellState.QUARANTINED), "q", "Q"),
        (Cell(0, CellState.FAILED, error="boom"), "f", "✕"),
        (Cell(0, CellState.QUEUED), "w", ""),
        (Cell(0, CellState.NOT_APPLICABLE), "x", ""),
        (Cell(0, CellState.EMPTY), "e", ""),
    ],
)
def test_every_state_has_its_class_and_glyph(cell: Cell, css: str, html: str) -> None:
    assert shown(cell) == (css, html)


def test_a_running_cell_fills_with_its_progress() -> None:
    css, html = shown(Cell(0, CellState.RUNNING, progress=0.4))
    assert (css, html) == ("g", '<i class="pie" style="--p:40%"></i>')


def test_cells_can_show_changes_or_values_instead() -> None:
    still = Cell(0, CellState.STILL_UNOWNED, change=0.0741, value=25.98, unit="ms")
    assert shown(still, CellMode.CHANGE) == ("t", "▼7.4")
    assert shown(still, CellMode.VALUE, unit=CellUnit(1, "ms", "ms")) == ("t", "26.0")
    assert shown(still, CellMode.VALUE, unit=CellUnit(1e9, "GB", "B")) == ("t", "26.0\u202fms"), "of another metric"


def test_every_change_has_the_sign_that_says_where_performance_went() -> None:
    def change(size: float) -> str:
        return shown(Cell(0, CellState.UNCHANGED, change=size, value=1.0, unit="ms"), CellMode.CHANGE)[1]

    assert (change(0.004), change(-0.004), change(0.0004)) == ("▼0.4", "▲0.4", "0")


def test_all_values_of_a_column_are_written_in_one_unit() -> None:
    rows = [[Cell(0, CellState.UNCHANGED, value=value, unit="ms", series_id=7)] for value in (0.9, 1.02, 0.98)]
    board, sheet = board_of(rows, 1), sheet_of_cells(rows, 1)
    layout = plan_layout(board, sheet, Lens.ALL, CellMode.VALUE, (), ())
    assert layout.units == {0: CellUnit(1, "ms", "ms")}
    assert [faces[0].html for faces in faces_of(board, sheet, layout)] == ["0.900", "1.02", "0.980"]


def test_below_the_newest_cell_that_is_still_slower_a_stem_leads_down_to_its_onset() -> None:
    states = [CellState.STILL_UNOWNED, CellState.EMPTY, CellState.STILL_UNOWNED, CellState.REGRESSION]
    states += [CellState.UNCHANGED, CellState.STILL_OWNED]
    rows = [[Cell(column, state, change=0.1, series_id=7) for column in range(20)] for state in states]
    leads = [STATES[code] for code in leads_of(sheet_of_cells(rows, 20))[:, 0].tolist()]
    led_to, alone = CellState.STILL_UNOWNED, CellState.EMPTY
    assert leads == [alone, alone, led_to, led_to, alone, alone], "what was not measured does not end it, an onset does"
    board, sheet = board_of(rows, 20), sheet_of_cells(rows, 20)
    layout = plan_layout(board, sheet, Lens.ALL, CellMode.VERDICT, (), ())
    assert [faces[0].css for faces in faces_of(board, sheet, layout)] == ["t", "e", "t sm", "r st", "s", "k"]


def test_a_meter_shows_a_metric_beside_itself_alone() -> None:
    """The worst gate of a variant may be its time at one commit, and its memory at the next."""
    measured = [(1, 50.0, "ms"), (2, 4000.0, "MiB"), (1, 100.0, "ms")]
    rows = [
        [Cell(0, CellState.UNCHANGED, series_id=series, value=value, unit=unit)] for series, value, unit in measured
    ]
    board, sheet = board_of(rows, 1), sheet_of_cells(rows, 1)
    layout = plan_layout(board, sheet, Lens.ALL, CellMode.VERDICT, (), ())
    drawn = [faces[0].html for faces in faces_of(board, sheet, layout)]
    assert [html.partition("--w:")[2].partition("%")[0] for html in drawn] == ["50", "100", "100"]


def test_a_wide_cell_says_how_much_and_shows_it_as_a_meter() -> None:
    css, html = shown(Cell(0, CellState.REGRESSION, change=0.24, value=147.0, unit="ms"), largest=294.0)
    assert css == "r"
    assert "▼24" in html
    assert "147" in html
    assert "--w:50%" in html


def test_no_two_states_look_the_same_without_colour() -> None:
    samples = [(look.glyph, look.words) for look in LOOKS.values()]
    assert len(set(samples)) == len(samples) == len(CellState)


def test_a_name_says_variant_commit_state_and_change() -> None:
    face = face_of(Cell(0, CellState.REGRESSION, change=0.0741, regression_id=3), COLUMN, ROW, CellMode.VERDICT)
    assert face.label == "e=64, 9f3c2e1, regression, starts here, 7.4\u202f% worse"
    assert face.href == "/regressions/3"


def test_a_roll_up_shows_the_worst_state_and_how_many_have_it() -> None:
    states = (CellState.UNCHANGED, CellState.STILL_UNOWNED, CellState.FAILED, CellState.STILL_UNOWNED)
    rows = [[Cell(column, state) for column, state in enumerate(states)], []]
    roll = rolls_of(sheet_of_cells(rows, 5), ColumnGroup("moe", (0, 1, 2, 3, 4), folded=True))
    assert STATES[roll.codes[0]] is CellState.STILL_UNOWNED
    assert (roll.numbers[0], roll.columns[0]) == (2, 1)
    assert STATES[roll.codes[1]] is CellState.EMPTY


def test_a_column_is_slower_now_by_its_newest_judged_cell() -> None:
    newest_first = (CellState.RUNNING, CellState.STILL_OWNED, CellState.UNCHANGED)
    mended = (CellState.IMPROVEMENT, CellState.STILL_OWNED, CellState.REGRESSION)
    rows = [[Cell(0, first), Cell(1, second)] for first, second in zip(newest_first, mended, strict=True)]
    sheet = sheet_of_cells(rows, 3)
    assert slower_now(sheet) == {0}
    assert moved_columns(sheet) == {0, 1}


def board_of(rows: list[list[Cell]], width: int) -> Board:
    columns = tuple(replace(COLUMN, key=f"moe/moe.layer/e={n}/cpu", label=f"e={n}", series=(n,)) for n in range(width))
    return Board(
        project="a/b", branch="main", testbed="cpu", granularity="commit", testbeds=("cpu",), branches=("main",),
        suites=("moe",), metrics=("step_ms",), columns=columns, rows=tuple(ROW for _ in rows), summary=Summary(),
        next=None, range=TimeRange(None, None), commits_in_range=len(rows),
    )  # fmt: skip


@pytest.mark.parametrize("mode", list(CellMode))
@pytest.mark.parametrize("width", [4, len(CellState)])
def test_a_row_written_from_its_states_has_the_face_of_every_single_cell(mode: CellMode, width: int) -> None:
    known = {"change": 0.07, "value": 26.0, "unit": "ms", "series_id": 7, "run_id": "r1", "have": 2, "need": 5}
    states = list(CellState)
    rows = [
        [Cell(column, states[(column + row) % len(states)], **known) for column in range(width)]  # type: ignore[arg-type]
        for row in range(len(states))
    ]
    rows.append(rows[0][::2])  # a row in which some columns have no cell
    board, sheet = board_of(rows, width), sheet_of_cells(rows, width)
    layout = plan_layout(board, sheet, Lens.ALL, mode, (), ())
    places = places_of(board, layout)
    nothing = Face("e", "", "", "", False)
    leads = leads_of(sheet)
    for number, (cells, faces) in enumerate(zip(rows, faces_of(board, sheet, layout), strict=True)):
        by_column = {cell.column: cell for cell in cells}
        for place, face in zip(places, faces, strict=True):
            if place.column is None:
                continue
            cell, column = by_column.get(place.column), board.columns[place.column]
            unit, largest = layout.units.get(place.column), layout.largest.get((cell.series_id if cell else 0) or 0)
            drawn = mode is CellMode.VERDICT and layout.size != "few"
            above = STATES[leads[number, place.column]] if drawn else CellState.EMPTY
            alone = face_of(cell, column, ROW, mode, largest, unit, above=above) if cell else nothing
            assert face == alone, (cell, place)
