"""What tests share: a real PostgreSQL, its schema by migration, and databases that cost nothing to throw away.

`connection` rolls back; who must commit (two connections, a live server) takes `database`, a fresh copy of the schema.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from backend.store import schema
from tidemark.account import servers_home
from tidemark.datadir import DataDirectory
from tidemark.postgres import EmbeddedPostgres
from tidemark.processes import end, identify, wait_until


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
def scratch_directory() -> Iterator[Path]:
    """A directory that the server's own account can pass through, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="tidemark-tests-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """One server for each process of the test run."""
    with scratch_directory() as directory, running_postgres(directory, durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def administer(postgres: EmbeddedPostgres) -> Iterator[Callable[[str], None]]:
    """Runs a statement that no transaction may hold, such as CREATE DATABASE."""
    engine = create_engine(postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def run(statement: str) -> None:
        with engine.connect() as connection:
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


@pytest.fixture(scope="session")
def engine(template: str, postgres: EmbeddedPostgres, administer: Callable[[str], None]) -> Iterator[Engine]:
    """The engine of the shared database that `connection` rolls back in; nothing may be committed to it."""
    with copy_of(template, postgres, administer) as url:
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
    with copy_of(template, postgres, administer) as url:
        yield url


@pytest.fixture
def committing_engine(database: str) -> Iterator[Engine]:
    """An engine on a fresh database of this test's own."""
    made = create_engine(database, pool_size=10)
    yield made
    made.dispose()
