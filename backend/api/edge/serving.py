"""Running the application under uvicorn so that Ctrl-C is quick although pages keep event streams open."""

import gc
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI

from backend.api.edge.connections import PatientProtocol

GRACE_S = 3


class Server(uvicorn.Server):
    """Ends the event streams before it waits for open requests; they would never end by themselves."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or ():
            # asyncio does it only for sockets that were made with their protocol named. Without it the second part of
            # each answer waits for the first one's acknowledgement, 40 ms.
            if listener.family in (socket.AF_INET, socket.AF_INET6):
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await super().serve(sockets=sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app: Any = self.config.app
        app.state.hub.end_streams()
        await super().shutdown(sockets=sockets)


def settle_memory() -> None:
    """For a process that does nothing but serve: what it is made of stays, and need not be searched for garbage.

    A delivery makes tens of thousands of objects and no cycles; with the usual thresholds the collector went through
    all of them, and through every module, several times for each.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def make_server(app: FastAPI, *, host: str, port: int, log_level: str = "info") -> Server:
    """A server for this application. `run()` serves until SIGINT or SIGTERM."""
    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level=log_level,
            access_log=False,
            server_header=False,
            date_header=True,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=30,
            http=PatientProtocol,
        )
    )
