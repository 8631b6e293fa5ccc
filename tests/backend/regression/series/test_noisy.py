"""A point, a run, a history and a preview: whichever way points are judged, the same is said of them."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.regression.policy import Policy
from backend.regression.series.history import REPORTED_STATES, enter, replay
from backend.regression.series.judge import judge, judge_histories, judge_history, judge_many
from backend.regression.series.state import SeriesState
from backend.regression.terms import Direction, Point, Role, SeriesKind
from tests.backend.regression.judge_histories import POLICIES, any_history

KINDS = (
    SeriesKind(Direction.LOWER),
    SeriesKind(Direction.HIGHER, Role.WATCH),
    SeriesKind(Direction.LOWER, exact=True),
)


def point_by_point(points, kind, policy):
    """What is said of each point, and what is remembered after it."""
    state, judged, states = SeriesState.new(kind), [], []
    for point in points:
        judgement, state = judge(state, point, policy)
        judged.append(judgement)
        states.append(state.to_json())
    return judged, states


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_a_point_a_run_a_history_and_a_preview_say_the_same(seed):
    chance = np.random.default_rng(seed)
    runs = int(chance.integers(30, 160))
    kinds = [KINDS[number] for number in chance.integers(0, len(KINDS), 8)]
    policies = [POLICIES[number] for number in chance.integers(0, len(POLICIES), 8)]
    histories = [any_history(int(chance.integers(2**32)), runs, kind.exact) for kind in kinds]
    alone = [point_by_point(*of_one) for of_one in zip(histories, kinds, policies, strict=True)]

    states = [SeriesState.new(kind) for kind in kinds]
    for number in range(runs):
        together = judge_many([(s, h[number], p) for s, h, p in zip(states, histories, policies, strict=True)])
        states = [after for _, after in together]
        assert [said for said, _ in together] == [judged[number] for judged, _ in alone]
        assert [after.to_json() for after in states] == [known[number] for _, known in alone]

    cut = int(chance.integers(0, runs))
    first = judge_histories(
        [(SeriesState.new(k), h[:cut], p) for k, h, p in zip(kinds, histories, policies, strict=True)]
    )
    rest = judge_histories([(state, h[cut:], p) for (_, state), h, p in zip(first, histories, policies, strict=True)])
    for (judged, known), (earlier, _), (later, after) in zip(alone, first, rest, strict=True):
        assert [*earlier, *later] == judged
        assert after.to_json() == known[-1]

    for points, kind, policy, (judged, _) in zip(histories, kinds, policies, alone, strict=True):
        events = chain.from_iterable(judgement.events for judgement in judged)
        assert replay(enter(points, kind), policy) == [
            e for e in events if e.past_threshold and e.state in REPORTED_STATES
        ]


def test_a_history_is_judged_the_same_from_any_of_its_states():
    points, policy = any_history(5, 120), Policy()
    whole, after = judge_history(points, KINDS[0], policy)
    for cut in range(0, 120, 7):
        earlier, state = judge_history(points[:cut], KINDS[0], policy)
        stored = SeriesState.from_json(state.to_json())
        later, end = judge_history(points[cut:], KINDS[0], policy, stored)
        assert [*earlier, *later] == whole
        assert end.to_json() == after.to_json()


def test_the_state_that_is_judged_from_stays_as_it_is():
    points, policy = any_history(6, 60), Policy()
    state = judge_history(points[:30], KINDS[0], policy)[1]
    before = state.to_json()
    judge_history(points[30:], KINDS[0], policy, state)
    assert state.to_json() == before


def test_nothing_to_judge_is_no_judgement():
    assert judge_many([]) == []
    assert judge_histories([(SeriesState.new(KINDS[0]), (), Policy())])[0][0] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_that_is_not_after_the_last_one_is_refused(kind):
    state = judge(SeriesState.new(kind), Point(5, "c", (1.0,)), Policy())[1]
    with pytest.raises(ValueError, match="position 5 is not after 5"):
        judge_many([(state, Point(5, "c", (1.0,)), Policy())])


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_value_without_a_relative_change_is_refused(value):
    with pytest.raises(ValueError, match="has no relative change"):
        judge(SeriesState.new(KINDS[0]), Point(5, "c", (1.0, value)), Policy())


def test_a_point_without_values_is_refused():
    with pytest.raises(ValueError, match="has no values"):
        judge(SeriesState.new(KINDS[0]), Point(5, "c", ()), Policy())
