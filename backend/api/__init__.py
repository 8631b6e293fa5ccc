"""The HTTP side of the service: thin JSON routes under /api/v1, one transaction each, one kind of error document."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from starlette.middleware.gzip import GZipMiddleware

from backend.api import health, openapi, problems, schema
from backend.api.admin import (
    audit,
    members,
    notifications,
    policies,
    projects,
    pull_requests,
    sign_in,
    tokens,
    webhooks,
)
from backend.api.admission import Lanes, StreamPlaces
from backend.api.edge.middleware import Edge
from backend.api.metrics import Metrics
from backend.api.parameters import only_known_parameters
from backend.api.reads import badges, board, events, regressions, series, workers
from backend.api.results import artifacts, imports, runs, worker_protocol
from backend.api.turns import Turns
from backend.api.work import backfills, bisections, requests, sessions
from backend.routing import API_PREFIX
from backend.services.base.config import ServiceConfig
from backend.services.base.last_used import LastUsed
from backend.services.base.live import Hub
from backend.services.base.reads import LOOK_EVERY_S, Reads
from backend.services.github.oidc_access import Workflows
from backend.services.people.sign_in import providers_of

log = logging.getLogger("tidemark.api")

LAST_USED_S = 15.0
GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 5  # 9 costs three times the time for 2 % less

ROUTES = (
    runs,
    imports,
    worker_protocol,
    artifacts,
    board,
    series,
    regressions,
    requests,
    sessions,
    bisections,
    backfills,
    workers,
    policies,  # these before projects, whose path takes everything that follows
    members,
    notifications,
    audit,
    projects,
    pull_requests,
    tokens,
    webhooks,
    events,
    schema,
)


def create_api(config: ServiceConfig, engine: Engine, replica: Engine | None = None) -> FastAPI:
    """The application, which reads from the replica what it may. Pages are mounted on it by the frontend;
    `serving.make_server` runs it."""
    app = FastAPI(
        title="Tidemark",
        version=config.version,
        description="Watches the speed of PyTorch workloads commit by commit.",
        lifespan=_lifespan,
        docs_url=None,  # they load scripts from elsewhere, which the content security policy forbids
        redoc_url=None,
    )
    app.state.config = config
    app.state.engine = engine
    app.state.reads = Reads(engine, replica)
    app.state.hub = Hub(app.state.reads, listen_at=config.direct_database_url)
    app.state.workflows = Workflows.of(config.github_oidc_issuer, config.public_url)
    app.state.providers = providers_of(config)
    app.state.lanes = Lanes(config)
    app.state.turns = Turns()
    app.state.stream_places = StreamPlaces(config)
    app.state.last_used = LastUsed()
    app.state.metrics = Metrics(config.version, app.state.reads)
    app.include_router(health.router, responses=openapi.PROBLEMS)
    app.include_router(sign_in.router)
    app.include_router(badges.router, responses=openapi.PROBLEMS)
    known = [Depends(only_known_parameters)]
    for module in ROUTES:
        app.include_router(module.router, prefix=API_PREFIX, dependencies=known, responses=openapi.PROBLEMS)
    problems.install(app)
    openapi.install(app)
    # The last one added is the outermost: the edge sees every request and every response.
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_FROM_BYTES, compresslevel=GZIP_LEVEL)
    app.add_middleware(Edge, config=config, metrics=app.state.metrics, lanes=app.state.lanes)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.hub.start()
    threading.Thread(target=app.state.reads.open_early, name="tidemark-first-connection", daemon=True).start()
    tasks = [asyncio.create_task(_write_last_used(app), name="tidemark-last-used")]
    if app.state.reads.replica is not None:
        tasks.append(asyncio.create_task(_watch_replica(app.state.reads), name="tidemark-replica"))
    yield
    for task in tasks:
        task.cancel()
    await app.state.hub.stop()


async def _write_last_used(app: FastAPI) -> None:
    """Now and then, and on a connection that belongs to no request."""
    used: LastUsed = app.state.last_used

    def write() -> None:
        with app.state.engine.begin() as c:
            used.write(c)

    while True:
        await asyncio.sleep(LAST_USED_S)
        if not used.is_empty:
            try:
                await asyncio.to_thread(write)
            except SQLAlchemyError as error:
                log.warning("when tokens were last used could not be written: %s", error)


async def _watch_replica(reads: Reads) -> None:
    while True:
        await asyncio.to_thread(reads.look)
        await asyncio.sleep(LOOK_EVERY_S)
