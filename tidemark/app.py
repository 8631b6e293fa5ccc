"""The composition root: where the parts of Tidemark are assembled into processes.

Everything is imported inside the functions, so that each process loads only what it needs.
"""

from __future__ import annotations

import gc
import re
import signal
import socket
import threading
from typing import TYPE_CHECKING

from tidemark import exposure
from tidemark.quick import spare_it_no_longer
from tidemark.refusal import Refusal
from tidemark.settings import Settings, service_config, version

if TYPE_CHECKING:
    from fastapi import FastAPI
    from sqlalchemy import Engine

    from backend.services.base.config import ServiceConfig
    from tidemark.monitoring.logs import Format
    from worker.config import WorkerConfig


ALIVE = {"keepalives_idle": 60, "tcp_user_timeout": 10_000}
"""Asks after a connection that rests, in seconds, and gives up one whose other end is gone, in milliseconds: a firewall
may have forgotten it, and would say nothing. Neither ends a slow statement."""


def make_engine(config: ServiceConfig, *, connections: int | None = None) -> Engine:
    """The process's connections to PostgreSQL, by default as many as the API needs; one that the server has closed is
    replaced unnoticed."""
    from sqlalchemy import create_engine

    from backend.store.base.pool import check_rested
    from backend.store.base.wire import prepare_nothing

    engine = create_engine(
        config.database_url,
        pool_size=connections or config.connections,
        max_overflow=connections or 0,
        pool_timeout=10,
        pool_use_lifo=True,  # PostgreSQL's process behind the connection used last has the most in its caches
        connect_args={**ALIVE, "connect_timeout": 10, "application_name": "tidemark"},
    )
    check_rested(engine)
    if not config.prepared_statements:
        prepare_nothing(engine)
    return engine


def make_replica(config: ServiceConfig) -> Engine | None:
    """The process's connections to the read replica, if there is one. If it does not answer, it is given up early: the
    primary answers instead."""
    from sqlalchemy import create_engine

    from backend.store.base.wire import prepare_nothing

    if config.read_database_url is None:
        return None
    engine = create_engine(
        config.read_database_url,
        pool_size=config.reads_at_once + 1,
        max_overflow=0,
        pool_timeout=2,
        pool_use_lifo=True,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 2, "tcp_user_timeout": 3000, "application_name": "tidemark reads"},
    )
    if not config.prepared_statements:
        prepare_nothing(engine)
    return engine


def make_app(config: ServiceConfig, engine: Engine) -> FastAPI:
    """The API with the pages mounted into it."""
    from backend.api import create_api
    from frontend.app import mount

    app = create_api(config, engine, make_replica(config))
    mount(app, config, engine)
    return app


def serve(
    settings: Settings,
    *,
    listening_fd: int | None = None,
    after_fd: int | None = None,
    processes: int = 1,
    connections_fd: int | None = None,
    place: int = 0,
) -> None:
    """Runs the API and the pages until told to stop; with `after_fd`, once the other end of that pipe is closed; with
    `connections_fd`, as one of several, at this place among them."""
    exposure.check(settings)
    config = service_config(settings)
    from tidemark.machine import ports

    # The supervisor keeps the socket while this process is replaced: a page asked for meanwhile waits, and is served.
    given = None if listening_fd is None else socket.socket(fileno=listening_fd)
    listening = given or ports.listen(settings.host, settings.port)
    if processes > 1:
        from tidemark.several import serve_several

        serve_several(listening, processes, after_fd=after_fd)
        return
    gc.disable()  # until memory is settled: what is imported stays
    from backend.api.edge.memory import settle_memory
    from backend.api.edge.serving import make_server
    from backend.connection_counts import ConnectionCounts
    from tidemark.monitoring.logs import log_to_stdout

    log_to_stdout(settings.log_format)
    engine = make_engine(config)
    app = make_app(config, engine)
    if settings.otlp_endpoint is not None:
        from tidemark.monitoring.tracing import trace

        trace(app, engine, settings.otlp_endpoint)
    counts = None if connections_fd is None else ConnectionCounts(connections_fd, place)
    server = make_server(app, host=settings.host, port=settings.port, counts=counts)
    settle_memory()
    if after_fd is not None:
        with open(after_fd, "rb") as others:
            others.read()
    server.run(sockets=[listening])


def beat(settings: Settings) -> None:
    """Runs the housekeeping loop until told to stop."""
    config = service_config(settings)
    gc.disable()  # until memory is settled: what is imported stays
    from backend.api.edge.memory import settle_memory
    from backend.services import housekeeping
    from tidemark.monitoring.logs import log_to_stdout

    log_to_stdout(settings.log_format)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    engine = make_engine(config, connections=3)
    settle_memory()
    housekeeping.run(config, engine, stop)


def worker_config(
    settings: Settings, *, testbed: str, name: str | None, drain_after_s: float | None = None
) -> WorkerConfig:
    """The configuration of one worker."""
    from worker.config import Isolation, Network, WorkerConfig

    missing = [
        variable
        for variable, value in (("TIDEMARK_REDIS_URL", settings.redis_url), ("TIDEMARK_TOKEN", settings.token))
        if not value
    ]
    if missing or settings.redis_url is None or settings.token is None:
        raise Refusal(
            f"{' and '.join(missing)} not set: a worker needs the broker, the address of the service (TIDEMARK_URL) "
            "and a token (tidemark token create --name worker --scope worker)"
        )
    try:
        return WorkerConfig(
            api_url=settings.url or settings.address,
            api_token=settings.token,
            redis_url=settings.redis_url,
            testbed=testbed,
            name=name or worker_name(testbed),
            data_dir=settings.data_dir,
            version=version(),
            isolation=Isolation(settings.worker_isolation),
            pass_environment=settings.worker_pass,
            container_image=settings.worker_image,
            container_runtime=settings.worker_runtime,
            network=Network(settings.worker_network),
            private_hosts=settings.private_hosts,
            memory_limit_bytes=None if settings.worker_memory_gb is None else round(settings.worker_memory_gb * 1e9),
            cache_limit_bytes=round(settings.worker_cache_gb * 1e9),
            mirrors_limit_bytes=round(settings.worker_mirrors_gb * 1e9),
            min_free_bytes=round(settings.worker_free_gb * 1e9),
            run_limit_bytes=round(settings.worker_run_gb * 1e9),
            drain_after_s=drain_after_s,
        )
    except ValueError as error:
        raise Refusal(str(error)) from None


def worker_name(testbed: str) -> str:
    """This machine and the testbed: the only worker of a testbed on a machine needs no other name."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0]).strip("-._") or "worker"
    return host if host.endswith(testbed) else f"{host[:60]}-{testbed}"


def work(config: WorkerConfig, log_format: Format = "text") -> int:
    """Runs one worker until told to stop; returns its exit status."""
    from tidemark.monitoring.logs import log_to_stdout
    from worker.main import run

    log_to_stdout(log_format)
    spare_it_no_longer()
    return int(run(config) or 0)
