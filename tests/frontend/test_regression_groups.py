"""The list of regressions: rows of one onset stand together, and what needs a person stands first."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from markupsafe import Markup

from backend.services.triage.views import CommitName, Regression
from frontend.regression_groups import By, Item, Sort, grouped

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
PLAIN: dict[str, Any] = dict.fromkeys(Regression.__dataclass_fields__)


def row(number: int, position: int, change: float = 0.1, **more: Any) -> Item:
    """A regression that began at a position, a day for each."""
    at = BEGAN + timedelta(days=position)
    onset = CommitName(sha=f"{position:040x}", position=position, message="m", author=f"a{position}", committed_at=at)
    known = {"id": number, "testbed": "cpu", "state": "confirmed", "suite": "moe", "change": change, "first_bad": onset}
    regression = Regression(**(PLAIN | known | {"opened_at": at, "held_back": False, "suspect_commits": 1} | more))
    return Item(regression=regression, headline="", sub="", interval="", still=Markup(""), spark=Markup(""),
                suspects="", open=True)  # fmt: skip


def shown(items: list[Item], by: By = By.ONSET, sort: Sort = Sort.NEWEST) -> list[tuple[str, list[int]]]:
    return [(group.title, [each.regression.id for each in group.items]) for group in grouped(items, by, sort)]


ROWS = [row(1, 5), row(2, 9, 0.06), row(3, 5, 0.2), row(4, 9, 0.08, owner="p"), row(5, 2, state="fixed")]


def test_rows_of_one_onset_stand_together_and_the_largest_leads() -> None:
    assert shown(ROWS) == [("Unassigned", [2, 3, 1]), ("Assigned", [4]), ("Recovered and closed", [5])]
    assert [each.follows for each in grouped(ROWS)[0].items] == [False, False, True]


@pytest.mark.parametrize(
    ("sort", "order"), [(Sort.NEWEST, [2, 3, 1]), (Sort.OLDEST, [3, 1, 2]), (Sort.LARGEST, [3, 1, 2])]
)
def test_onsets_stand_in_the_order_asked_for(sort: Sort, order: list[int]) -> None:
    assert shown(ROWS[:3], sort=sort) == [("Unassigned", order)]


def test_days_stand_newest_first_and_suites_by_name() -> None:
    assert [title for title, _ in shown(ROWS, By.DAY)] == ["2026-11-10", "2026-11-06", "2026-11-03"]
    others = [*ROWS, row(6, 1, suite="attn")]
    assert [title for title, _ in shown(others, By.SUITE)] == ["attn", "moe"]


def test_an_author_is_named_only_where_one_commit_is_left() -> None:
    several = [row(1, 5), row(2, 9, suspect_commits=4)]
    assert shown(several, By.AUTHOR) == [("One of several commits", [2]), ("a5", [1])]


def test_an_onset_of_another_testbed_is_another_onset() -> None:
    other = replace(ROWS[2], regression=replace(ROWS[2].regression, testbed="h200"))
    assert not any(each.follows for each in grouped([ROWS[0], other])[0].items)
