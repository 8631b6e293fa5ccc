"""Which ranges can be bisected, and what the others are refused with."""

from typing import Any

import pytest
from sqlalchemy import text

from backend.services.plans.bisection_range import BisectionObstacle, bisection_obstacle


@pytest.fixture
def slowed(loom: Any) -> Any:
    """Delivered from elsewhere: the commit after the last good one is a fifth slower."""
    loom.history([100.0] * 24 + [120.0] * 3)
    return loom


def obstacle(loom: Any) -> BisectionObstacle | None:
    return bisection_obstacle(loom.connection, loom.value("SELECT id FROM regression"))


def widen(loom: Any) -> None:
    """The last good commit is four commits earlier."""
    loom.connection.execute(
        text(
            """UPDATE regression SET last_good_position = 20, last_good_commit_id =
               (SELECT commit_id FROM branch_commit WHERE position = 20)"""
        )
    )


def test_a_range_of_one_commit_is_closed_already(slowed: Any) -> None:
    found = obstacle(slowed)
    assert found is not None and "is the only commit after the last good one" in found.reason


def test_a_closed_regression_is_not_bisected(slowed: Any) -> None:
    slowed.connection.execute(text("UPDATE regression SET state = 'expected'"))
    found = obstacle(slowed)
    assert found is not None and found.reason.endswith("is expected: only open regressions are bisected")


def test_whoever_measures_elsewhere_learns_the_commit_that_halves_the_range(slowed: Any) -> None:
    widen(slowed)
    found = obstacle(slowed)
    assert found is not None and "were delivered from elsewhere" in found.reason
    assert (found.suite, found.measure_next) == ("gpt", slowed.sha_of(22))


def test_a_regression_that_is_not_there_has_no_obstacle(slowed: Any) -> None:
    assert bisection_obstacle(slowed.connection, 999) is None
