"""How much disk a run takes, looked at while it runs: there is no quota that every file system has."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

LOOK_EVERY_S = 1.0
COUNT_EVERY_S = 5.0
SHARE_OF_TIME = 0.02
"""Counting takes a core for a moment: with many files it is done less often, so that it disturbs nothing."""
COUNT_LIMIT_S = 120.0


class DiskWatch:
    """While it is entered, `trouble` says why the run must end: it takes more than `limit_bytes` in its directories, or
    the disk below them has less than `least_free_bytes` left. Files that were removed and are still open count for the
    second alone."""

    def __init__(self, places: Sequence[Path], limit_bytes: int, least_free_bytes: int) -> None:
        self._places = places
        self._limit_bytes = limit_bytes
        self._least_free_bytes = least_free_bytes
        self._over = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._watch, name="disk-watch", daemon=True)

    def trouble(self) -> str | None:
        return self._trouble

    def __enter__(self) -> DiskWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        count_at = time.monotonic() + LOOK_EVERY_S
        while self._trouble is None and not self._over.wait(LOOK_EVERY_S):
            self._trouble = self._too_little_free()
            began = time.monotonic()
            if self._trouble is None and began >= count_at:
                self._trouble = self._too_much_taken()
                took = time.monotonic() - began
                count_at = time.monotonic() + max(COUNT_EVERY_S, took / SHARE_OF_TIME)

    def _too_little_free(self) -> str | None:
        for place in self._places:
            if place.exists() and shutil.disk_usage(place).free < self._least_free_bytes:
                return f"less than {self._least_free_bytes / 1e9:.1f} GB were left on this worker's disk"
        return None

    def _too_much_taken(self) -> str | None:
        taken = taken_bytes([place for place in self._places if place.exists()])
        if taken <= self._limit_bytes:
            return None
        return (
            f"its directory held {taken / 1e9:.1f} GB; at most {self._limit_bytes / 1e9:.1f} GB are accepted here "
            "(TIDEMARK_WORKER_RUN_GB)"
        )


def taken_bytes(places: Sequence[Path]) -> int:
    """Bytes that these directories take on disk, as far as can be seen; without following links, and however deep."""
    if not places:
        return 0
    try:
        counted = subprocess.run(
            ["du", "-skx", "--", *map(str, places)], capture_output=True, timeout=COUNT_LIMIT_S, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(1024 * int(line.split(b"\t")[0]) for line in counted.stdout.splitlines())
