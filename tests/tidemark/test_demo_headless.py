"""What `tidemark demo --headless` makes of the findings: right only when everything is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemark.demo.headless import DemoOutcome, FoundRegression

PLANTED, FIX, OTHER = "a" * 40, "b" * 40, "c" * 40
HIT = FoundRegression(commit=PLANTED, cause="code", state="fixed", change=0.31, title="gpt.train", fixed_by=FIX)
RIGHT = DemoOutcome(
    planted=PLANTED, fix=FIX, measured=12, wanted=12, confirmed=(HIT,), failed=(), seconds=118.0,
    subjects={PLANTED: "Return attention weights"},
)  # fmt: skip


def test_exactly_the_planted_regression_its_cause_and_its_fix_is_right() -> None:
    assert RIGHT.right
    assert RIGHT.as_dict()["missed"] == RIGHT.as_dict()["false"] == []
    assert RIGHT.report().splitlines() == [
        "measured 12 of 12 commits in 118 s",
        "found    aaaaaaaaaa +31% cause code, fixed, by bbbbbbbbbb: Return attention weights",
        "right: exactly the planted regression, its commit, its cause and its fix",
    ]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (replace(RIGHT, confirmed=()), "missed   aaaaaaaaaa made it slower and was not confirmed"),
        (replace(RIGHT, confirmed=(replace(HIT, commit=OTHER),)), "false    cccccccccc +31% cause code, fixed"),
        (replace(RIGHT, confirmed=(HIT, replace(HIT, commit=OTHER))), "false    cccccccccc +31% cause code, fixed"),
        (replace(RIGHT, confirmed=(HIT, HIT)), "false    aaaaaaaaaa +31% cause code, fixed"),
        (replace(RIGHT, confirmed=(replace(HIT, cause="hardware"),)), "aaaaaaaaaa is code; it says hardware"),
        (replace(RIGHT, confirmed=(replace(HIT, cause=None),)), "the cause of aaaaaaaaaa is code; it says None"),
        (replace(RIGHT, confirmed=(replace(HIT, state="confirmed", fixed_by=None),)),
         "fixed it; it says confirmed"),
        (replace(RIGHT, confirmed=(replace(HIT, state="withdrawn"),)), "bbbbbbbbbb fixed it; it says withdrawn"),
        (replace(RIGHT, confirmed=(replace(HIT, fixed_by=OTHER),)), "it says fixed, by cccccccccc"),
        (replace(RIGHT, failed=(OTHER,)), "failed   cccccccccc"),
        (replace(RIGHT, measured=11), "measured 11 of 12 commits"),
    ],
)  # fmt: skip
def test_anything_else_is_wrong_and_said(wrong: DemoOutcome, line: str) -> None:
    assert not wrong.right
    assert line in wrong.report()
    assert wrong.report().endswith("wrong: see above")
    assert wrong.as_dict()["right"] is False


def test_what_the_api_says_is_read_by_its_names() -> None:
    item = {
        "commit": PLANTED, "cause": "code", "state": "fixed", "change": 0.31, "title": "gpt.train",
        "fixed_by": {"sha": FIX, "position": 10}, "confirmed_at": "2026-11-20T10:00:00Z",
    }  # fmt: skip
    assert FoundRegression.of(item) == HIT
    assert FoundRegression.of({**item, "fixed_by": None}).fixed_by is None
