"""States of series that this process saw last, so that a result which follows another need not read them again.

A state is stored as a whole and a tail (`backend/regression/series/tail.py`); the tail names its whole. What is
remembered is found by the stored tail: whatever another process has written in the meantime, or a rollback has undone,
is simply not what is remembered, and is read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from backend.regression.series import tail as tails
from backend.regression.series.judge import SeriesState
from backend.store.judging.series import SeriesRow

MOST = 4096  # of some ten kilobytes each


@dataclass(frozen=True, slots=True)
class StoredState:
    """What is to be written of a state."""

    whole: bytes | None
    """None: the one that is stored stays."""
    tail: bytes | None
    """None: the whole says everything."""


@dataclass(frozen=True, slots=True, eq=False)
class _Remembered:
    stored: bytes
    """The tail, or the whole where there is none."""
    state: SeriesState
    key: bytes
    whole: SeriesState
    """The state that the stored whole holds."""


class Forgotten(LookupError):
    """A state cannot be told from its tail and what is remembered (any more)."""


class RememberedStates:
    """The newest states by their series, least recently used ones leave first."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._states: OrderedDict[int, _Remembered] = OrderedDict()
        self._lock = Lock()

    def decoded(self, row: SeriesRow) -> SeriesState:
        """The state that is stored for this series, which has one; `Forgotten` where its whole must be read first."""
        known = self._states.get(row.id)
        if row.state_tail is None:
            assert row.state is not None
            if known is not None and known.stored == row.state:
                return known.state
            return tails.read_whole(row.state)
        if known is not None and known.stored == row.state_tail:
            return known.state
        key = tails.key_of(row.state_tail)
        if known is not None and known.key == key:
            whole = known.whole
        elif row.state is not None:
            whole = tails.read_whole(row.state)
        else:
            raise Forgotten(row.id)
        state = tails.read_tail(whole, row.state_tail)
        self._remember(row.id, _Remembered(row.state_tail, state, key, whole))
        return state

    def encoded(self, row: SeriesRow, state: SeriesState) -> StoredState:
        """What to store of the series' new state; whoever reads it in this process soon gets this very state.

        `row` is the series as it is stored and locked: a tail is written only where it names the whole in there.
        """
        known = self._states.get(row.id)
        if known is not None and row.state_tail is not None and known.key == tails.key_of(row.state_tail):
            tail = tails.write_tail(known.whole, known.key, state)
            if tail is not None:
                self._remember(row.id, _Remembered(tail, state, known.key, known.whole))
                return StoredState(None, tail)
        whole, key = tails.write_whole(state)
        tail = tails.write_tail(state, key, state)
        self._remember(row.id, _Remembered(whole if tail is None else tail, state, key, state))
        return StoredState(whole, tail)

    def _remember(self, series_id: int, found: _Remembered) -> None:
        with self._lock:
            self._states[series_id] = found
            self._states.move_to_end(series_id)
            if len(self._states) > self._most:
                self._states.popitem(last=False)


STATES = RememberedStates()


def read_state(row: SeriesRow) -> SeriesState | None:
    """The state of a series that was read with its whole; for who only looks, and need not be remembered for it."""
    if row.state is None:
        return None
    whole = tails.read_whole(row.state)
    return whole if row.state_tail is None else tails.read_tail(whole, row.state_tail)
