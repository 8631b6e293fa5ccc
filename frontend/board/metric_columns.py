"""A small board shows each gate metric in a column of its own, and a speed where gates only count.

A cell is the worst gate metric of its variant. Where cells are wide enough to show values, a column in which time and
memory alternate would be unreadable, so the same board is read once for each metric and laid side by side.
"""

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection

from backend.services.board import board as boards
from backend.services.board.cells import Cell, CellState
from backend.services.board.model import Board, BoardQuery
from backend.services.board.watched import WatchedSpeed, watched_speeds
from backend.services.reports.columns import Column
from frontend.board.layout import FEW_COLUMNS, Sheet, sheet_of, sheet_of_cells


def with_metric_columns(c: Connection, board: Board, query: BoardQuery) -> tuple[Board, Sheet]:
    """The board with a column for each variant and metric, where that many fit; else as it is."""
    metrics = board.metrics
    if query.metric or len(metrics) < 2 or not 0 < len(board.columns) * len(metrics) <= FEW_COLUMNS:
        return board, with_watched_speeds(c, board) if len(board.columns) <= FEW_COLUMNS else sheet_of(board)
    # Which rows there are was decided over all metrics; a row that one of them moved shows the others as well.
    plain = replace(query, only_changed=False, states=())
    of_metric = [boards.load_board(c, replace(plain, metric=metric)) for metric in metrics]
    found_rows = [{row.sha: row for row in each.rows} for each in of_metric]
    if any(row.sha not in rows for row in board.rows for rows in found_rows):
        return board, sheet_of(board)  # further apart than a page reaches, or recorded in between
    by_metric = [[tuple(rows[row.sha].cells) for row in board.rows] for rows in found_rows]
    columns: list[Column] = []
    merged: list[list[Cell]] = [[] for _ in board.rows]
    for column in board.columns:
        for metric, each, rows in zip(metrics, of_metric, by_metric, strict=True):
            index = next((i for i, other in enumerate(each.columns) if other.key == column.key), None)
            if index is None:
                continue
            series = None
            for found, cells in zip(merged, rows, strict=True):
                for cell in cells:
                    if cell.column == index:
                        found.append(cell._replace(column=len(columns)))
                        series = series or cell.series_id
            columns.append(named(column, metric, series))
    return replace(board, columns=tuple(columns)), sheet_of_cells(merged, len(columns))


QUIET = (CellState.UNCHANGED, CellState.INSUFFICIENT)


def with_watched_speeds(c: Connection, board: Board) -> Sheet:
    """The board's cells; where nothing but counts is judged and none of them moved, a cell shows the watched speed.
    What it says of the verdict stays the count's."""
    speeds = watched_speeds(c, board)
    if not speeds:
        return sheet_of(board)
    return sheet_of_cells(
        [[_sped(cell, row.position, speeds) for cell in row.cells] for row in board.rows], len(board.columns)
    )


def _sped(cell: Cell, position: int, speeds: Mapping[int, WatchedSpeed]) -> Cell:
    speed = speeds.get(cell.column)
    if speed is None or cell.state not in QUIET or position not in speed.values:
        return cell
    return cell._replace(
        value=speed.values[position], unit=speed.unit, metric=speed.metric, series_id=speed.series_id, change=None
    )


def named(column: Column, metric: str, series: int | None) -> Column:
    """The variant's column for one metric."""
    lone = column.label == column.benchmark.rpartition(".")[2]
    return replace(
        column,
        key=f"{column.key}|{metric}",
        label=metric if lone else f"{column.label} {metric}",
        series=() if series is None else (series,),
    )
