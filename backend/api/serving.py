"""Running the application under uvicorn so that Ctrl-C is quick although pages keep event streams open."""

import socket
from typing import Any

import uvicorn
from fastapi import FastAPI

GRACE_S = 3


class Server(uvicorn.Server):
    """Ends the event streams before it waits for open requests; they would never end by themselves."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app: Any = self.config.app
        app.state.hub.end_streams()
        await super().shutdown(sockets=sockets)


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
        )
    )
