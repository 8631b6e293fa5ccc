"""Where budgets are measured: a durable PostgreSQL of our own, the API and a bare endpoint as processes, one client."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from backend.connection_counts import ConnectionCounts
from backend.store.base import schema
from tests.bench.dataset import ALONE, BUSY, Filled, Shape, fill_all, found, settle, settle_changes, shapes_of
from tests.conftest import running_postgres, scratch_directory
from tidemark.machine import ports
from tidemark.machine.postgres import EmbeddedPostgres

# The server closes a connection that has rested for half a minute.
RESTED_S = 5
MOST_DELAY_MS = 100
"""Of PostgreSQL's `commit_delay`."""


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
    """A connection that is kept open, on the socket itself: the client's own time is no part of what is measured."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self._connect()

    def _connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.used = time.monotonic()

    def get(self, path: str) -> bytes:
        return self.send("GET", path)

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.host}", *(f"{k}: {v}" for k, v in (headers or {}).items())]
        if body or method != "GET":
            lines.append(f"content-length: {len(body)}")
        if time.monotonic() - self.used > RESTED_S:
            self.socket.close()
            self._connect()
        self.socket.sendall("\r\n".join((*lines, "", "")).encode() + body)
        status, answer = self._answer()
        self.used = time.monotonic()
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
        return answer

    def _answer(self) -> tuple[int, bytes]:
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._some()
        head = received[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        if at < 0:
            raise RuntimeError(f"an answer without its length: {head[:300]!r}")
        length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        parts, missing = [received[end + 4 :]], length - (len(received) - end - 4)
        while missing > 0:
            parts.append(self._some())
            missing -= len(parts[-1])
        return int(head[9:12]), b"".join(parts)

    def _some(self) -> bytes:
        some = self.socket.recv(1 << 18)
        if not some:
            raise RuntimeError("the server closed the connection")
        return some


@dataclass
class Stage:
    """Everything is made when it is first asked for; `say` tells the person who waits."""

    postgres: EmbeddedPostgres
    stack: ExitStack
    directory: Path
    measurements: int
    say: Callable[[str], None]
    name: str = "bench"
    """Of its database."""
    processes: int = 1
    """Of the API."""
    base: Shape = ALONE
    projects: int = 1
    """Of that shape, which the measurements belong to."""

    @cached_property
    def database_url(self) -> str:
        """A database with the schema, and nothing in it yet."""
        admin = create_engine(self.postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            if not connection.scalar(text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": self.name}):
                connection.execute(text(f"CREATE DATABASE {self.name}"))
        url = self.postgres.url_of(self.name)
        with create_engine(url, poolclass=NullPool).begin() as connection:
            schema.upgrade(connection)
        return url

    def beside(self, measurements: int, name: str | None = None) -> Stage:
        """Another store and API on the same server, with a single project of another size."""
        name = name or name_of(self.base, measurements, 1)
        return replace(self, measurements=measurements, name=name, projects=1)

    def settle_changes(self) -> None:
        """Do what autovacuum would do in the middle of what is measured next."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            settle_changes(connection)

    def forget_what_was_read(self) -> None:
        """As after a restart of PostgreSQL: nothing in its memory. (What the machine itself keeps of files stays.)"""
        with self.engine.connect() as connection:
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS pg_buffercache"))
            connection.commit()
            connection.execute(text("SELECT pg_buffercache_evict_all()"))
            connection.commit()

    @contextmanager
    def pages_anew(self) -> Iterator[int]:
        """The port of a further process with pages, whose connections are new as well; it ends with the block."""
        with ExitStack() as meanwhile:
            yield self._serve("pages", self.database_url, str(self.directory), until=meanwhile)

    @cached_property
    def engine(self) -> Engine:
        engine = create_engine(self.database_url)
        self.stack.callback(engine.dispose)
        return engine

    @cached_property
    def filled(self) -> Filled:
        """The large project, or the first of several."""
        shapes = shapes_of(self.base, self.measurements, self.projects)
        with self.engine.connect() as connection:
            there = found(connection, shapes[0])
        if there is not None:
            return there
        measurements = sum(shape.measurements for shape in shapes)
        self.say(f"filling the store with {measurements:,} judged measurements …")
        began = time.perf_counter()
        with self.engine.begin() as connection:
            filled, *_ = fill_all(connection, shapes)
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            settle(connection)
        self.say(f"filled in {time.perf_counter() - began:.0f} s")
        return filled

    @cached_property
    def api_port(self) -> int:
        return self._serve("api", self.database_url, str(self.directory), processes=self.processes)

    @cached_property
    def two_apis_port(self) -> int:
        """The API as two processes on one address, whatever the others are."""
        return self._serve("api", self.database_url, str(self.directory), processes=2)

    @cached_property
    def pages_port(self) -> int:
        """The API with its pages, in a process of its own."""
        return self._serve("pages", self.database_url, str(self.directory))

    @cached_property
    def floor_port(self) -> int:
        """A service that parses and stores the same runs, and does nothing else with them."""
        return self._serve("floor", self.database_url, str(self.directory))

    @cached_property
    def two_floors_port(self) -> int:
        """The same service as two processes on one address."""
        return self._serve("floor", self.database_url, str(self.directory), processes=2)

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

    def _serve(self, kind: str, *rest: str, processes: int = 1, until: ExitStack | None = None) -> int:
        listening = ports.listen("127.0.0.1", 0)
        port: int = listening.getsockname()[1]
        with ConnectionCounts.file_for(processes) as counts, listening:
            shared = (listening.fileno(), counts.fileno())
            for place in range(processes):
                named = f"{shared[0]}:{shared[1]}:{place}" if processes > 1 else str(shared[0])
                command = [sys.executable, "-m", "tests.bench.serve", kind, named, *rest]
                child = subprocess.Popen(command, pass_fds=shared, stdout=subprocess.PIPE)
                (until or self.stack).callback(_end, child)
                if child.stdout is None or b"ready" not in child.stdout.readline():
                    raise RuntimeError(f"the {kind} server did not come up")
        return port


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


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@contextmanager
def set_stage(
    measurements: int,
    say: Callable[[str], None],
    *,
    processes: int = 1,
    projects: int = 1,
    commit_delay_ms: float = 0.0,
    keep: Path | None = None,
) -> Iterator[Stage]:
    """A stage with a server that keeps what it says it keeps (fsync on), taken down at the end. What lies in `keep`
    stays, and is used again by the next stage there."""
    with (
        scratch_directory() if keep is None else nullcontext(_open_to_the_server(keep)) as directory,
        running_postgres(directory, durable=True) as postgres,
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as data,
        ExitStack() as stack,
    ):
        if commit_delay_ms:
            _hold_up(postgres, commit_delay_ms)
        base = ALONE if projects == 1 else BUSY
        name = name_of(base, measurements, projects)
        yield Stage(postgres, stack, Path(data), measurements, say, name, processes, base, projects)


def name_of(base: Shape, measurements: int, projects: int) -> str:
    """Of a database."""
    return f"bench_{measurements}" if base == ALONE else f"bench_{measurements}_of_{projects}"


def _open_to_the_server(directory: Path) -> Path:
    """Its account may be another one than ours."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o711)
    return directory.absolute()


def _hold_up(postgres: EmbeddedPostgres, delay_ms: float) -> None:
    """Let the server wait before each flush of its log, whoever commits, and however few do: a slower disk's model."""
    admin = create_engine(postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"ALTER SYSTEM SET commit_delay = {round(delay_ms * 1e3)}"))
        connection.execute(text("ALTER SYSTEM SET commit_siblings = 0"))
        connection.execute(text("SELECT pg_reload_conf()"))
