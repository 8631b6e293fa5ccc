"""How loaded each of several API processes is with connections, in memory that all of them share."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

AWAY = 2**31 - 1
"""The number of connections of a process that accepts none."""
_BYTES = 4


class ConnectionCounts:
    """One number for each process, by its place; only that process writes it while it lives.

    Event streams and connections that are kept for later count only between processes that are equally busy.
    """

    def __init__(self, fd: int, place: int) -> None:
        self._counts = memoryview(mmap.mmap(fd, 0)).cast("i")
        self._place = place

    @staticmethod
    @contextmanager
    def file_for(processes: int) -> Iterator[IO[bytes]]:
        """The memory, as a file without a name; nobody accepts connections yet."""
        with tempfile.TemporaryFile(prefix="tidemark-connections-") as file:
            file.write(AWAY.to_bytes(_BYTES, "little") * processes)
            file.flush()
            yield file

    def write(self, count: int) -> None:
        self._counts[self._place] = count

    def has_fewest(self) -> bool:
        return self._counts[self._place] <= min(self._counts)

    def all(self) -> list[int]:
        """By place, AWAY for a process that accepts none."""
        return self._counts.tolist()
