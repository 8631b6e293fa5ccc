"""A PostgreSQL as users have it, with fsync, for as long as a measurement takes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from backend.store.base import schema
from tidemark.machine.account import servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.processes import end, identify, wait_until


@contextmanager
def fresh_database() -> Iterator[tuple[str, Engine]]:
    directory = Path(tempfile.mkdtemp(prefix="tidemark-scale-"))
    directory.chmod(0o711)
    data = DataDirectory.prepare(directory)
    postgres = EmbeddedPostgres(data, servers_home(data))
    child: subprocess.Popen[bytes] | None = None
    try:
        with (data.logs / "postgres.log").open("ab") as log:
            child = postgres.start(log.fileno())
        process = identify(child.pid)
        assert process is not None and wait_until(lambda: postgres.is_ready(process), 60)
        with create_engine(
            postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        ).connect() as c:
            c.execute(text("CREATE DATABASE tidemark"))
        engine = create_engine(postgres.url, pool_size=10)
        with engine.begin() as c:
            schema.upgrade(c)
        yield postgres.url, engine
        engine.dispose()
    finally:
        if child is not None:
            end([found] if (found := identify(child.pid)) else [], first=postgres.stop_signal, patience_s=10)
            child.wait()
        shutil.rmtree(directory, ignore_errors=True)
