"""States of series that this process saw last, so that a result which follows another need not decode them again.

A state is found by its stored bytes: whatever another process has written in the meantime, or a rollback has undone,
is simply not what is remembered, and is decoded.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import orjson

from backend.regression.judge import SeriesState

MOST = 4096  # of some ten kilobytes each


class RememberedStates:
    """The newest states by their series, least recently used ones leave first."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._states: OrderedDict[int, tuple[bytes, SeriesState]] = OrderedDict()
        self._lock = Lock()

    def decoded(self, series_id: int, stored: bytes) -> SeriesState:
        """The state that these bytes hold."""
        with self._lock:
            known = self._states.get(series_id)
        if known is not None and known[0] == stored:
            return known[1]
        return SeriesState.from_json(orjson.loads(stored))

    def encoded(self, series_id: int, state: SeriesState) -> bytes:
        """The bytes to store; whoever reads them in this process soon gets this very state."""
        stored = orjson.dumps(state.to_json())
        with self._lock:
            self._states[series_id] = (stored, state)
            self._states.move_to_end(series_id)
            if len(self._states) > self._most:
                self._states.popitem(last=False)
        return stored


STATES = RememberedStates()
