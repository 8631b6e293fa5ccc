"""A remembered state must be no other than the one that its stored bytes hold."""

import random

import pytest

from backend.regression.judge import SeriesState, judge
from backend.regression.policy import Policy
from backend.regression.terms import Direction, Point, SeriesKind
from backend.services.remembered import RememberedStates

NOISY = SeriesKind(Direction.LOWER)
EXACT = SeriesKind(Direction.LOWER, exact=True)


def history(kind: SeriesKind, points: int) -> list[Point]:
    """A series that gets a third slower halfway, on two workers."""
    chance = random.Random(7)
    found = []
    for position in range(points):
        level = 3.0 if position < points // 2 else 4.0
        values = tuple(level if kind.exact else level * (1 + chance.gauss(0, 0.005)) for _ in range(3))
        found.append(Point(position, f"{position:040x}", values, "linux", f"worker-{position % 2}", "1"))
    return found


@pytest.mark.parametrize("kind", [NOISY, EXACT])
def test_judging_goes_on_alike_from_what_is_remembered_and_from_what_is_stored(kind: SeriesKind) -> None:
    states, policy, state = RememberedStates(), Policy(), SeriesState.new(kind)
    for point in history(kind, 120):
        stored = states.encoded(1, state)
        remembered, decoded = states.decoded(1, stored), RememberedStates().decoded(1, stored)
        assert remembered is state and decoded is not state
        judgement, state = judge(remembered, point, policy)
        same, other = judge(decoded, point, policy)
        assert judgement == same
        assert state.to_json() == other.to_json()


def test_what_is_not_stored_any_more_is_not_remembered() -> None:
    states = RememberedStates()
    before = SeriesState.new(NOISY)
    stored = states.encoded(1, before)
    _, after = judge(before, history(NOISY, 1)[0], Policy())
    states.encoded(1, after)  # by a transaction that is rolled back
    found = states.decoded(1, stored)
    assert found is not after and found.points == 0


def test_the_states_used_least_recently_leave_first() -> None:
    states = RememberedStates(most=2)
    first, second, third = (SeriesState.new(NOISY) for _ in range(3))
    stored = states.encoded(1, first)
    states.encoded(2, second)
    states.encoded(1, first)
    states.encoded(3, third)
    assert states.decoded(1, stored) is first
    assert states.decoded(2, stored) is not second
