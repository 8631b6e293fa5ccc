"""The list of regressions: filtered, the newest first, page by page."""

from dataclasses import replace
from typing import Any

import pytest

from backend.services.base.errors import BadRequest
from backend.services.triage.views import RegressionFilter, count_by_state, list_regressions, newest_by_state


@pytest.fixture
def two(loom: Any) -> Any:
    """A loss of a quarter at 12, and a further one at 24."""
    loom.history([100.0] * 12 + [125.0] * 12 + [160.0] * 12)
    return loom


def test_pages_follow_each_other_the_newest_first(two: Any) -> None:
    wanted = RegressionFilter(project="northsea/loom", limit=1)
    first = list_regressions(two.connection, wanted)
    second = list_regressions(two.connection, replace(wanted, cursor=first.next))
    assert [found.first_bad.position for page in (first, second) for found in page.items if found.first_bad] == [24, 12]
    assert second.next is None


def test_states_are_counted_for_the_tabs(two: Any) -> None:
    assert count_by_state(two.connection, "northsea/loom")["confirmed"] == 2


def test_the_newest_of_several_groups_of_states_are_what_each_list_would_show(two: Any) -> None:
    wanted = RegressionFilter(project="northsea/loom")
    found = newest_by_state(two.connection, wanted, {"confirmed": 1, "suspect,acknowledged": 10, "closed": 10})
    for states, limit in (("confirmed", 1), ("suspect,acknowledged", 10), ("closed", 10)):
        alone = list_regressions(two.connection, replace(wanted, state=states, limit=limit))
        assert found[states] == list(alone.items)
    assert [len(each) for each in found.values()] == [1, 0, 0]
    elsewhere = replace(wanted, testbed="another")
    assert newest_by_state(two.connection, elsewhere, {"open": 10}) == {"open": []}


@pytest.mark.parametrize("wanted", [{"limit": 0}, {"state": "broken"}, {"cause": "weather"}, {"cursor": "first"}])
def test_what_no_regression_can_have_is_refused(loom: Any, wanted: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        list_regressions(loom.connection, RegressionFilter(**wanted))
