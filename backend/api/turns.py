"""Large results are judged one after another in a process, those that take long aside.

Python runs one thread at a time. Threads that judge at the same time take that right from each other a thousand times
a run, which costs up to 80 % more CPU (docs/decisions/0035-large-results-take-turns.md).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 32_768
"""Bytes of a result from which on it takes turns. Of a smaller one the database does as much of the work as Python, and
others use that time."""
LONGEST_S = 0.25
"""After so long, or up to twice that, the next one begins beside it: this one may be very large, or wait for a lock of
the database."""


class Turns:
    """Those of one process, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Turn] = deque()

    def __len__(self) -> int:
        """How many have a turn or wait for one."""
        return len(self._line)

    @contextmanager
    def one(self, size: int) -> Iterator[Turn]:
        """Wait for a turn for a result of so many bytes. It ends with the block, or before, by `Turn.end`."""
        turn = Turn(self)
        if size < LARGE:
            yield turn
            return
        with self._lock:
            self._line.append(turn)
            self._begin_first()
        try:
            while not turn.begins.wait(LONGEST_S):
                self._pass_by_the_slow()
            yield turn
        finally:
            turn.end()

    def end(self, turn: Turn) -> None:
        with self._lock:
            if turn in self._line:
                self._line.remove(turn)
                self._begin_first()

    def _pass_by_the_slow(self) -> None:
        with self._lock:
            if self._line and time.monotonic() - self._line[0].began >= LONGEST_S:
                self._line.popleft()
                self._begin_first()

    def _begin_first(self) -> None:
        if self._line and not self._line[0].begins.is_set():
            self._line[0].began = time.monotonic()
            self._line[0].begins.set()


class Turn:
    """The right to judge; the others wait for its end."""

    def __init__(self, of: Turns) -> None:
        self._of = of
        self.begins = threading.Event()
        self.began = 0.0

    def end(self) -> None:
        """What is left to do is mostly the database's work: the next one may begin."""
        self._of.end(self)
