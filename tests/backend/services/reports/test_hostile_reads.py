"""Reads meet whatever strangers type: nothing of it is an error of ours."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from backend.services.base.errors import BadRequest, NotFound
from backend.services.board import board
from backend.services.comparison import commits as comparison
from backend.services.queue import view as queue_view
from backend.services.reports import overview, search
from backend.services.reports.history import SeriesQuery, list_series, load_points, load_series
from backend.services.runs import view as run_view

PROJECT = "northsea/loom"
HOSTILE = {
    "nul": "\x00",
    "nul within": "a\x00b",
    "broken surrogate": "\udc80",
    "quote": "' OR 1=1 --",
    "percent": "%",
    "underscore": "_",
    "backslash": "\\",
    "array": "{1,2}",
    "right to left": "\u202etxet",
    "emoji": "🚀" * 100,
    "long": "x" * 10_000,
    "negative": "-1",
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


@hostile
@pytest.mark.parametrize(
    "read",
    [
        lambda c, t: board.load_board(c, board.BoardQuery(project=PROJECT, text=t, commit_text=t, metric=t)),
        lambda c, t: board.load_board(c, board.BoardQuery(project=PROJECT, suites=(t,))),
        lambda c, t: list_series(c, SeriesQuery(project=PROJECT, text=t)),
        lambda c, t: list_series(c, SeriesQuery(project=PROJECT, suite=t, benchmark=t, metric=t)),
        lambda c, t: search.search(c, t, PROJECT),
        lambda c, t: queue_view.queue(c, testbed=t),
    ],
)
def test_filters_take_any_text_literally(history: Any, read: Callable[[Connection, str], object], text: str) -> None:
    read(history.connection, text)


@hostile
@pytest.mark.parametrize(
    "read",
    [
        lambda c, t: board.load_board(c, board.BoardQuery(project=t)),
        lambda c, t: board.load_board(c, board.BoardQuery(project=PROJECT, branch=t)),
        lambda c, t: board.load_board(c, board.BoardQuery(project=PROJECT, testbed=t)),
        lambda c, t: board.load_board(c, board.BoardQuery(project=PROJECT, cursor=t)),
        lambda c, t: board.load_board(c, board.BoardQuery(project=PROJECT, range=t)),
        lambda c, t: comparison.compare_commits(c, PROJECT, t, "main"),
        run_view.load_run,
        overview.load_worker,
        overview.first_run,
    ],
)
def test_names_of_nothing_are_refused(history: Any, read: Callable[[Connection, str], object], text: str) -> None:
    with pytest.raises((NotFound, BadRequest)) as caught:
        read(history.connection, text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**63, 10**30])
def test_numbers_out_of_range_are_no_series(history: Any, number: int) -> None:
    with pytest.raises(NotFound):
        load_points(history.connection, number)
    with pytest.raises(NotFound):
        load_series(history.connection, number)
