"""Many readers at once, while results come in: is everybody answered, or told when to come back?

    python -m tests.attacks.flood --readers 500 --seconds 60

runs a service of its own on the loopback address and ends it. Each reader asks as fast as it is answered, and obeys
Retry-After. Exit status 1: somebody got no answer, no result came through, memory was kept,
or the second flood took more of it than the first.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

import psutil
from sqlalchemy import create_engine

from backend.services.base import access
from backend.store.base import schema
from tests.backend.api.conftest import run_document
from tests.conftest import running_postgres, scratch_directory
from tidemark.machine import processes

ANSWER_S = 60.0
"""Nobody waits longer than this; who would have to, was not answered."""
DELIVER_EVERY_S = 0.5
READ = ("/api/v1/board?project=demo/tinygpt", "/api/v1/regressions?project=demo/tinygpt", "/api/v1/queue", "/board")
SETTLED_S = 30.0
GROWN_BYTES = 30_000_000
"""More than this from one flood to the next, and there is no plateau."""
KEPT_BYTES = 100_000_000
"""More than this above the level before the flood, once it is over, is memory kept."""


@dataclass
class Report:
    """What the readers and the one who delivers have seen."""

    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    slowest_delivery_s: float = 0.0
    slowest_health_s: float = 0.0

    @property
    def answered(self) -> int:
        return self.statuses[200]

    @property
    def told_to_come_back(self) -> int:
        return self.statuses[503] + self.statuses[429]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One connection, kept open as browsers do."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        split = urlsplit(url)
        self.host, self.port = split.hostname or "127.0.0.1", split.port or 80
        self.headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        length = f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n{self.headers}{length}\r\n"
        writer.write(head.encode() + body)
        told = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in told[1:])}
        answer = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(told[0].split()[1]), headers, answer)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def flood(url: str, token: str, *, readers: int, seconds: float, paths: Sequence[str] = READ) -> Report:
    """So many readers for so long, and one worker that delivers all the while."""
    report = Report()
    until = time.monotonic() + seconds
    await asyncio.gather(
        *(_read(url, paths[number % len(paths)], until, report) for number in range(readers)),
        _deliver(url, token, until, report),
        _watch(url, until, report),
    )
    return report


async def read_for(url: str, report: Report, *, readers: int, seconds: float, paths: Sequence[str] = READ) -> None:
    """So many readers for so long, and nothing else."""
    until = time.monotonic() + seconds
    await asyncio.gather(*(_read(url, paths[number % len(paths)], until, report) for number in range(readers)))


async def _read(url: str, path: str, until: float, report: Report) -> None:
    connection = Connection(url)
    while time.monotonic() < until:
        try:
            answer = await asyncio.wait_for(connection.ask("GET", path), ANSWER_S)
        except (OSError, EOFError, TimeoutError) as error:
            report.unanswered[type(error).__name__] += 1
            connection.close()
            await asyncio.sleep(0.1)
            continue
        report.statuses[answer.status] += 1
        if answer.status != 200:
            if "retry-after" not in answer.headers:
                report.unanswered[f"{answer.status} without Retry-After"] += 1
            await asyncio.sleep(min(float(answer.headers.get("retry-after", "1")), max(until - time.monotonic(), 0)))
    connection.close()


async def _deliver(url: str, token: str, until: float, report: Report) -> None:
    connection = Connection(url, {"Authorization": f"Bearer {token}"})
    for number in itertools.count():
        if time.monotonic() >= until:
            break
        document = run_document(number, id=f"01FLD{number:021d}")
        started = time.monotonic()
        while answer := await connection.ask("PUT", f"/api/v1/runs/{document['id']}", json.dumps(document).encode()):
            if answer.status in (200, 201):
                break
            assert answer.status in (429, 503), answer
            await asyncio.sleep(float(answer.headers["retry-after"]))
        report.delivered += 1
        report.slowest_delivery_s = max(report.slowest_delivery_s, time.monotonic() - started)
        await asyncio.sleep(DELIVER_EVERY_S)
    connection.close()


async def _watch(url: str, until: float, report: Report) -> None:
    """As whoever restarts a service that does not answer."""
    connection = Connection(url)
    while time.monotonic() < until:
        started = time.monotonic()
        answer = await connection.ask("GET", "/healthz")
        if answer.status != 200:
            report.unanswered[f"/healthz {answer.status}"] += 1
        report.slowest_health_s = max(report.slowest_health_s, time.monotonic() - started)
        await asyncio.sleep(1.0)
    connection.close()


# --- as a command ----------------------------------------------------------------------------------------------------


@contextmanager
def service() -> Iterator[tuple[str, str, psutil.Process]]:
    """A service with a database of its own: its address, a token of a worker, its process."""
    with scratch_directory() as directory, running_postgres(directory / "server", durable=True) as postgres:
        url = postgres.url_of("postgres")
        engine = create_engine(url)
        with engine.begin() as c:
            schema.upgrade(c)
            token = access.create_token(c, "flood", ["worker"], now=datetime.now(UTC)).token
        engine.dispose()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        settings = {
            "TIDEMARK_DATABASE_URL": url,
            "TIDEMARK_REDIS_URL": "redis://127.0.0.1:1/0",
            "TIDEMARK_DATA_DIR": str(directory / "data"),
            "TIDEMARK_PORT": str(port),
            "TIDEMARK_REQUESTS_PER_ADDRESS": "1000000000",  # all readers have one address here
        }
        with (directory / "api.log").open("wb") as log:
            child = processes.start(
                [sys.executable, "-m", "tidemark", "serve"],
                environment={**os.environ, **settings},
                output=log.fileno(),
            )
        try:
            address = f"http://127.0.0.1:{port}"
            assert processes.wait_until(lambda: _listens(port), 60), (directory / "api.log").read_text()
            yield address, token, psutil.Process(child.pid)
        finally:
            child.terminate()
            child.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


class Memory:
    """What a process holds, looked at while it is entered."""

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, self.process.memory_info().rss)


def one_flood(
    url: str, token: str, process: psutil.Process, *, readers: int, seconds: float
) -> tuple[Report, int, int]:
    """What came of it; the most memory while it lasted, and what was left half a minute later."""
    with Memory(process) as memory:
        report = asyncio.run(flood(url, token, readers=readers, seconds=seconds))
    time.sleep(SETTLED_S)
    return report, memory.most, process.memory_info().rss


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--readers", type=int, default=500)
    options.add_argument("--seconds", type=float, default=60)
    chosen = options.parse_args()
    with service() as (url, token, process):
        fresh = process.memory_info().rss
        asyncio.run(flood(url, token, readers=chosen.readers, seconds=10))  # what is loaded once is loaded
        time.sleep(SETTLED_S)
        before = process.memory_info().rss
        floods = [one_flood(url, token, process, readers=chosen.readers, seconds=chosen.seconds) for _ in range(2)]
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPU cores")
    print(f"{chosen.readers} readers for {chosen.seconds:.0f} s, twice")
    for report, _, _ in floods:
        print(f"  answered               {report.answered:,}")
        print(f"  told when to come back {report.told_to_come_back:,}")
        print(f"  not answered           {sum(report.unanswered.values()):,} {dict(report.unanswered) or ''}")
        print(f"  results delivered      {report.delivered:,}, the slowest in {report.slowest_delivery_s:.1f} s")
        print(f"  /healthz, slowest      {report.slowest_health_s:.1f} s")
    levels = {"fresh": fresh, "warm": before}
    for name, (_, most, after) in zip(("first", "second"), floods, strict=True):
        levels |= {f"{name} flood, most": most, f"after the {name}": after}
    print("  memory (RSS)           " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in levels.items()))
    (_, first_most, first_after), (_, second_most, second_after) = floods
    grew = second_most > first_most + GROWN_BYTES or second_after > first_after + GROWN_BYTES
    kept = second_after - before > KEPT_BYTES
    return int(grew or kept or any(report.unanswered or not report.delivered for report, _, _ in floods))


if __name__ == "__main__":
    raise SystemExit(main())
