"""What tests share: a real PostgreSQL, its schema by migration, and databases that cost nothing to throw away.

`connection` rolls back; who must commit (two connections, a live server) takes `database`, a fresh copy of the schema.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import httpx
import psutil
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from backend.api import create_api
from backend.api.edge.serving import make_server
from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.store.base import schema
from frontend.screenshots import launch_chromium
from tidemark.machine.account import servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.processes import end, identify, wait_until
from tidemark.machine.valkey import EmbeddedValkey

SHARED_MEMORY = Path("/dev/shm")
ROOM_FOR_SERVERS = 8 << 30  # a server keeps up to 1 GiB, most of it log; four of them, and as much again left free


@contextmanager
def running_postgres(directory: Path, *, durable: bool) -> Iterator[EmbeddedPostgres]:
    """A server of our own in this directory, ended with the block."""
    data = DataDirectory.prepare(directory)
    postgres = EmbeddedPostgres(data, servers_home(data), durable=durable)
    with (data.logs / "postgres.log").open("ab") as log:
        child: subprocess.Popen[bytes] = postgres.start(log.fileno())
    process = identify(child.pid)
    assert process is not None, (data.logs / "postgres.log").read_text()
    try:
        assert wait_until(lambda: postgres.is_ready(process), 30), (data.logs / "postgres.log").read_text()
        yield postgres
    finally:
        end([process], first=postgres.stop_signal, patience_s=10)
        child.wait()


@contextmanager
def scratch_directory(parent: Path | None = None) -> Iterator[Path]:
    """A directory that the server's own account can pass through, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="tidemark-tests-", dir=parent))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def roomy_memory() -> Path | None:
    """The file system in memory, where this machine has one that is large enough and lets programs run: hundreds of
    tests copy a database each, which costs several times as much on a disk."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        return None
    here = os.statvfs(SHARED_MEMORY)
    free = min(here.f_bavail * here.f_frsize, psutil.virtual_memory().available)
    return SHARED_MEMORY if free >= ROOM_FOR_SERVERS and not here.f_flag & os.ST_NOEXEC else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """One server for each process of the test run."""
    with scratch_directory(roomy_memory()) as directory, running_postgres(directory, durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def administer(postgres: EmbeddedPostgres) -> Iterator[Callable[[str], None]]:
    """Runs a statement that no transaction may hold, such as CREATE DATABASE, on one connection for all of them."""
    engine = create_engine(postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:

        def run(statement: str) -> None:
            connection.execute(text(statement))

        yield run
    engine.dispose()


@pytest.fixture(scope="session")
def template(postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> str:
    """A database with the schema as the migrations make it; others are copied from it."""
    administer("CREATE DATABASE template_tidemark")
    migrating = create_engine(postgres.url_of("template_tidemark"), poolclass=NullPool)
    with migrating.begin() as connection:
        schema.upgrade(connection)
    migrating.dispose()
    return "template_tidemark"


@contextmanager
def copy_of(template: str, postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    administer(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    try:
        yield postgres.url_of(name)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def small_copy_of(template: str, postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[str]:
    """A copy whose prepared statements are planned once, whatever their values are: in tables that stay small no other
    plan is better, and planning again for five values takes a tenth of these tests' time."""
    with copy_of(template, postgres, administer) as url:
        administer(f"ALTER DATABASE {make_url(url).database} SET plan_cache_mode = force_generic_plan")
        yield url


@pytest.fixture(scope="session")
def engine(template: str, postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[Engine]:
    """The engine of the shared database that `connection` rolls back in; nothing may be committed to it."""
    with small_copy_of(template, postgres, administer) as url:
        shared = create_engine(url, pool_size=5)
        yield shared
        shared.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that is rolled back after the test."""
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection
        transaction.rollback()


@pytest.fixture
def database(template: str, postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[str]:
    """The URL of a fresh database with the schema, for tests that commit; dropped afterwards."""
    with small_copy_of(template, postgres, administer) as url:
        yield url


@pytest.fixture(scope="module")
def shared_database(template: str, postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[str]:
    """The URL of a database that the tests of one module share. (An open transaction in the database of `connection`
    would hold up every test that inserts the same names.)"""
    with small_copy_of(template, postgres, administer) as url:
        yield url


@pytest.fixture
def committing_engine(database: str) -> Iterator[Engine]:
    """An engine on a fresh database of this test's own."""
    made = create_engine(database, pool_size=10)
    yield made
    made.dispose()


# --- the broker and the service --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedValkey]:
    """A broker for each process of the test run."""
    with scratch_directory() as directory:
        data = DataDirectory.prepare(directory)
        server = EmbeddedValkey(data, servers_home(data))
        with (data.logs / "valkey.log").open("ab") as log:
            child = server.start(log.fileno())
        process = identify(child.pid)
        assert process is not None, (data.logs / "valkey.log").read_text()
        try:
            assert wait_until(lambda: server.is_ready(process), 30), (data.logs / "valkey.log").read_text()
            yield server
        finally:
            end([process], first=server.stop_signal, patience_s=10)
            child.wait()


@pytest.fixture
def service_config(database: str, valkey: EmbeddedValkey, tmp_path: Path) -> ServiceConfig:
    """The service on a database of this test's own; the broker is shared."""
    return ServiceConfig(
        database_url=database,
        redis_url=valkey.url,
        data_dir=tmp_path / "data",
        github_webhook_secret="a secret of the tests",
        sse_heartbeat_s=0.2,
    )


@dataclass(frozen=True)
class LiveServer:
    """The service, listening."""

    url: str
    app: FastAPI
    engine: Engine
    config: ServiceConfig

    def token(self, *scopes: str, project_id: int | None = None) -> str:
        """The token with these scopes: the same whenever it is asked for."""
        name = "test " + " ".join(scopes)
        secret = f"tm_{name} {project_id}".replace(" ", "_")
        with self.engine.begin() as c:
            made = access.create_token(c, name, scopes, now=datetime.now(UTC), project_id=project_id, secret=secret)
        return made.token

    def client(self, *scopes: str) -> httpx.Client:
        """A client that holds a token with these scopes; without any, an anonymous one.

        It is told to verify nothing: over plain HTTP there is nothing to verify, and every client would load all
        certificates of the system, which takes longer than most tests need for everything else."""
        headers = {"Authorization": f"Bearer {self.token(*scopes)}"} if scopes else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False, verify=False)


@contextmanager
def listening(app: FastAPI, listener: socket.socket) -> Iterator[None]:
    """The application, served by uvicorn in a thread until the block ends."""
    server = make_server(app, host="127.0.0.1", port=0, log_level="warning")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        assert wait_until(lambda: server.started or not thread.is_alive(), 30) and server.started
        yield
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


ServeApp = Callable[[FastAPI, Engine, ServiceConfig], AbstractContextManager[LiveServer]]


@contextmanager
def served(app: FastAPI, engine: Engine, config: ServiceConfig) -> Iterator[LiveServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with listening(app, listener):
            yield LiveServer(f"http://127.0.0.1:{port}", app, engine, config)


@pytest.fixture(scope="session")
def serve_app() -> ServeApp:
    """Serves any application on a free port: `with serve_app(app, engine, config) as server`."""
    return served


@pytest.fixture(scope="session")
def schemathesis() -> ModuleType:
    """Asks what a document of OpenAPI promises. To import it takes seconds that only its tests wait for; they want it
    ahead of a server: Python 3.11.2 may fail to parse a module while another thread parses (fixed in 3.11.5)."""
    import schemathesis.checks

    return schemathesis


@pytest.fixture
def live_server(service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp) -> Iterator[LiveServer]:
    """The API without pages, on a database of this test's own."""
    with serve_app(create_api(service_config, committing_engine), committing_engine, service_config) as server:
        yield server


@pytest.fixture(scope="module")
def standing_server(
    shared_database: str, valkey: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory, serve_app: ServeApp
) -> Iterator[LiveServer]:
    """The API without pages for tests of one module that change nothing another one looks at: what they send is
    refused, or of no interest."""
    config = ServiceConfig(
        database_url=shared_database,
        redis_url=valkey.url,
        data_dir=tmp_path_factory.mktemp("data"),
        github_webhook_secret="a secret of the tests",
        sse_heartbeat_s=0.2,
        refusals_per_address=10**9,
        requests_per_address=10**9,
    )
    engine = create_engine(config.database_url, pool_size=10)
    with serve_app(create_api(config, engine), engine, config) as server:
        yield server
    engine.dispose()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium. There is one for all tests of a process: Playwright cannot be started twice in a thread."""
    with sync_playwright() as playwright:
        launched = launch_chromium(playwright)
        if launched is None:
            pytest.skip("no Chromium on PATH; tests/provide_chromium.py installs one")
        yield launched
        launched.close()
