"""A process of its own for what is measured over HTTP: the real API on a database, and beside it its yardsticks."""

import socket
import sys
from pathlib import Path

from fastapi import FastAPI, Request, Response

from backend.api import create_api
from backend.api.admission import Lanes
from backend.api.edge.memory import settle_memory
from backend.api.edge.serving import Server, make_server
from backend.connection_counts import ConnectionCounts
from backend.services.base.config import ServiceConfig
from frontend.app import mount
from tests.bench import floor_service
from tidemark.app import make_engine


def bare() -> FastAPI:
    """The yardstick: what FastAPI and uvicorn cost when they do nothing."""
    app = FastAPI()

    @app.get("/bare")
    def nothing() -> dict[str, str]:
        return {}

    @app.put("/bare")
    async def take(request: Request) -> Response:
        await request.body()
        return Response(b"{}", media_type="application/json")

    app.state.hub = Quiet()
    app.state.lanes = Lanes(unhurried("", Path()))
    return app


class Quiet:
    """A bare application streams nothing."""

    def end_streams(self) -> None:
        return


def unhurried(database_url: str, directory: Path) -> ServiceConfig:
    """What is measured is how fast it answers, not how often it would."""
    return ServiceConfig(
        database_url=database_url,
        redis_url="redis://127.0.0.1:1/0",
        data_dir=directory,
        requests_per_token=10**9,
        requests_per_address=10**9,
    )


def api(database_url: str, directory: Path) -> FastAPI:
    """As `tidemark serve` makes it, without the pages."""
    config = unhurried(database_url, directory)
    return create_api(config, make_engine(config))


def pages(database_url: str, directory: Path) -> FastAPI:
    """The same, with the pages."""
    config = unhurried(database_url, directory)
    engine = make_engine(config)
    app = create_api(config, engine)
    mount(app, config, engine)
    return app


def floor(database_url: str, directory: Path) -> FastAPI:
    """What a delivery costs where it is parsed and stored, and nothing else."""
    app = floor_service.floor(database_url)
    app.state.hub = Quiet()
    app.state.lanes = Lanes(unhurried(database_url, directory))
    return app


class Told(Server):
    """Says on its standard output when it accepts connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print("ready", flush=True)


def main(kind: str, shared: str, *rest: str) -> None:
    """`shared`: the listening socket; after it the connection counts and a place, if several processes serve it."""
    listening_fd, *others = map(int, shared.split(":"))
    app = bare() if kind == "bare" else {"api": api, "pages": pages, "floor": floor}[kind](rest[0], Path(rest[1]))
    config = make_server(app, host="127.0.0.1", port=0, log_level="warning").config
    server = Told(config, ConnectionCounts(*others) if others else None)
    settle_memory()
    server.run(sockets=[socket.socket(fileno=listening_fd)])


if __name__ == "__main__":
    main(*sys.argv[1:])
