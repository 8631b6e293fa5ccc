"""`tidemark up`: everything on this machine, embedded, with one address to open."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark import exposure, settings
from tidemark.machine import ports
from tidemark.machine.account import ServersHome, servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.supervisor import ServiceCommand, Supervisor
from tidemark.machine.valkey import EmbeddedValkey
from tidemark.quick import spare_it_no_longer
from tidemark.refusal import Refusal
from tidemark.settings import Settings

TESTBED = "cpu"
# The settings of the service that its worker shares.
WORKERS_OWN = ("TIDEMARK_WORKER_", "TIDEMARK_PRIVATE_HOSTS", "TIDEMARK_LOG_FORMAT")
PYTHON = (sys.executable, "-P", "-m")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """The running service, for callers that wait for it."""

    url: str
    sign_in_link: str
    data: DataDirectory
    demo: str | None


def up(
    chosen: Settings,
    *,
    demo: bool = True,
    open_browser: bool = False,
    say: Say = print,
    then: Callable[[Up, Supervisor], None] | None = None,
) -> None:
    """Starts everything and keeps it alive until Ctrl-C, SIGTERM, or until `then` returns."""
    check_tools()
    exposure.check(chosen)
    data = DataDirectory.prepare(chosen.data_dir)
    data.hold()
    listening = ports.listen(chosen.host, chosen.port)
    chosen = chosen.changed(port=listening.getsockname()[1])
    supervisor = Supervisor(data, url=chosen.address, say=lambda line: say(f"{time.strftime('%H:%M:%S')}  {line}"))
    supervisor.catch_signals()
    try:
        say(f"Tidemark {settings.version()}  data in {data.path}")
        supervisor.take_over()
        running = _start_all(chosen, data, listening, supervisor, demo, open_browser, say)
        spare_it_no_longer()
        if then is None:
            supervisor.watch()
        else:
            then(running, supervisor)
    except KeyboardInterrupt:
        pass
    finally:
        # Before anything else is asked of the terminal: an impatient second Ctrl-C must find an answer on screen.
        say("stopping")
        supervisor.stop()
        listening.close()
    say("stopped; what was measured is kept")


def check_tools() -> None:
    if shutil.which("git") is None:
        raise Refusal("git is not on PATH; Tidemark reads repositories with it (Debian: apt install git)")


def missing_for_demo() -> str | None:
    """Why the demo cannot be measured here, as a sentence with what to do; None if it can."""
    if importlib.util.find_spec("torch") is None:
        return "There is no demo: it is measured with torch, which is not installed here (`tidemark doctor` says how)."
    return None


def _start_all(
    chosen: Settings,
    data: DataDirectory,
    listening: socket.socket,
    supervisor: Supervisor,
    demo: bool,
    open_browser: bool,
    say: Say,
) -> Up:
    servers = _Servers(chosen, data)
    for server in servers.embedded:
        took_s = supervisor.start(server)
        say(f"  {server.name:<9} ready after {took_s:.1f} s")
    own_address = _own_address(chosen)
    api_may_serve, prepared_it = os.pipe()
    began = time.monotonic()
    # It loads its code meanwhile.
    wait_for_api = supervisor.begin(_api(servers, own_address, listening.fileno(), api_may_serve))
    missing = missing_for_demo()
    answer = supervisor.run_once(
        ServiceCommand(
            name="prepare",
            arguments=(*PYTHON, "tidemark.prepare"),
            environment=lambda: {
                **servers.environment(),
                **({"TIDEMARK_PREPARE_DEMO": "1"} if demo and missing is None else {}),
            },
        ),
        say=lambda line: say(f"  {'database':<9} {line}"),
    )
    prepared = json.loads(answer)
    say(f"  {'database':<9} up to date after {time.monotonic() - began:.1f} s")
    os.close(prepared_it)
    say(f"  {'api':<9} ready after {wait_for_api():.1f} s")
    supervisor.start(
        ServiceCommand(name="beat", arguments=(*PYTHON, "tidemark", "beat"), environment=servers.environment)
    )
    supervisor.start(
        ServiceCommand(
            name="worker",
            arguments=(*PYTHON, "tidemark", "worker", "--testbed", TESTBED),
            environment=lambda: servers.worker_environment(own_address, prepared["worker_token"]),
        )
    )
    printed, for_browser = prepared["sign_in_links"]
    _greet(chosen, data, prepared, printed, say)
    if demo and missing is not None:
        say(missing)
    if open_browser:
        webbrowser.open(for_browser)
    return Up(url=own_address, sign_in_link=printed, data=data, demo=prepared["demo"])


def _api(servers: _Servers, own_address: str, listening_fd: int, after_fd: int) -> ServiceCommand:
    return ServiceCommand(
        name="api",
        arguments=(
            *(*PYTHON, "tidemark", "serve"),
            *("--listening-fd", str(listening_fd), "--after-fd", str(after_fd), "--workers", str(api_processes())),
        ),
        environment=servers.environment,
        ready=lambda child: answers(f"{own_address}/healthz"),
        healthy=lambda: answers(f"{own_address}/healthz"),
        pass_fds=(listening_fd, after_fd),
    )


def _greet(chosen: Settings, data: DataDirectory, prepared: Mapping[str, Any], sign_in_link: str, say: Say) -> None:
    """Say where it runs, how to sign in, and how the demo goes on."""
    say("")
    say(f"Tidemark runs at {chosen.address}")
    say(f"Sign in, once, with: {sign_in_link}")
    if prepared["demo"]:
        said = "is measured on this machine, commit by commit; the board fills now"
        goes_on = "is here as it was left; commits that are not measured yet are measured now"
        say(f"The demo project {prepared['demo']} {said if prepared['fresh'] else goes_on}.")
    say("Ctrl-C stops it." if sys.stdout.isatty() else f"The admin token is in {data.path / 'admin-token'}.")


class _Servers:
    """The database and the broker: the configured ones, or embedded ones; and what each of our processes is told."""

    def __init__(self, chosen: Settings, data: DataDirectory) -> None:
        self._chosen = chosen
        self._data = data
        need_home = chosen.database_url is None or chosen.redis_url is None
        self._home = servers_home(data) if need_home else ServersHome(path=data.path, account=None)
        self._postgres = EmbeddedPostgres(data, self._home) if chosen.database_url is None else None
        self._valkey = EmbeddedValkey(data, self._home) if chosen.redis_url is None else None

    @property
    def embedded(self) -> tuple[EmbeddedPostgres | EmbeddedValkey, ...]:
        return tuple(server for server in (self._postgres, self._valkey) if server is not None)

    def environment(self) -> Mapping[str, str]:
        """For the service's own processes: everything that was chosen, and where the servers are now."""
        told = {
            f"TIDEMARK_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in self._chosen.model_dump(exclude_none=True).items()
        }
        return {
            **_plain_environment(),
            **told,
            "TIDEMARK_DATABASE_URL": self._postgres.url if self._postgres else str(self._chosen.database_url),
            "TIDEMARK_REDIS_URL": self._redis_url,
        }

    def worker_environment(self, url: str, token: str) -> Mapping[str, str]:
        """For the worker: the broker and the API, nothing of the database."""
        directory = self._home.path / "worker"
        directory.mkdir(exist_ok=True, mode=0o711)
        return {
            **_plain_environment(),
            "TIDEMARK_URL": url,
            "TIDEMARK_TOKEN": token,
            "TIDEMARK_REDIS_URL": self._redis_url,
            "TIDEMARK_DATA_DIR": str(directory),
            **{name: value for name, value in os.environ.items() if name.startswith(WORKERS_OWN)},
        }

    @property
    def _redis_url(self) -> str:
        return self._valkey.url if self._valkey else str(self._chosen.redis_url)


def api_processes() -> int:
    """The number of API processes: one leaves PostgreSQL and the worker their share of up to seven cores."""
    return max(1, min(4, (os.cpu_count() or 1) // 4))


def answers(url: str) -> bool:
    """Whether this address answers with success within two seconds."""
    try:
        with urllib.request.urlopen(url, timeout=2.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _own_address(chosen: Settings) -> str:
    """Where our own processes reach the API, whatever its public address is."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(chosen.host, chosen.host)
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{chosen.port}"


def _plain_environment() -> dict[str, str]:
    """The person's environment without what is meant for us: each process is told what it needs, and no more."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}
