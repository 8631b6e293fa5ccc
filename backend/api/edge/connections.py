"""Close connections that uvicorn would leave open for ever: no request arrives on them, or the response is not read."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADERS_S = 10.0
"""From the first byte of a request, or from connecting, to the end of its headers."""
LOOK_EVERY_S = 15.0
BUSY_S = 5.0
"""A connection on which nothing has come for so long is mostly an event stream, or kept for later."""
SLOWEST_BYTES_PER_S = 1024
"""A reader slower than this, while more than a buffer full waits for it, is cut off."""


MOST_CONNECTIONS = 900
"""Open at once in one process, event streams among them; a process may usually have 1,024 files open."""
FULL = b"too many connections are open; come back in a moment\n"


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to a connection too many."""
    headers = [(b"retry-after", b"5"), (b"connection", b"close"), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": FULL})


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol, with an end to its patience."""

    def __init__(self, *args: Any, on_end: Callable[[], None] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._on_end = on_end
        self._headers_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._heard_at = self.loop.time()

    @property
    def is_busy(self) -> bool:
        """Whether the client has sent something lately."""
        return bool(self.loop.time() - self._heard_at < BUSY_S)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self.app = _full
        self._headers_timer = self.loop.call_later(HEADERS_S, self._end_if_waiting)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)
        if not self._waits_for_headers():
            self._cancel_headers_timer()
        elif self._headers_timer is None:
            self._headers_timer = self.loop.call_later(HEADERS_S, self._end_if_waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_headers_timer()
        self._cancel_reader_timer()
        super().connection_lost(exc)
        if self._on_end is not None:
            self._on_end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._cancel_reader_timer()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self._reset()  # closing would wait until it is read
        else:
            super().timeout_keep_alive_handler()

    def _waits_for_headers(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _end_if_waiting(self) -> None:
        self._headers_timer = None
        if self._waits_for_headers():
            self._reset()

    def _watch_reader(self) -> None:
        self._cancel_reader_timer()
        waiting = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(LOOK_EVERY_S, self._end_if_slow, waiting)

    def _end_if_slow(self, waiting: int) -> None:
        """Nothing is written while the buffer is full: what has left it, the reader has taken."""
        if waiting - self.transport.get_write_buffer_size() < SLOWEST_BYTES_PER_S * LOOK_EVERY_S:
            self._reset()
        else:
            self._watch_reader()

    def _reset(self) -> None:
        """Close at once: what was not read is dropped, by the kernel too."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _cancel_headers_timer(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _cancel_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
