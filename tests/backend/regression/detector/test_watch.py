"""Judging many series at once says what judging each by itself says."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.regression.policy import Policy
from backend.regression.series.judge import judge, judge_many
from backend.regression.series.state import SeriesState
from backend.regression.terms import Direction, Judgement, Point, Role, SeriesKind

KINDS = (
    SeriesKind(Direction.LOWER),
    SeriesKind(Direction.HIGHER, Role.WATCH),
    SeriesKind(Direction.LOWER, exact=True),
)


def history(chance: np.random.Generator, runs: int, kind: SeriesKind) -> list[Point]:
    """Noise around levels that step, drift, spike and return; now and then another worker."""
    if kind.exact:
        steps = np.cumsum(chance.random(runs) < 0.05)
        return [Point(n, "c", (100.0 + 10 * (steps[n] % 3),)) for n in range(runs)]
    noise = 10 ** chance.uniform(-4, -1.3)
    level = np.log(10.0) + np.zeros(runs)
    for _ in range(chance.integers(0, 4)):
        at = chance.integers(0, runs)
        level[at:] += chance.normal(0, 0.1)
    if chance.random() < 0.3:
        level += np.linspace(0, chance.uniform(0, 0.3), runs)
    spikes = np.where(chance.random(runs) < 0.02, chance.exponential(0.8, runs), 0.0)
    processes = int(chance.integers(1, 6))
    of_run = (level + spikes + chance.normal(0, noise, runs))[:, None]
    values = np.exp(of_run + chance.normal(0, noise, (runs, processes)))
    workers = np.where(chance.random(runs) < 0.1, "box-2", "box-1")
    return [Point(3 * n, "c", tuple(map(float, values[n])), worker=str(workers[n])) for n in range(runs)]


def same(one: tuple[Judgement, SeriesState], other: tuple[Judgement, SeriesState]) -> None:
    assert one[0] == other[0]
    assert one[1].to_json() == other[1].to_json()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_many_series_at_once_are_judged_as_each_by_itself(seed: int) -> None:
    chance = np.random.default_rng(seed)
    policies = (Policy(), Policy(memory_runs=60), Policy(min_baseline_runs=8, sustained_runs=4))
    kinds = [KINDS[n] for n in chance.integers(0, len(KINDS), 9)]
    of = [policies[n] for n in chance.integers(0, len(policies), 9)]
    runs = int(chance.integers(20, 140))
    histories = [history(chance, runs, kind) for kind in kinds]
    alone = [SeriesState.new(kind) for kind in kinds]
    together = list(alone)
    for step in range(runs):
        points = [points[step] for points in histories]
        judged = judge_many(list(zip(together, points, of, strict=True)))
        for number, found in enumerate(judged):
            own = judge(alone[number], points[number], of[number])
            same(found, own)
            alone[number], together[number] = own[1], found[1]


def test_nothing_to_judge_is_no_judgement() -> None:
    assert judge_many([]) == []


def test_a_point_that_is_not_after_the_last_one_is_refused() -> None:
    state = judge(SeriesState.new(KINDS[0]), Point(5, "c", (1.0,)), Policy())[1]
    with pytest.raises(ValueError, match="position 5 is not after 5"):
        judge_many([(state, Point(5, "c", (1.0,)), Policy())])
