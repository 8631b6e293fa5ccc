"""A remembered state must be no other than the one that its stored bytes hold."""

import random
from dataclasses import replace

import pytest

from backend.regression.policy import Policy
from backend.regression.series.judge import judge, judge_history
from backend.regression.series.state import SeriesState
from backend.regression.terms import Direction, Point, SeriesKind
from backend.services.judging.state_cache import Forgotten, RememberedStates, StoredState
from backend.store.judging.series import SeriesRow

NOISY = SeriesKind(Direction.LOWER)
EXACT = SeriesKind(Direction.LOWER, exact=True)


def history(kind: SeriesKind, points: int) -> list[Point]:
    """A series that gets a third slower halfway, on two workers."""
    chance = random.Random(7)
    found = []
    for position in range(points):
        level = 3.0 if position < points // 2 else 4.0
        values = tuple(level if kind.exact else level * (1 + chance.gauss(0, 0.005)) for _ in range(3))
        found.append(Point(position, f"{position:040x}", values, f"worker-{position % 2}"))
    return found


class Store:
    """One series as its row holds it: the whole is written where it is given, the tail every time."""

    def __init__(self, kind: SeriesKind) -> None:
        self.row = SeriesRow(
            id=1, suite="gpt", suite_version="1", benchmark="gpt.train", variant_key="", preset="cpu", metric="step_ms",
            unit="ms", direction=kind.direction.value, role=kind.role.value, exact=kind.exact, state=None,
            state_tail=None, state_position=None,
        )  # fmt: skip
        self.wholes = 0

    def write(self, stored: StoredState) -> None:
        self.wholes += stored.whole is not None
        whole = self.row.state if stored.whole is None else stored.whole
        self.row = replace(self.row, state=whole, state_tail=stored.tail)

    @property
    def without_whole(self) -> SeriesRow:
        return self.row if self.row.state_tail is None else replace(self.row, state=None)


@pytest.mark.parametrize("kind", [NOISY, EXACT])
def test_judging_goes_on_alike_from_what_is_remembered_and_from_what_is_stored(kind: SeriesKind) -> None:
    states, policy, state, store = RememberedStates(), Policy(), SeriesState.new(kind), Store(kind)
    for point in history(kind, 400):
        store.write(states.encoded(store.row, state))
        remembered, decoded = states.decoded(store.without_whole), RememberedStates().decoded(store.row)
        assert remembered is state and decoded is not state
        judgement, state = judge(remembered, point, policy)
        same, other = judge(decoded, point, policy)
        assert judgement == same
        assert state.to_json() == other.to_json()


def test_most_runs_of_a_noisy_series_write_its_tail_alone() -> None:
    states, policy, state, store = RememberedStates(), Policy(), SeriesState.new(NOISY), Store(NOISY)
    for point in history(NOISY, 400):
        state = judge(state, point, policy)[1]
        store.write(states.encoded(store.row, state))
    assert store.wholes < 60
    assert len(store.row.state_tail or b"") < 800 < len(store.row.state or b"")


def test_a_process_that_has_the_whole_goes_on_with_the_tail_that_another_wrote() -> None:
    first, second, policy, store = RememberedStates(), RememberedStates(), Policy(), Store(NOISY)
    state = SeriesState.new(NOISY)
    asked = 0
    for number, point in enumerate(history(NOISY, 150)):
        turn = (first, second)[number % 2]
        if store.row.state is not None:
            try:
                read = turn.decoded(store.without_whole)
            except Forgotten:
                asked += 1
                read = turn.decoded(store.row)
            assert read.to_json() == state.to_json()
            state = read
        state = judge(state, point, policy)[1]
        store.write(turn.encoded(store.row, state))
    assert 0 < asked < 60


def test_what_is_not_stored_any_more_is_not_remembered() -> None:
    states, store = RememberedStates(), Store(NOISY)
    points = history(NOISY, 20)
    state = judge_history(points[:15], NOISY, Policy())[1]
    store.write(states.encoded(store.row, state))
    for point in points[15:]:
        _, after = judge(states.decoded(store.row), point, Policy())
        states.encoded(store.row, after)  # by a transaction that is rolled back
        found = states.decoded(store.row)
        assert found is not after and found.points == 15


def test_the_whole_of_a_transaction_that_was_rolled_back_has_no_tails() -> None:
    states, store = RememberedStates(), Store(NOISY)
    points = history(NOISY, 20)
    state = judge_history(points[:15], NOISY, Policy())[1]
    store.write(states.encoded(store.row, state))
    lost = judge_history(points[:19], NOISY, Policy())[1]
    assert states.encoded(store.row, lost).whole is not None
    after = judge(lost, points[19], Policy())[1]
    assert states.encoded(store.row, after).whole is not None
    with pytest.raises(Forgotten):
        states.decoded(store.without_whole)


def test_the_states_used_least_recently_leave_first() -> None:
    states = RememberedStates(most=2)
    first, second, third = (SeriesState.new(NOISY) for _ in range(3))
    row = Store(NOISY).row
    stored = states.encoded(row, first)
    states.encoded(replace(row, id=2), second)
    states.encoded(row, first)
    states.encoded(replace(row, id=3), third)
    assert states.decoded(replace(row, state=stored.whole)) is first
    assert states.decoded(replace(row, id=2, state=stored.whole)) is not second
