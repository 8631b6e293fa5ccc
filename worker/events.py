"""Events of a run in progress: steps, progress and log lines, sent in small batches by a separate thread.

Reporting an event never blocks: what does not fit is counted and left out. The log artifact has more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from worker.client import ApiRefusal, ApiUnreachable
from worker.isolation.output import OutputStream, SuiteProgress

log = logging.getLogger("tidemark.worker")

MAX_LINES_A_BATCH = 200
MAX_EVENTS_A_CALL = 150
# What a page shows is for people: a long burst is shown whole, a flood is thinned to what one can read.
LINES_AT_ONCE = 2000
LINES_PER_S = 20.0
KEPT_STATES = 50

# When it came (seconds since the epoch), where, and what it says.
LoggedLine = tuple[float, OutputStream, str]
Send = Callable[[Sequence[Mapping[str, Any]]], None]


class EventSender:
    """Use as a context: leaving it sends what is left, within a second or two."""

    def __init__(self, send: Send, interval_s: float) -> None:
        self._send = send
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._states: deque[dict[str, Any]] = deque(maxlen=KEPT_STATES)
        self._progress: dict[str, Any] | None = None
        self._lines: deque[LoggedLine] = deque()
        self._left_out = 0
        self._allowance = float(LINES_AT_ONCE)
        self._allowance_at = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemark-events", daemon=True)

    def __enter__(self) -> EventSender:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._thread.join(2.0)

    def state(self, step: str, **detail: Any) -> None:
        event = {"at": now_text(), "kind": "state", "detail": {"state": "running", "step": step, **detail}}
        with self._lock:
            self._states.append(event)

    def progress(self, progress: SuiteProgress) -> None:
        # Only the latest counts.
        event = {"at": now_text(), "kind": "progress", "detail": progress.as_detail()}
        with self._lock:
            self._progress = event

    def line(self, stream: OutputStream, line: str) -> None:
        with self._lock:
            self._lines.append((time.time(), stream, line))
            if len(self._lines) > MAX_LINES_A_BATCH:
                self._lines.popleft()
                self._left_out += 1

    def _run(self) -> None:
        while not self._closing.wait(self._interval_s):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        states, progress, lines, left_out = self._take()
        batch = [*states, *log_events(lines, left_out)]
        if progress is not None:
            batch.append(progress)
        if not batch:
            return
        try:
            for first in range(0, len(batch), MAX_EVENTS_A_CALL):
                self._send(batch[first : first + MAX_EVENTS_A_CALL])
        except ApiUnreachable:
            self._put_back(states, progress, lines, left_out)
        except ApiRefusal as refusal:
            # A lost lease is the heartbeat's to act on; a refused batch would be refused again.
            log.debug("events were refused: %s", refusal)

    def _take(self) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[LoggedLine], int]:
        with self._lock:
            now = time.monotonic()
            earned = (now - self._allowance_at) * LINES_PER_S
            self._allowance = min(float(LINES_AT_ONCE), self._allowance + earned)
            self._allowance_at = now
            while len(self._lines) > self._allowance:
                self._lines.popleft()
                self._left_out += 1
            self._allowance -= len(self._lines)
            taken = (list(self._states), self._progress, list(self._lines), self._left_out)
            self._states.clear()
            self._lines.clear()
            self._progress = None
            # A mention of what was left out takes a line too, so it waits for one.
            self._left_out = 0 if taken[2] else self._left_out
            return taken if taken[2] else (taken[0], taken[1], [], 0)

    def _put_back(
        self,
        states: list[dict[str, Any]],
        progress: dict[str, Any] | None,
        lines: list[LoggedLine],
        left_out: int,
    ) -> None:
        with self._lock:
            self._states.extendleft(reversed(states))
            self._progress = self._progress or progress
            room = MAX_LINES_A_BATCH - len(self._lines)
            kept = lines[-room:] if room > 0 else []
            self._lines.extendleft(reversed(kept))
            self._left_out += left_out + len(lines) - len(kept)


def log_events(lines: Sequence[LoggedLine], left_out: int) -> list[dict[str, Any]]:
    """Log events of consecutive lines of one stream."""
    events: list[dict[str, Any]] = []
    if left_out:
        at, stream, _ = lines[0]
        lines = [(at, stream, f"… {left_out} lines left out here …"), *lines[-(MAX_LINES_A_BATCH - 1) :]]
    for at, stream, line in lines:
        if events and events[-1]["detail"]["stream"] == stream:
            events[-1]["detail"]["lines"].append(line)
        else:
            events.append({"at": time_text(at), "kind": "log", "detail": {"stream": stream, "lines": [line]}})
    return events


def now_text() -> str:
    return time_text(time.time())


def time_text(at: float) -> str:
    """This worker's clock, for what it states. Nothing is decided by it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
