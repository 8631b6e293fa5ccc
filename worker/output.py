"""What a command prints: cut into bounded, clean lines, with its progress told apart from its words.

Lines come from code nobody has vetted: they may be endless, binary, or full of terminal tricks.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

PROGRESS_MARK = "::tidemark-progress "
# The API takes lines up to 4 kB; the note on what was cut has to fit in as well.
MAX_LINE_BYTES = 4000
TAIL_LINES = 200
MAX_PROGRESS = 1e12

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# C0 and C1 controls except the tab, and the marks that turn reading direction around.
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_BREAKS = re.compile(rb"\r\n|\n|\r")


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a suite is, in its own words. `eta_s` is seconds from now, as it estimates them."""

    done: float
    total: float | None
    note: str
    eta_s: float | None

    def as_detail(self) -> dict[str, Any]:
        return {"done": self.done, "total": self.total, "note": self.note, "eta_s": self.eta_s}


class Lines:
    """Cuts a stream of bytes into lines no longer than MAX_LINE_BYTES; holds at most one line in memory."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._cut_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        start = 0
        for found in _BREAKS.finditer(chunk):
            self._keep(chunk[start : found.start()])
            start = found.end()
            yield from self._take()
        self._keep(chunk[start:])

    def finish(self) -> Iterator[str]:
        yield from self._take()

    def _keep(self, piece: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._partial)
        self._partial += piece[:room]
        self._cut_bytes += max(0, len(piece) - room)

    def _take(self) -> Iterator[str]:
        # Empty lines carry nothing on a log page, and progress bars drawn with carriage returns make many.
        if self._partial or self._cut_bytes:
            text = clean(self._partial.decode("utf-8", errors="replace"))
            if len(encoded := text.encode()) > MAX_LINE_BYTES:  # replacement marks take more room than bad bytes
                text = encoded[:MAX_LINE_BYTES].decode(errors="ignore")
            yield f"{text} … [{self._cut_bytes} more bytes cut]" if self._cut_bytes else text
        self._partial.clear()
        self._cut_bytes = 0


def clean(text: str) -> str:
    """The text without terminal escapes and control characters; tabs stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def parse_progress(line: str) -> Progress | None:
    """The progress a line states, or None when it is an ordinary line (or a malformed statement, shown as is)."""
    if not line.startswith(PROGRESS_MARK):
        return None
    try:
        stated = json.loads(line[len(PROGRESS_MARK) :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(stated, dict):
        return None
    done = _number(stated.get("done"))
    if done is None:
        return None
    note = stated.get("note")
    return Progress(
        done=done,
        total=_number(stated.get("total")),
        note=note[:200] if isinstance(note, str) else "",
        eta_s=_number(stated.get("eta_s")),
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if 0 <= as_float < MAX_PROGRESS else None  # NaN compares false


class Tail:
    """The last lines of one stream: what a failed run shows."""

    def __init__(self, limit: int = TAIL_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self.seen = 0

    def add(self, line: str) -> None:
        self.seen += 1
        self._lines.append(line)

    def lines(self) -> list[str]:
        return list(self._lines)


class LogFile:
    """The whole log of a run as far as it fits: the first bytes, a note of what was left out, the last bytes."""

    def __init__(self, limit_bytes: int = 2_000_000) -> None:
        self._half = limit_bytes // 2
        self._head: list[str] = []
        self._head_bytes = 0
        self._last: deque[str] = deque()
        self._last_bytes = 0
        self._left_out = 0

    def add(self, stream: str, line: str) -> None:
        text = f"{stream}: {line}\n"
        size = len(text.encode())
        if not self._last and self._head_bytes + size <= self._half:
            self._head.append(text)
            self._head_bytes += size
            return
        self._last.append(text)
        self._last_bytes += size
        while self._last_bytes > self._half:
            self._last_bytes -= len(self._last.popleft().encode())
            self._left_out += 1

    def write(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(self._head)
            if self._left_out:
                file.write(f"… {self._left_out} lines left out …\n")
            file.writelines(self._last)
