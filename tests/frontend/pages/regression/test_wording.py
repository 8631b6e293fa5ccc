"""A regression in a few words."""

from typing import Any

import pytest

from backend.services.triage.views import CommitName, Regression
from frontend.pages.regression.wording import interval_of, name_of, still, suspects, worsened

PLAIN: dict[str, Any] = dict.fromkeys(Regression.__dataclass_fields__)


def regression(**known: Any) -> Regression:
    return Regression(**(PLAIN | {"state": "confirmed", "unit": "ms", "direction": "lower"} | known))


def test_it_is_called_by_benchmark_and_variant() -> None:
    assert name_of(regression(benchmark="moe.layer", variant="experts=64,dtype=bf16")) == (
        "moe.layer experts=64, dtype=bf16"
    )
    assert name_of(regression()) == "a series that is gone"


def test_more_time_is_slower() -> None:
    assert worsened(regression()) == "slower"


def test_an_interval_that_does_not_hold_the_change_is_not_shown() -> None:
    known = regression(change_low=0.05, change_high=0.15)
    assert interval_of(known, 0.1) != ""
    assert interval_of(known, 0.2) == interval_of(known, None) == interval_of(regression(), 0.1) == ""


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"still_bad": True}, "still"),
        ({"still_bad": False}, "✓ recovered"),
        ({"state": "fixed"}, "✓ recovered"),
        ({"state": "expected", "still_bad": True}, "new baseline"),
        ({"state": "invalid", "still_bad": True}, "not real"),
        ({"state": "withdrawn", "still_bad": True}, "not real"),
    ],
)
def test_how_it_stands_now_is_one_word(known: dict[str, Any], said: str) -> None:
    assert still(regression(**known)).striptags() == said


def test_the_commit_that_fixed_it_is_named_unless_there_is_no_room() -> None:
    by = CommitName(sha="c0ffee" * 6 + "abcd", position=9, message="m", author="a", committed_at=None)
    fixed = regression(state="fixed", fixed_by=by)
    assert "by c0ffeec" in still(fixed) and "by" not in still(fixed, short=True)
    assert suspects(fixed) == "fixed by c0ffeec"


def test_suspects_are_counted() -> None:
    assert [suspects(regression(suspect_commits=number)) for number in (None, 1, 4)] == [
        "from the first run on",
        "this commit alone",
        "one of 4 commits",
    ]
