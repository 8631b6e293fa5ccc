"""A regression that bought something: what got better in the same benchmark at the same commit is told with it."""

from typing import Any

import pytest

from backend.services.triage.detail import get_regression
from backend.services.triage.views import RegressionFilter, list_regressions


@pytest.mark.parametrize(
    ("step_ms", "traded"),
    [
        (80.0, [("step_ms", -0.2)]),
        (100.0, []),
    ],
)
def test_twice_the_memory_for_a_faster_step_says_both(loom: Any, step_ms: float, traded: list[Any]) -> None:
    for position in range(44):
        after = position >= 20
        memory = loom.measurement("mem_bytes", 2e9 if after else 1e9, seed=position, unit="B", noise=0.0005)
        loom.deliver(
            loom.run_of(position, [loom.measurement("step_ms", step_ms if after else 100.0, seed=position), memory])
        )
    (found,) = list_regressions(loom.connection, RegressionFilter(metric="mem_bytes")).items
    detail = get_regression(loom.connection, found.id)
    assert [(each.metric, pytest.approx(each.change, abs=0.01)) for each in detail.traded_for] == traded


@pytest.mark.parametrize(("apart", "told"), [(3, True), (4, False)])
def test_a_gain_four_commits_away_is_another_story(loom: Any, apart: int, told: bool) -> None:
    for position in range(48):
        memory = loom.measurement("mem_bytes", 2e9 if position >= 20 else 1e9, seed=position, unit="B", noise=0.0005)
        step = loom.measurement("step_ms", 60.0 if position >= 20 + apart else 100.0, seed=position, noise=0.001)
        loom.deliver(loom.run_of(position, [step, memory]))
    (found,) = list_regressions(loom.connection, RegressionFilter(metric="mem_bytes")).items
    assert bool(get_regression(loom.connection, found.id).traded_for) is told


def test_its_own_end_three_commits_later_is_no_gain(loom: Any) -> None:
    for position in range(44):
        syncs = loom.measurement("host_syncs", 4 if 20 <= position < 23 else 3, seed=position, unit="1", exact=True)
        loom.deliver(loom.run_of(position, [syncs]))
    (found,) = list_regressions(loom.connection, RegressionFilter(metric="host_syncs")).items
    assert found.state == "fixed"
    assert get_regression(loom.connection, found.id).traded_for == ()
