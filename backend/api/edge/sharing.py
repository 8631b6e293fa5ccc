"""Several processes accept connections from one socket: the one with the fewest busy ones takes the next.

Left alone, the process that wakes first takes every connection that waits, and serves it for as long as the client
keeps it. Of eight clients that deliver all day, seven may then be served by one process while the other is idle.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from backend.connection_counts import AWAY, ConnectionCounts

log = logging.getLogger("tidemark.serving")

WAIT_S = 0.001
TURNS = 10
"""A process with more connections than another leaves it the next for so many waits: the other may be busy, or dead."""
BACKLOG = 2048
"""Connections that may wait to be accepted."""
AGAIN_S = 0.5
"""After an error, such as too many open files."""


class FairListener:
    """Accepts connections from a socket for one of several processes. Ends like a server of asyncio."""

    def __init__(
        self,
        listening: socket.socket,
        counts: ConnectionCounts,
        load_now: Callable[[], int],
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listening = listening.dup()  # the server closes its own at once, when it ends
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._counts, self._load_now, self._make_protocol = counts, load_now, make_protocol
        self._task = asyncio.create_task(self._accept_for_ever(), name="tidemark-accept")

    def close(self) -> None:
        self._counts.write(AWAY)
        self._task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._task])

    def count(self) -> None:
        """Write how many connections there are: after each that begins or ends, and now and then."""
        if not (self._task.cancelling() or self._task.done()):
            self._counts.write(self._load_now())

    async def _accept_for_ever(self) -> None:
        with self._listening:
            self.count()
            while True:
                try:
                    await self._accept_one()
                except Exception:  # whatever it was, a process that accepts no more would be as good as dead
                    log.exception("a connection could not be accepted")
                    await asyncio.sleep(AGAIN_S)

    async def _accept_one(self) -> None:
        await self._wait_for_one()
        for _ in range(TURNS):
            if self._counts.has_fewest():
                break
            await asyncio.sleep(WAIT_S)
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # another process took it, or the client is gone
        connection.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(self._make_protocol, connection)
        self.count()

    async def _wait_for_one(self) -> None:
        loop = asyncio.get_running_loop()
        waits: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._listening, _tell, waits)
        try:
            await waits
        finally:
            loop.remove_reader(self._listening)


def _tell(waits: asyncio.Future[None]) -> None:
    if not waits.done():
        waits.set_result(None)
