"""Which columns of the board are shown."""

import numpy as np

from backend.services.board.cells import Cell, CellState
from frontend.board.layout import ColumnGroup, fold, parts_of, sheet_of_cells


def test_so_many_columns_are_open_as_a_browser_draws_at_once() -> None:
    groups = [
        ColumnGroup("a", tuple(range(150))),
        ColumnGroup("b", tuple(range(150, 350))),
        ColumnGroup("c", tuple(range(350, 500))),
    ]
    shown = lambda opened: [group.name for group in fold(groups, opened) if not group.folded]  # noqa: E731
    assert shown(()) == []
    assert shown(("a", "b")) == ["a", "b"]
    assert shown(("a", "b", "c", "gone")) == ["b", "c"], "the one opened first is folded again"
    assert all(group.opened is not group.folded for group in fold(groups, ("b",)))


def test_a_suite_too_large_to_be_drawn_is_opened_part_by_part() -> None:
    parts = parts_of(ColumnGroup("vast", tuple(range(1000, 1450))))
    assert [part.name for part in parts] == ["vast 1–200", "vast 201–400", "vast 401–450"]
    assert [index for part in parts for index in part.columns] == list(range(1000, 1450))
    assert parts_of(ColumnGroup("small", (1, 2))) == [ColumnGroup("small", (1, 2))]


def test_cells_are_made_for_the_columns_that_are_wanted() -> None:
    sheet = sheet_of_cells([[Cell(column, CellState.UNCHANGED) for column in range(4)]], 4)
    assert list(sheet.cells(0, np.array([False, True, False, True]))) == [1, 3]
