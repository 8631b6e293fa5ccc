"""Progress: a bar with the time left on a terminal, plain lines elsewhere, and lines a worker can read."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field

PREFIX = "::tidemark-progress "
_WIDTH = 24


@dataclass(slots=True)
class ProgressBar:
    """Counts processes done out of all planned; the time left is reckoned from those done."""

    total: int
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    machine: bool = field(default_factory=lambda: os.environ.get("TIDEMARK_PROGRESS") == "1")
    quiet: bool = False

    def starting(self, note: str) -> None:
        """Announce the next process."""
        self._report(note)

    def finished(self, note: str, *, of_plan: int = 1) -> None:
        """One process done; or several at once, where a failed check spares the rest of them."""
        self.done += of_plan
        self._report(note)

    def grow(self, more: int) -> None:
        """The plan grew (adaptive repeats) or shrank."""
        self.total = max(self.done, self.total + more)

    @property
    def eta_s(self) -> float | None:
        """Seconds left, by the average so far; None before the first is done."""
        if not self.done:
            return None
        return (time.monotonic() - self.started) / self.done * (self.total - self.done)

    def _report(self, note: str) -> None:
        if self.quiet:
            return
        eta = self.eta_s
        if self.machine:
            line = {
                "done": self.done,
                "total": self.total,
                "note": note,
                "eta_s": None if eta is None else round(eta, 1),
            }
            print(PREFIX + json.dumps(line, ensure_ascii=False), flush=True)
        if sys.stderr.isatty():
            filled = _WIDTH * self.done // max(self.total, 1)
            left = "" if eta is None else f", {eta:.0f} s left"
            sys.stderr.write(
                f"\r\x1b[K[{'#' * filled}{'.' * (_WIDTH - filled)}] {self.done}/{self.total}{left}  {note}"
            )
            if self.done >= self.total:
                sys.stderr.write("\n")
            sys.stderr.flush()
