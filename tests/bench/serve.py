"""A process of its own for what is measured over HTTP: the real API on a database, and beside it a bare endpoint."""

import sys
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy import create_engine

from backend.api import create_api
from backend.api.serving import make_server
from backend.services.config import ServiceConfig


def bare() -> FastAPI:
    """The yardstick: what FastAPI and uvicorn cost when they do nothing."""
    app = FastAPI()

    @app.get("/bare")
    def nothing() -> dict[str, str]:
        return {}

    app.state.hub = Quiet()
    return app


class Quiet:
    """A bare application streams nothing."""

    def end_streams(self) -> None:
        return


def api(database_url: str, directory: Path) -> FastAPI:
    config = ServiceConfig(database_url=database_url, redis_url="redis://127.0.0.1:1/0", data_dir=directory)
    return create_api(config, create_engine(database_url, pool_size=10))


def main(kind: str, port: int, *rest: str) -> None:
    app = bare() if kind == "bare" else api(rest[0], Path(rest[1]))
    make_server(app, host="127.0.0.1", port=port, log_level="warning").run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
