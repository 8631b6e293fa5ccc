"""Checks everything that Tidemark needs on this machine, and says of what is bad how to mend it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tidemark.app import worker_config
from tidemark.checkup.deployment import deployment
from tidemark.checkup.finding import Finding
from tidemark.checkup.github_setup import github
from tidemark.machine import processes
from tidemark.machine.account import servers_home
from tidemark.machine.datadir import ADMIN_TOKEN, MIN_FREE_MB, DataDirectory, Running
from tidemark.machine.ports import is_free
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.valkey import EmbeddedValkey
from tidemark.refusal import Refusal
from tidemark.settings import Settings
from tidemark.up import answers

LEAST_GIT = (2, 28)  # knows `init --initial-branch`
LEAST_MEMORY_MB = 1500


def examine(settings: Settings) -> list[Finding]:
    """Every check, in the order in which a start needs them."""
    return [finding for check in CHECKS for finding in _sure(check, settings)]


def _sure(check: Callable[[Settings], Iterator[Finding]], settings: Settings) -> list[Finding]:
    try:
        return list(check(settings))
    except Refusal as refusal:
        return [Finding(name=_name(check), good=False, found=str(refusal), mend="as it says")]


def _name(check: Callable[..., object]) -> str:
    return check.__name__.strip("_").replace("_", " ")


def _python(settings: Settings) -> Iterator[Finding]:
    del settings
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding(
        name="python",
        good=sys.version_info >= (3, 11),
        found=f"{version} ({sys.executable})",
        mend="install Python 3.11 or newer and create the environment again (make clean, make up)",
    )


def _git(settings: Settings) -> Iterator[Finding]:
    del settings
    program = shutil.which("git")
    if program is None:
        yield Finding(name="git", good=False, found="not on PATH", mend="install git (Debian: apt install git)")
        return
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    numbers = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    yield Finding(
        name="git",
        good=numbers >= LEAST_GIT,
        found=f"{said} ({program})",
        mend=f"install git {'.'.join(map(str, LEAST_GIT))} or newer",
    )


def _packages(settings: Settings) -> Iterator[Finding]:
    del settings
    needed = ("fastapi", "sqlalchemy", "psycopg", "alembic", "celery", "redis", "numpy", "scipy", "plotly", "psutil")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    yield Finding(
        name="packages",
        good=not missing,
        found=f"missing: {', '.join(missing)}" if missing else f"{len(needed)} looked for, all there",
        mend="run `make setup`, or pip install 'tidemark[server]'",
    )
    has_torch = importlib.util.find_spec("torch") is not None
    yield Finding(
        name="torch",
        good=has_torch,
        found="installed" if has_torch else "not installed; the worker on this machine cannot run the built-in suites",
        mend="run `make setup`, or pip install torch==2.13.0",
    )


def _data_directory(settings: Settings) -> Iterator[Finding]:
    data = DataDirectory.prepare(settings.data_dir)
    free_mb = shutil.disk_usage(data.path).free // 2**20
    yield Finding(
        name="data directory",
        good=True,
        found=f"{data.path}, writable, {free_mb:,} MB free (at least {MIN_FREE_MB} needed)",
    )
    token = data.path / ADMIN_TOKEN
    if token.exists():
        mode = token.stat().st_mode & 0o777
        yield Finding(
            name="admin token",
            good=mode & 0o077 == 0,
            found=f"{token}, mode {mode:04o}",
            mend=f"others can read it: chmod 600 {token}, and make a new one if others use this machine",
        )


def _memory(settings: Settings) -> Iterator[Finding]:
    del settings
    import psutil

    free_mb = psutil.virtual_memory().available // 2**20
    yield Finding(
        name="memory",
        good=free_mb >= LEAST_MEMORY_MB,
        found=f"{free_mb:,} MB available",
        mend=f"at least {LEAST_MEMORY_MB:,} MB are needed to run everything; end other programs",
    )


def _sandbox(settings: Settings) -> Iterator[Finding]:
    """Which isolation a worker started here would have, as this user, with these settings."""
    from worker.isolation.protection import describe, establish

    config = worker_config(settings.changed(redis_url="redis://none", token="none"), testbed="cpu", name="doctor")
    with tempfile.TemporaryDirectory(prefix="tidemark-doctor-") as place:
        Path(place).chmod(0o711)
        try:
            found, good = describe(establish(config.isolation, None, Path(place), config)), True
        except PermissionError as refusal:
            found, good = str(refusal), False
    yield Finding(
        name="sandbox",
        good=good,
        found=found,
        mend="start the worker as root, allow user namespaces, or name an image (docs/gpu-host.md)",
    )


def _servers(settings: Settings) -> Iterator[Finding]:
    """Starts the embedded servers for a moment, in a directory of their own: the one test that says that they work."""
    running = _running(settings)
    if running is not None:
        for name in running.children:
            alive = processes.is_alive(running.children[name])
            yield Finding(
                name=name,
                good=alive,
                found=f"running (pid {running.children[name].pid})" if alive else "not running",
                mend=f"it is started again within 5 s; if it is not, see {settings.data_dir / 'logs' / name}.log",
            )
        return
    with tempfile.TemporaryDirectory(prefix="tidemark-doctor-") as place:
        Path(place).chmod(0o711)
        data = DataDirectory.prepare(Path(place))
        home = servers_home(data)
        for server in (
            *((EmbeddedPostgres(data, home, durable=False),) if settings.database_url is None else ()),
            *((EmbeddedValkey(data, home),) if settings.redis_url is None else ()),
        ):
            yield _try(server, data)


def _try(server: EmbeddedPostgres | EmbeddedValkey, data: DataDirectory) -> Finding:
    log = data.logs / f"{server.name}.log"
    with log.open("ab") as output:
        child = server.start(output.fileno())
    process = processes.identify(child.pid)
    try:
        ready = process is not None and processes.wait_until(
            lambda: server.is_ready(process) or child.poll() is not None, 20.0
        )
        good = ready and child.poll() is None
        last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    finally:
        if process is not None:
            processes.end([process], first=server.stop_signal)
        child.wait()
    account = "" if os.geteuid() else " as a user of its own"
    return Finding(
        name=server.name,
        good=good,
        found=f"the embedded server starts{account}" if good else f"the embedded server does not start: {last}",
        mend=f"set TIDEMARK_{'DATABASE' if server.name == 'postgres' else 'REDIS'}_URL to a server of your own",
    )


def _configured_servers(settings: Settings) -> Iterator[Finding]:
    for name, url in (("database", settings.database_url), ("broker", settings.redis_url)):
        if url is not None:
            yield _reach(name, url)


def _reach(name: str, url: str) -> Finding:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host, port = parts.hostname or "localhost", parts.port or (5432 if name == "database" else 6379)
    try:
        socket.create_connection((host, port), timeout=3.0).close()
    except OSError as error:
        return Finding(
            name=name,
            good=False,
            found=f"no answer from {host}:{port} ({error})",
            mend=f"start it, or correct TIDEMARK_{'DATABASE' if name == 'database' else 'REDIS'}_URL",
        )
    return Finding(name=name, good=True, found=f"{host}:{port} accepts connections")


def _port(settings: Settings) -> Iterator[Finding]:
    running = _running(settings)
    if running is not None:
        good = answers(f"{running.url}/healthz")
        yield Finding(
            name="service",
            good=good,
            found=f"running at {running.url}" + ("" if good else ", but it does not answer"),
            mend=f"wait 20 s: it is restarted when it stays so; see {settings.data_dir / 'logs' / 'api.log'}",
        )
        return
    yield Finding(
        name="port",
        good=is_free(settings.port, settings.host if settings.host != "localhost" else "127.0.0.1"),
        found=f"{settings.host}:{settings.port}" + ("" if is_free(settings.port) else " is taken"),
        mend=f"choose another: tidemark up --port {settings.port + 1}, or TIDEMARK_PORT",
    )


def _leftovers(settings: Settings) -> Iterator[Finding]:
    """Databases that root's servers keep elsewhere for data directories that are gone."""
    del settings
    places = Path("/var/lib/tidemark/servers")
    if os.geteuid() != 0 or not places.is_dir():
        return
    for place in sorted(places.iterdir()):
        try:
            owner = Path((place / "data-directory").read_text().strip())
        except OSError:
            continue
        if not (owner / "servers-home").exists():
            # Nothing is wrong with that; it only takes up room.
            yield Finding(
                name="left behind",
                good=True,
                found=f"{place} has the database of {owner}, which is gone; not missed? rm -r {place}",
            )


def _running(settings: Settings) -> Running | None:
    try:
        running = DataDirectory(settings.data_dir).running()
    except OSError:
        return None
    return running if running is not None and running.alive else None


CHECKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _python,
    _git,
    _packages,
    _data_directory,
    _memory,
    _sandbox,
    _servers,
    _configured_servers,
    _port,
    github,
    deployment,
    _leftovers,
)
