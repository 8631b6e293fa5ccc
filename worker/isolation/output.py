"""The output of a command: cut into bounded, clean lines, with progress separated from text.

Lines come from untrusted code: they may be endless, binary, or full of terminal tricks.
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


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteProgress:
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
        first, *others = _BREAKS.split(chunk)
        self._keep(first)
        if not others:
            return
        yield from self._take()
        last = others.pop()
        for piece in others:
            if len(piece) > MAX_LINE_BYTES:
                self._keep(piece)
                yield from self._take()
            elif piece:
                yield _text(piece)
        self._keep(last)

    def finish(self) -> Iterator[str]:
        yield from self._take()

    def _keep(self, piece: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._partial)
        self._partial += piece[:room]
        self._cut_bytes += max(0, len(piece) - room)

    def _take(self) -> Iterator[str]:
        # Empty lines carry nothing on a log page, and progress bars drawn with carriage returns make many.
        if self._partial:
            text = _text(bytes(self._partial))
            yield f"{text} … [{self._cut_bytes} more bytes cut]" if self._cut_bytes else text
        self._partial.clear()
        self._cut_bytes = 0


def _text(piece: bytes) -> str:
    text = clean(piece.decode("utf-8", errors="replace"))
    if len(text) * 3 > MAX_LINE_BYTES and len(encoded := text.encode()) > MAX_LINE_BYTES:
        # Replacement marks take more room than the bad bytes they stand for.
        return encoded[:MAX_LINE_BYTES].decode(errors="ignore")
    return text


def clean(text: str) -> str:
    """The text without terminal escapes and control characters; tabs stay."""
    if text.isprintable():  # as nearly every line is, and a flood of them has to be got through
        return text
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def parse_progress(line: str) -> SuiteProgress | None:
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
    return SuiteProgress(
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


class LastLines:
    """The last lines of one stream: what a failed run shows."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self.seen = 0

    def add(self, line: str) -> None:
        self.seen += 1
        self._lines.append(line)

    def lines(self) -> list[str]:
        return list(self._lines)


class LogFile:
    """The whole log of a run as far as it fits: its beginning, a note of what was left out, its end."""

    def __init__(self, limit_characters: int = 2_000_000) -> None:
        self._half = limit_characters // 2
        self._head: list[str] = []
        self._head_size = 0
        self._last: deque[str] = deque()
        self._last_size = 0
        self._left_out = 0

    def add(self, stream: str, line: str) -> None:
        text = f"{stream}: {line}\n"
        size = len(text)
        if not self._last and self._head_size + size <= self._half:
            self._head.append(text)
            self._head_size += size
            return
        self._last.append(text)
        self._last_size += size
        while self._last_size > self._half:
            self._last_size -= len(self._last.popleft())
            self._left_out += 1

    def write(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(self._head)
            if self._left_out:
                file.write(f"… {self._left_out} lines left out …\n")
            file.writelines(self._last)
