"""Running the application under uvicorn so that Ctrl-C is quick although pages keep event streams open."""

import asyncio
import resource
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from backend.api.edge.connections import MOST_CONNECTIONS, PatientProtocol
from backend.api.edge.memory import give_back_when_quiet
from backend.api.edge.sharing import FairListener
from backend.connection_counts import ConnectionCounts

GRACE_S = 3
OPEN_FILES = (65_536, 10_240)
"""As many as are asked for; the second where the first are refused, as macOS does whatever limit it names."""


class Server(uvicorn.Server):
    """Ends the event streams before it waits for open requests; they would never end by themselves.

    With `counts`, it is one of several on the same socket, and takes its share of the connections.
    """

    def __init__(self, config: uvicorn.Config, counts: ConnectionCounts | None = None) -> None:
        super().__init__(config)
        self._counts = counts
        self._listeners: list[FairListener] = []

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or ():
            # asyncio does it only for sockets that were made with their protocol named. Without it the second part of
            # each answer waits for the first one's acknowledgement, 40 ms.
            if listener.family in (socket.AF_INET, socket.AF_INET6):
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        app: Any = self.config.app
        giving_back = asyncio.create_task(give_back_when_quiet(app.state.lanes), name="tidemark-memory")
        try:
            await super().serve(sockets=sockets)
        finally:
            giving_back.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._counts is None or sockets is None:
            return await super().startup(sockets=sockets)
        await super().startup(sockets=[])
        self._listeners = [FairListener(one, self._counts, self._load_now, self._protocol) for one in sockets]
        servers: list[Any] = self.servers
        servers += self._listeners

    async def on_tick(self, counter: int) -> bool:
        self._count()
        return await super().on_tick(counter)

    def _count(self) -> None:
        for listener in self._listeners:
            listener.count()

    def _load_now(self) -> int:
        """The busy connections; of two processes with as many, all of them. Whoever is full comes last."""
        connections: Any = self.server_state.connections
        held = min(len(connections), MOST_CONNECTIONS)
        busy = held if held == MOST_CONNECTIONS else sum(connection.is_busy for connection in connections)
        return busy * (MOST_CONNECTIONS + 1) + held

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = PatientProtocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, on_end=self._count
        )
        return protocol

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app: Any = self.config.app
        app.state.hub.end_streams()
        await super().shutdown(sockets=sockets)


def make_server(
    app: FastAPI, *, host: str, port: int, log_level: str = "info", counts: ConnectionCounts | None = None
) -> Server:
    """A server for this application. `run()` serves until SIGINT or SIGTERM. `counts`: others serve the same socket."""
    allow_many_open_files()
    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level=log_level,
            access_log=False,
            log_config=None,  # as every logger of the process, whatever that is
            server_header=False,
            date_header=True,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=30,
            http=PatientProtocol,
            ws="none",
        ),
        counts,
    )


def allow_many_open_files() -> None:
    """Every open page holds a connection. Most systems let a process open 1,024 files until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in OPEN_FILES:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        if soft == resource.RLIM_INFINITY or soft >= most:
            return
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return
