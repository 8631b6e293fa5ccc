"""Steps of `tidemark up` once the database runs: schema, tokens, sign-in links, the demo project.

A process of its own, because it imports what the supervisor (one thread, small) must not carry. It is told what to do
by its environment; it tells of what may take minutes, line by line, and answers with one JSON object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Engine

from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.services.base.principal import Scope
from tidemark import database
from tidemark.administration import account_name
from tidemark.app import make_engine
from tidemark.machine.datadir import ADMIN_TOKEN, WORKER_TOKEN, DataDirectory
from tidemark.quick import spare_the_collector
from tidemark.refusal import Refusal
from tidemark.settings import Settings, read_settings, service_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Result of preparing: links for the person, a token for the worker."""

    worker_token: str
    sign_in_links: tuple[str, str]  # one to print, one for a browser that is opened
    fresh: bool  # nothing was stored here before
    demo: str | None  # the demo project, when there is one


def prepare(settings: Settings, *, with_demo: bool, say: Callable[[str], None]) -> Prepared:
    """Brings a database and a data directory to where the service can start."""
    config = service_config(settings)
    database.make_ready(config.direct_database_url or config.database_url, begins=say)
    data = DataDirectory(settings.data_dir)
    engine = make_engine(config, connections=1)
    fresh = data.read_private(ADMIN_TOKEN) is None
    _keep_token(engine, data, ADMIN_TOKEN, "admin (data directory)", Scope.ADMIN)
    worker_token = _keep_token(engine, data, WORKER_TOKEN, "worker (data directory)", Scope.WORKER)
    demo = _demo_project(engine, config) if with_demo else None
    now = datetime.now(UTC)
    with engine.begin() as connection:
        links = (
            access.create_sign_in_link(connection, config, now, account_name()),
            access.create_sign_in_link(connection, config, now, account_name()),
        )
    engine.dispose()
    return Prepared(worker_token=worker_token, sign_in_links=links, fresh=fresh, demo=demo)


def _keep_token(engine: Engine, data: DataDirectory, file: str, name: str, scope: Scope) -> str:
    """The token in this file, known to the database: made when there is none, or when somebody has revoked it; stored
    again when the database is new."""
    kept = data.read_private(file)
    with engine.begin() as connection:
        if kept is not None and access.is_revoked(connection, kept):
            kept = None
        token = access.create_token(connection, name, [scope], now=datetime.now(UTC), secret=kept).token
    if kept is None:
        data.write_private(file, token)
    return token


def _demo_project(engine: Engine, config: ServiceConfig) -> str | None:
    """Makes the demo's repository and project at the first start; afterwards it is the person's, to keep or delete."""
    from tidemark.demo.project import ensure_demo_project

    with engine.begin() as connection:
        return ensure_demo_project(connection, config.data_dir)


def main() -> None:
    spare_the_collector()
    with os.fdopen(int(os.environ["TIDEMARK_RESULT_FD"]), "w") as told:
        say = partial(print, file=told, flush=True)
        try:
            prepared = prepare(read_settings(), with_demo="TIDEMARK_PREPARE_DEMO" in os.environ, say=say)
        except Refusal as refusal:
            raise SystemExit(str(refusal)) from None
        json.dump(asdict(prepared), told)


if __name__ == "__main__":
    main()
