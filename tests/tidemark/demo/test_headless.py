"""What `tidemark demo --headless` makes of the findings: right only when everything is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemark.demo.headless import DemoOutcome, FoundRegression, read_board
from tidemark.demo.repository import Planted

FIXED, FIX, LASTING, OTHER = "a" * 40, "b" * 40, "d" * 40, "c" * 40
FIRST = FoundRegression(commit=FIXED, cause="code", state="fixed", change=0.31, title="gpt.train", fixed_by=FIX)
SECOND = FoundRegression(commit=LASTING, cause="code", state="confirmed", change=0.8, title="moe.layer", fixed_by=None)
RUNS = frozenset({(FIXED, "gpt"), (FIX, "gpt"), (LASTING, "moe")})
RIGHT = DemoOutcome(
    planted=(Planted(suite="gpt", sha=FIXED, fixed_by=FIX), Planted(suite="moe", sha=LASTING, fixed_by=None)),
    wanted=RUNS, measured=RUNS, failed=frozenset(), confirmed=(SECOND, FIRST), seconds=118.0,
    subjects={FIXED: "Return attention weights", LASTING: "Sum by a product"},
)  # fmt: skip


def test_exactly_what_was_planted_its_cause_and_its_fix_is_right() -> None:
    assert RIGHT.right
    assert RIGHT.as_dict()["missed"] == RIGHT.as_dict()["false"] == []
    assert RIGHT.report().splitlines() == [
        "measured 3 of 3 runs in 118 s",
        "planted  aaaaaaaaaa makes gpt slower: Return attention weights",
        "planted  dddddddddd makes moe slower: Sum by a product",
        "found    aaaaaaaaaa +31% cause code, fixed, by bbbbbbbbbb: Return attention weights",
        "found    dddddddddd +80% cause code, confirmed: Sum by a product",
        "right: exactly the planted regressions, their commits, their cause and what fixed them",
    ]


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        (None, SECOND, "missed   aaaaaaaaaa made gpt slower and was not confirmed"),
        (FIRST, None, "missed   dddddddddd made moe slower and was not confirmed"),
        (FIRST, replace(SECOND, commit=OTHER), "false    cccccccccc +80% cause code, confirmed"),
        (FIRST, replace(FIRST, state="confirmed"), "false    aaaaaaaaaa +31% cause code, confirmed"),
        (replace(FIRST, cause="hardware"), SECOND, "aaaaaaaaaa is code; it says hardware"),
        (replace(FIRST, cause=None), SECOND, "the cause of aaaaaaaaaa is code; it says None"),
        (replace(FIRST, state="confirmed", fixed_by=None), SECOND, "fixed it; it says confirmed"),
        (replace(FIRST, state="withdrawn"), SECOND, "bbbbbbbbbb fixed it; it says withdrawn"),
        (replace(FIRST, fixed_by=OTHER), SECOND, "it says fixed, by cccccccccc"),
        (FIRST, replace(SECOND, state="fixed", fixed_by=OTHER), "nothing fixed dddddddddd; it says fixed, by ccccc"),
    ],
)  # fmt: skip
def test_anything_else_is_wrong_and_said(
    first: FoundRegression | None, second: FoundRegression | None, line: str
) -> None:
    wrong = replace(RIGHT, confirmed=tuple(one for one in (first, second) if one is not None))
    assert not wrong.right
    assert line in wrong.report()
    assert wrong.report().endswith("wrong: see above")
    assert wrong.as_dict()["right"] is False


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (replace(RIGHT, failed=frozenset({(LASTING, "moe")})), "failed   moe at dddddddddd"),
        (replace(RIGHT, measured=frozenset({(FIX, "gpt")})), "measured 1 of 3 runs"),
    ],
)
def test_a_run_that_failed_or_is_missing_is_wrong_too(wrong: DemoOutcome, line: str) -> None:
    assert not wrong.right
    assert line in wrong.report()


def test_what_the_api_says_is_read_by_its_names() -> None:
    item = {
        "commit": FIXED, "cause": "code", "state": "fixed", "change": 0.31, "title": "gpt.train",
        "fixed_by": {"sha": FIX, "position": 10}, "confirmed_at": "2026-11-20T10:00:00Z",
    }  # fmt: skip
    assert FoundRegression.of(item) == FIRST
    assert FoundRegression.of({**item, "fixed_by": None}).fixed_by is None


def test_a_cell_is_of_the_suite_of_its_column() -> None:
    board = {
        "columns": [{"suite": "attention"}, {"suite": "gpt"}, {"suite": "moe"}],
        "rows": [
            {"sha": FIXED, "cells": {"column": [1], "state": ["regression"]}},
            {"sha": LASTING, "cells": {"column": [0, 2], "state": ["queued", "failed"]}},
        ],
    }
    measured, failed = read_board(board)
    assert measured == {(FIXED, "gpt"), (LASTING, "moe")}
    assert failed == {(LASTING, "moe")}
