"""Two versions of the program take the same deliveries in turns: CPU of the API and of PostgreSQL, and time, of each.

`python -m tests.bench.versions BEFORE [--rounds N]`, where BEFORE is a directory with another version of this
repository (`git worktree add BEFORE COMMIT`). Whatever else keeps the machine busy keeps both busy; CPU is counted by
the kernel's scheduler, in ns. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from backend.services.base import access
from backend.services.base.principal import Scope
from tests.bench.stage import Client
from tests.bench.writes import METRICS, RESULTS, WARM_UP_RUNS, Delivery, bodies
from tests.conftest import running_postgres, scratch_directory
from tidemark.machine import ports
from tidemark.machine.postgres import EmbeddedPostgres

HERE = Path(__file__).resolve().parents[2]
MIGRATE = """\
import sys
from sqlalchemy import create_engine
from backend.store.base import schema
with create_engine(sys.argv[1]).begin() as connection:
    schema.upgrade(connection)
"""


@dataclass(slots=True)
class Spent:
    """Milliseconds of each delivery."""

    api: list[float] = field(default_factory=list)
    postgres: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Version:
    """A version of the program, serving, on a database of its own."""

    name: str
    client: Client
    headers: dict[str, str]
    api_pid: int
    monitor: psycopg.Connection[tuple[int]]
    spent: Spent = field(default_factory=Spent)

    def put(self, delivery: Delivery, *, counted: bool = True) -> bytes:
        """Deliver, and note what it took; `counted` False: while everything is still being prepared."""
        backends = [pid for (pid,) in self.monitor.execute(BACKENDS)]
        api, postgres, began = cpu_ms(self.api_pid), sum(map(cpu_ms, backends)), time.perf_counter()
        answer = self.client.send("PUT", f"/api/v1/runs/{delivery.run_id}", delivery.body, self.headers)
        if counted:
            self.spent.waited.append((time.perf_counter() - began) * 1e3)
            self.spent.api.append(cpu_ms(self.api_pid) - api)
            self.spent.postgres.append(sum(map(cpu_ms, backends)) - postgres)
        return answer


BACKENDS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
AND application_name = 'tidemark'
"""


def cpu_ms(pid: int) -> float:
    """CPU that a process has used, all its threads together."""
    return sum(map(_spent_ns, Path(f"/proc/{pid}/task").glob("*/schedstat"))) / 1e6


def _spent_ns(task: Path) -> int:
    try:
        return int(task.read_text().split()[0])
    except OSError:  # it has just ended
        return 0


@contextmanager
def serving(tree: Path, name: str, postgres: EmbeddedPostgres) -> Iterator[Version]:
    """The version of the program in this directory."""
    admin = create_engine(postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    url = postgres.url_of(name)
    subprocess.run([sys.executable, "-c", MIGRATE, url], cwd=tree, check=True)
    with create_engine(url, poolclass=NullPool).begin() as connection:
        token = access.create_token(connection, "bench", [Scope.WRITE.value], now=datetime.now(UTC)).token
    listening = ports.listen("127.0.0.1", 0)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as data, ExitStack() as stack:
        command = [sys.executable, "-m", "tests.bench.serve", "api", str(listening.fileno()), url, data]
        child = subprocess.Popen(command, cwd=tree, pass_fds=(listening.fileno(),), stdout=subprocess.PIPE)
        stack.callback(child.wait)
        stack.callback(child.terminate)
        assert child.stdout is not None and b"ready" in child.stdout.readline(), f"{name} did not come up"
        monitor = stack.enter_context(psycopg.connect(url.replace("+psycopg", ""), autocommit=True))
        client = Client(listening.getsockname()[1])
        listening.close()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        yield Version(name, client, headers, child.pid, monitor)


def compare(versions: Sequence[Version], project: str, *, results: int, metrics: int, rounds: int) -> None:
    """The same deliveries to each version, each version first as often as the other."""
    runs = list(itertools.islice(bodies(project, results=results, metrics=metrics), WARM_UP_RUNS + rounds))
    for number, run in enumerate(runs):
        order = versions if number % 2 else tuple(reversed(versions))
        for version in order:
            version.put(run, counted=number >= WARM_UP_RUNS)
    for version in versions:
        print(f"{project}, {version.name}: " + "; ".join(told(version.spent)), flush=True)
        version.spent = Spent()


def told(spent: Spent) -> Iterator[str]:
    """Least and median of each."""
    for what, times in (("API", spent.api), ("PostgreSQL", spent.postgres), ("waited", spent.waited)):
        yield f"{what} {min(times):.2f} / {statistics.median(times):.2f} ms"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.versions", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args(arguments)
    print("least / median of a delivery")
    with scratch_directory() as directory, running_postgres(directory, durable=True) as postgres, ExitStack() as stack:
        trees = (("before", options.before.resolve()), ("after", HERE))
        versions = [stack.enter_context(serving(tree, name, postgres)) for name, tree in trees]
        compare(versions, "single/result", results=1, metrics=1, rounds=options.rounds)
        compare(versions, "many/results", results=RESULTS, metrics=METRICS, rounds=options.rounds)


if __name__ == "__main__":
    main()
