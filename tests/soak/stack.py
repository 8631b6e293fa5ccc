"""A whole installation as processes of its own; any of them may be killed at any moment, and is started again.

Postgres and Valkey are the embedded ones, durable as for users; API, housekeeping and workers the ordinary commands.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from backend.services.base import access
from backend.store.base import schema
from tests.soak import attacks
from tidemark.machine import ports
from tidemark.machine.account import servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.processes import adopt_orphans, identify, wait_until
from tidemark.machine.valkey import EmbeddedValkey

SECRET = "a secret of the soak"
SLUG = "northsea/soak"
WORKERS = ("worker-1", "worker-2", "worker-3", "worker-4")
LEASE_S = 10
HEARTBEAT_S = 2
COMMAND = (sys.executable, "-P", "-m", "tidemark")

MANIFEST = """
[suite.alpha]
command = "python bench.py"
testbeds = ["cpu"]
timeout_s = 120

[suite.beta]
command = "python bench.py"
setup = "python -c pass"
testbeds = ["cpu"]
timeout_s = 120
"""

# The value follows from commit and suite, so that a result which ended up with another run would show.
BENCH = """
import hashlib, json, os, time
of = lambda name: os.environ["TIDEMARK_" + name]
value = int(hashlib.sha256((of("COMMIT") + of("SUITE")).encode()).hexdigest()[:6], 16)
time.sleep(0.2 + value % 10 / 5)
out = of("RUN_JSON")
with open(os.path.join(os.path.dirname(out), "bench.mllog"), "w") as file:
    file.write(":::MLLOG {}")
with open(out, "w") as file:
    json.dump({"schema": "tidemark.run/1", "status": "ok", "results": [
        {"benchmark": "soak." + of("SUITE"), "variant": {"k": 1}, "status": "ok", "measurements": [
            {"metric": "calls", "unit": "1", "direction": "lower", "role": "watch", "value": value, "exact": True}]}]},
        file)
"""


def expected_value(commit: str, suite: str) -> int:
    return int(hashlib.sha256((commit + suite).encode()).hexdigest()[:6], 16)


@dataclass
class Child:
    """One process of the stack, restarted as a supervisor would."""

    name: str
    start: Callable[[int], subprocess.Popen[bytes]]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = -1
    start_at: float = 0.0

    def keep(self) -> None:
        """Starts it if it is not running and its moment has come."""
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            self.process = None
            self.start_at = max(self.start_at, time.monotonic() + 0.5)
        if time.monotonic() >= self.start_at:
            with self.log.open("ab") as output:
                self.process = self.start(output.fileno())
            self.restarts += 1

    def kill(self, number: signal.Signals = signal.SIGKILL) -> bool:
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True


@dataclass
class Stack:
    """Everything there is, in one directory."""

    directory: Path
    children: dict[str, Child] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    closing: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        adopt_orphans()
        self.data = DataDirectory.prepare(self.directory / "servers")
        home = servers_home(self.data)
        self.postgres, self.valkey = EmbeddedPostgres(self.data, home), EmbeddedValkey(self.data, home)
        self.port = ports.private_port()
        self._add("postgres", self.postgres.start)
        self._add("valkey", self.valkey.start)
        for server in (self.postgres, self.valkey):
            child = self.children[server.name]
            child.keep()
            assert child.process is not None
            found = identify(child.process.pid)
            assert found is not None and wait_until(lambda server=server, found=found: server.is_ready(found), 60)
        with create_engine(
            self.postgres.url_of("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        ).connect() as c:
            c.execute(text("CREATE DATABASE tidemark"))
        with self.engine().begin() as c:
            schema.upgrade(c)
            now = datetime.now(UTC)
            self.token = access.create_token(c, "soak", list(access.Scope), now=now).token
        self._add("api", self._command("serve", "--port", str(self.port)))
        self._add("beat", self._command("beat"))
        for name in WORKERS:
            options = ("worker", "--testbed", "cpu", "--name", name, "--data-dir", str(self.directory / "workers"))
            self._add(name, self._command(*options))
        self.keeper = threading.Thread(target=self._keep, daemon=True)
        self.keeper.start()
        assert wait_until(lambda: self.ask("/healthz") is not None, 60), self.tail("api")

    def engine(self) -> Engine:
        return create_engine(self.postgres.url, poolclass=NullPool, connect_args={"connect_timeout": 5})

    def close(self) -> list[psutil.Process]:
        """Stops everything as an operator would; what is left of it after that."""
        self.closing.set()
        self.keeper.join(10)
        for name in (*WORKERS, "beat", "api", "valkey", "postgres"):
            child = self.children[name]
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGCONT)
                child.kill(signal.SIGINT if name == "postgres" else signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(30)
        wait_until(lambda: not self.processes(), 10)
        left = self.processes()
        for process in left:
            process.kill()
        return left

    def processes(self) -> list[psutil.Process]:
        """Everything below this process, zombies that only wait to be buried excepted."""
        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_ZOMBIE:
                    with contextlib.suppress(ChildProcessError):
                        if all(process.pid != child.pid for child in self._own()):
                            os.waitpid(process.pid, os.WNOHANG)
                else:
                    found.append(process)
        return found

    def _own(self) -> list[subprocess.Popen[bytes]]:
        return [child.process for child in self.children.values() if child.process is not None]

    def ask(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        """The answer, or None when none came: the API may be dead at the moment."""
        stated = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=stated)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
                return json.load(answer)
        except (OSError, ValueError) as failure:
            if isinstance(failure, urllib.error.HTTPError) and failure.code < 500:
                raise
            return None

    def push(self, head: str) -> bool:
        """Whether GitHub's message of a push was taken."""
        payload = json.dumps({
            "ref": "refs/heads/main", "after": head,
            "repository": {"full_name": SLUG, "clone_url": f"https://github.com/{SLUG}.git"},
        }).encode()  # fmt: skip
        signature = "sha256=" + hmac.new(SECRET.encode(), payload, hashlib.sha256).hexdigest()
        stated = {
            "X-GitHub-Event": "push", "X-GitHub-Delivery": str(uuid.uuid4()), "X-Hub-Signature-256": signature,
        }  # fmt: skip
        return self.ask("/api/v1/webhooks/github", payload, stated) is not None

    def tail(self, name: str) -> str:
        return self.children[name].log.read_text(errors="replace")[-3000:]

    def _add(self, name: str, start: Callable[[int], subprocess.Popen[bytes]]) -> None:
        self.children[name] = Child(name, start, self.directory / f"{name}.log")

    def _command(self, *arguments: str) -> Callable[[int], subprocess.Popen[bytes]]:
        def start(output: int) -> subprocess.Popen[bytes]:
            kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
            return subprocess.Popen(
                [*COMMAND, *arguments],
                env={
                    **kept,
                    "TIDEMARK_DATABASE_URL": self.postgres.url,
                    "TIDEMARK_REDIS_URL": self.valkey.url,
                    "TIDEMARK_DATA_DIR": str(self.directory / "service"),
                    "TIDEMARK_URL": f"http://127.0.0.1:{self.port}",
                    "TIDEMARK_TOKEN": self.token,
                    "TIDEMARK_GITHUB_WEBHOOK_SECRET": SECRET,
                    "TIDEMARK_LEASE_S": str(LEASE_S),
                    "TIDEMARK_HEARTBEAT_S": str(HEARTBEAT_S),
                    "PYTHONUNBUFFERED": "1",
                },
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

        return start

    def _keep(self) -> None:
        while not self.closing.wait(0.1):
            with self.lock:
                for child in self.children.values():
                    child.keep()


class Repository:
    """A repository on disk whose pushes are announced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shas: list[str] = []
        self.hostile: dict[str, str] = {}
        """{commit: what it tries}"""
        path.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")
        (path / "tidemark.toml").write_text(MANIFEST)
        (path / "bench.py").write_text(BENCH)
        self._git("add", "--all")

    def commit(self) -> str:
        return self._committed(BENCH, MANIFEST)

    def attack(self, name: str, guarded: Path) -> str:
        """A commit whose code or whose manifest is hostile."""
        if name in attacks.CODE:
            sha = self._committed(attacks.program(name, guarded, BENCH), MANIFEST)
        else:
            sha = self._committed(BENCH, f"{MANIFEST}{attacks.MANIFESTS[name]}\n")
        self.hostile[sha] = name
        return sha

    def _committed(self, bench: str, manifest: str) -> str:
        (self.path / "bench.py").write_text(f"{bench}# change {len(self.shas)}\n")
        (self.path / "tidemark.toml").write_text(manifest)
        self._git("add", "--all")
        self._git("commit", "--quiet", f"--message=Change {len(self.shas)}")
        self.shas.append(self._git("rev-parse", "HEAD").strip())
        return self.shas[-1]

    def _git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Ines Farrow", "-c", "user.email=ines@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.path, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout
