"""The body of a request on its way in: at a minimum pace, in memory while it is small, otherwise in a file.

Large bodies are read after their sender is known, and before the request gets a slot: a slow sender
delays nobody else.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import IO

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

SMALL_BYTES = 64 * 1024  # read from anybody
MEMORY_BYTES = 1024 * 1024  # beyond it a body is kept in a file
HEAVY_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 256 * 1024

GRACE_S = 15.0
SLOWEST_BYTES_PER_S = 32 * 1024


class BodyTooLarge(HTTPException):
    """More than this route takes."""


class BodyTooSlow(HTTPException):
    """Who sends so slowly has given up, or means to keep us waiting."""


class IncomingBody:
    """The body received so far, followed by the rest as it arrives."""

    def __init__(self, directory: Path) -> None:
        self.size = 0
        self._directory = directory
        self._pieces: list[bytes] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self._ended = False

    async def read(self, receive: Receive, limit: int) -> None:
        """Take in the whole body, `limit` bytes at most.

        Raises `BodyTooLarge`, `BodyTooSlow`, and `ClientDisconnect` when the sender hangs up.
        """
        started = time.monotonic()
        more = True
        while more:
            left = GRACE_S + self.size / SLOWEST_BYTES_PER_S - (time.monotonic() - started)
            try:
                async with asyncio.timeout(max(left, 0)):
                    message = await receive()
            except TimeoutError:
                raise BodyTooSlow(
                    408,
                    detail=f"{self.size} bytes of the body came in {time.monotonic() - started:.0f} s; after "
                    f"{GRACE_S:.0f} s at least {SLOWEST_BYTES_PER_S} bytes a second are expected",
                    headers={"Connection": "close"},
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            self.size += len(piece)
            if self.size > limit:
                raise BodyTooLarge(413, detail=f"the body has more than the {limit} bytes that are accepted")
            await self._keep(piece)
            more = message.get("more_body", False)
        if self._file is not None:
            await run_in_threadpool(self._write)
            self._file.seek(0)

    async def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > MEMORY_BYTES:
            await run_in_threadpool(self._write)

    def _write(self) -> None:
        if self._file is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._directory, prefix=".incoming-")  # noqa: SIM115
        self._file.write(b"".join(self._pieces))
        self._pieces, self._held = [], 0

    def receive_from(self, receive: Receive) -> Receive:
        """`receive` of the application: the body that was read, then whatever the connection says."""

        async def replay() -> Message:
            if self._ended:
                return await receive()
            if self._file is None:
                self._ended = True
                whole, self._pieces = b"".join(self._pieces), []
                return {"type": "http.request", "body": whole, "more_body": False}
            piece = self._file.read(PIECE_BYTES)
            self._ended = self._file.tell() >= self.size
            return {"type": "http.request", "body": piece, "more_body": not self._ended}

        return replay

    def close(self) -> None:
        """Forget what was received."""
        if self._file is not None:
            self._file.close()
