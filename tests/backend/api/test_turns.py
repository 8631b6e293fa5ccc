"""Large results take turns; nothing waits for ever."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from backend.api import turns
from backend.api.turns import LARGE, Turns


def test_large_ones_are_taken_one_after_another_in_the_order_in_which_they_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "LONGEST_S", 60.0)  # however slow this machine is
    line, inside, order = Turns(), [], []

    def take(number: int) -> int:
        with line.one(LARGE):
            inside.append(number)
            order.append(number)
            at_once = len(inside)
            time.sleep(0.01)
            inside.remove(number)
            return at_once

    with ThreadPoolExecutor(8) as pool, line.one(LARGE):
        taken = []
        for number in range(8):
            taken.append(pool.submit(take, number))
            while len(line) < number + 2:
                time.sleep(0.001)
    assert {one.result() for one in taken} == {1}
    assert order == list(range(8))


def test_a_small_one_does_not_wait() -> None:
    line = Turns()
    with line.one(LARGE), line.one(LARGE - 1):
        assert len(line) == 1


def test_the_next_begins_where_only_the_database_has_work_left() -> None:
    line = Turns()
    with line.one(LARGE) as first:
        first.end()
        with line.one(LARGE):
            assert len(line) == 1
    assert len(line) == 0


def test_an_error_ends_a_turn() -> None:
    line = Turns()
    with pytest.raises(RuntimeError), line.one(LARGE):
        raise RuntimeError
    assert len(line) == 0


def test_whoever_takes_long_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may itself wait for a lock that one of those behind it holds."""
    monkeypatch.setattr(turns, "LONGEST_S", 0.05)
    line, over = Turns(), threading.Event()

    def take() -> bool:
        with line.one(LARGE):
            return not over.is_set()

    with ThreadPoolExecutor(4) as pool, line.one(LARGE):
        beside = [pool.submit(take) for _ in range(4)]
        assert all(one.result(timeout=10) for one in beside)
        over.set()
    assert len(line) == 0
