"""What grows is told from what only goes up and down."""

from __future__ import annotations

import random

import pytest

from tests.soak.trends import trend


def samples(slope_per_hour: float, noise: float, minutes: float = 30.0) -> list[tuple[float, float]]:
    chance = random.Random(1)
    times = [2.0 * n for n in range(int(minutes * 30))]
    return [(at, 100.0 + slope_per_hour * at / 3600 + chance.gauss(0, noise)) for at in times]


@pytest.mark.parametrize(("per_hour", "noise", "leaks"), [(0.0, 3.0, False), (10.0, 1.0, False), (60.0, 3.0, True)])
def test_a_leak_is_growth_beyond_a_quarter_in_an_hour_beyond_doubt(per_hour: float, noise: float, leaks: bool) -> None:
    found = trend("api: memory", samples(per_hour, noise))
    assert found.leaks is leaks
    assert found.slope_low <= per_hour <= found.slope_high
    assert not trend("database: size", samples(per_hour, noise)).leaks


def test_what_is_taken_while_starting_up_is_no_growth() -> None:
    starting = [(at, 50.0 + at) if at < 100 else (at, 150.0) for at in range(0, 1000, 2)]
    found = trend("api: memory", starting)
    assert (found.first, found.last, found.slope) == (150.0, 150.0, 0.0)


def test_a_few_minutes_judge_nothing() -> None:
    assert not trend("api: memory", samples(300.0, 1.0, minutes=5)).leaks
