"""States of series that this process saw last, so that a result which follows another need not read them again.

A state is stored as a whole and a tail (`backend/regression/series/tail.py`); the tail names its whole. What is
remembered is found by the stored tail: whatever another process has written in the meantime, or a rollback has undone,
is simply not what is remembered, and is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

from sqlalchemy import Connection

from backend.records import record
from backend.regression.series import tail as tails
from backend.regression.series.state import SeriesState
from backend.regression.terms import Judgement
from backend.store.base import wire
from backend.store.judging import series as series_store
from backend.store.judging.series import NewState, SeriesRow

MOST = 4096  # of some ten kilobytes each


@record()
class StoredState:
    """The parts of a state that are to be written."""

    whole: bytes | None
    """None: the one that is stored stays."""
    tail: bytes | None
    """None: the whole says everything."""


@record(eq=False)
class _Remembered:
    stored: bytes
    """The tail, or the whole where there is none."""
    state: SeriesState
    key: bytes
    whole: SeriesState
    """The state that the stored whole holds."""


class Forgotten(LookupError):
    """A state cannot be restored from its tail and the remembered whole (any more)."""


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
        """What to store for the series' new state; the next reader in this process gets exactly this state.

        `row` is the series as stored and locked: a tail is written only if it names the whole stored there.
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


# --- read and stored -------------------------------------------------------------------------------------------------


def states_of(c: Connection, series: Sequence[SeriesRow]) -> dict[int, SeriesState]:
    """The judge's state of each of these series, which the caller has locked."""
    found: dict[int, SeriesState] = {}
    forgotten = []
    for row in series:
        try:
            found[row.id] = state_of(row)
        except Forgotten:
            forgotten.append(row)
    if forgotten:
        wholes = series_store.load_wholes(c, [row.id for row in forgotten])
        found.update({row.id: state_of(replace(row, state=wholes[row.id])) for row in forgotten})
    return found


def state_of(series: SeriesRow) -> SeriesState:
    if series.state is None and series.state_tail is None:
        return SeriesState.new(series.kind)
    # The role may have changed since: it decides what turns red, not how a series is judged.
    state, kind = STATES.decoded(series), series.kind
    return state if state.kind == kind else replace(state, kind=kind)


def save_states(c: Connection, states: Mapping[SeriesRow, SeriesState]) -> None:
    """Store what people or a session made of states: no run was judged, and no noise is new."""
    new = []
    for row, state in states.items():
        stored = STATES.encoded(row, state)
        new.append(
            NewState(
                series_id=row.id,
                state=stored.whole,
                state_tail=stored.tail,
                position=state.last_position,
                profile=None,
            )
        )
    if new:
        wire.send(c, series_store.save_statement(new, None))


def new_state(series: SeriesRow, state: SeriesState, judgement: Judgement) -> NewState:
    stored, profile = STATES.encoded(series, state), None
    if stored.whole is not None:  # noise is what the model says, and a new model is a new whole
        profile = {"noise": judgement.noise, "minimum_detectable_effect": judgement.minimum_detectable_effect}
    return NewState(
        series_id=series.id,
        state=stored.whole,
        state_tail=stored.tail,
        position=state.last_position,
        profile=profile,
    )
