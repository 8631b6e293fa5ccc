"""Where budgets are measured: a durable PostgreSQL of our own, the API and a bare endpoint as processes, one client."""

from __future__ import annotations

import http.client
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from backend.store import schema
from tests.bench.dataset import Filled, Shape, fill, settle
from tests.conftest import running_postgres, scratch_directory
from tidemark.postgres import EmbeddedPostgres

READY_S = 60


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of one thing, measured many times."""

    ms: Sequence[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.ms)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.ms, n=100, method="inclusive")[98]


class Client:
    """A connection that is kept open: the cheapest client that Python has."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, path: str) -> bytes:
        return self.send("GET", path)

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        self.connection.request(method, path, body=body, headers=headers or {})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:300]!r}")
        return answer


@dataclass
class Stage:
    """Everything is made when it is first asked for; `say` tells the person who waits."""

    postgres: EmbeddedPostgres
    stack: ExitStack
    directory: Path
    measurements: int
    say: Callable[[str], None]

    @cached_property
    def database_url(self) -> str:
        """A database with the schema, and nothing in it yet."""
        admin = create_engine(self.postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("CREATE DATABASE bench"))
        url = self.postgres.url_of("bench")
        with create_engine(url, poolclass=NullPool).begin() as connection:
            schema.upgrade(connection)
        return url

    @cached_property
    def engine(self) -> Engine:
        engine = create_engine(self.database_url)
        self.stack.callback(engine.dispose)
        return engine

    @cached_property
    def filled(self) -> Filled:
        """The large project."""
        shape = Shape(commits=self.measurements // Shape().series)
        self.say(f"filling the store with {shape.measurements:,} judged measurements …")
        began = time.perf_counter()
        with self.engine.begin() as connection:
            filled = fill(connection, shape)
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            settle(connection)
        self.say(f"filled in {time.perf_counter() - began:.0f} s")
        return filled

    @cached_property
    def api_port(self) -> int:
        return self._serve("api", self.database_url, str(self.directory))

    @cached_property
    def bare_port(self) -> int:
        return self._serve("bare")

    @cached_property
    def bare(self) -> Client:
        return Client(self.bare_port)

    @cached_property
    def api(self) -> Client:
        return Client(self.api_port)

    def connect(self) -> Connection:
        return self.engine.connect()

    def beside_bare(self, act: Callable[[], object], rounds: int) -> tuple[Times, Times]:
        """Times of an act and of the bare endpoint, taken in turns so that both see the same machine."""
        return in_turns(act, lambda: self.bare.get("/bare"), rounds)

    def _serve(self, kind: str, *rest: str) -> int:
        port = free_port()
        child = subprocess.Popen([sys.executable, "-m", "tests.bench.serve", kind, str(port), *rest])
        self.stack.callback(_end, child)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if child.poll() is not None:
                raise RuntimeError(f"the {kind} server ended with {child.returncode}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.05)
        raise RuntimeError(f"the {kind} server was not there after {READY_S} s")


def in_turns(act: Callable[[], object], yardstick: Callable[[], object], rounds: int) -> tuple[Times, Times]:
    """Both, one after the other, `rounds` times; a few rounds before that are not counted."""
    acted, measured = [], []
    for number in range(-5, rounds):
        first, second = timed(act), timed(yardstick)
        if number >= 0:
            acted.append(first)
            measured.append(second)
    return Times(acted), Times(measured)


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@contextmanager
def set_stage(measurements: int, say: Callable[[str], None]) -> Iterator[Stage]:
    """A stage with a server that keeps what it says it keeps (fsync on), taken down at the end."""
    with (
        scratch_directory() as directory,
        running_postgres(directory, durable=True) as postgres,
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as data,
        ExitStack() as stack,
    ):
        yield Stage(postgres, stack, Path(data), measurements, say)
