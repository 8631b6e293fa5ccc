"""The data directory: what lies in it, who may read it, and who holds it now."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark.machine.processes import Process, is_alive
from tidemark.refusal import Refusal

MIN_FREE_MB = 300

ADMIN_TOKEN = "admin-token"
WORKER_TOKEN = "worker-token"


def default_data_dir() -> Path:
    """The default data directory.

    Root gets a system directory: the account that the servers run as can reach it, which it cannot below /root.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/tidemark")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "tidemark"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tidemark"


def resolve_data_dir(given: Path | None = None) -> Path:
    """The data directory that a command means: the option, else TIDEMARK_DATA_DIR, else the default."""
    named = given or os.environ.get("TIDEMARK_DATA_DIR")
    return Path(named).expanduser().absolute() if named else default_data_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The supervisor's record of itself and its children."""

    supervisor: Process
    url: str
    children: Mapping[str, Process]
    ports: Mapping[str, int] = field(default_factory=dict)  # of the embedded servers

    @property
    def alive(self) -> bool:
        return is_alive(self.supervisor)


class DataDirectory:
    """A data directory that exists and can be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd: int | None = None

    @classmethod
    def prepare(cls, path: Path) -> DataDirectory:
        """Makes the directory where needed; refuses, in one line, what cannot hold the data."""
        try:
            if not path.exists() or (path.is_dir() and not any(path.iterdir())):
                path.mkdir(parents=True, exist_ok=True)
                # Root's servers run as another account, which has to pass through here (but not look around).
                path.chmod(0o711 if os.geteuid() == 0 else 0o700)
            elif not path.is_dir():
                raise Refusal(f"the data directory {path} is a file; choose another with --data-dir")
            (path / "logs").mkdir(exist_ok=True, mode=0o700)
            probe = path / f".probe-{os.getpid()}"
            try:
                probe.write_bytes(b"\0" * 65536)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise Refusal(_why_unusable(path, error)) from error
        free_mb = shutil.disk_usage(path).free // 2**20
        if free_mb < MIN_FREE_MB:
            raise Refusal(
                f"the data directory {path} has {free_mb} MB free; Tidemark needs {MIN_FREE_MB} MB: "
                "free some space or choose another place with --data-dir"
            )
        return cls(path)

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def instance(self) -> str:
        """A name created once for this data directory, so that files elsewhere can be attributed to it."""
        return self._made_once("instance", lambda: secrets.token_hex(8))

    def secret(self, name: str) -> str:
        """A password made once, readable by the owner alone."""
        return self._made_once(f"{name}-password", lambda: secrets.token_urlsafe(24))

    def read_private(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text().strip() or None
        except FileNotFoundError:
            return None

    def write_private(self, name: str, text: str) -> None:
        """Replaces a file of mode 0600 whole: a reader sees the old text or the new, and a crash loses neither."""
        target = self.path / name
        draft = self.path / f".{name}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)

    def hold(self) -> None:
        """Takes the directory for this process until it ends, however it ends."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise Refusal(f"cannot lock the data directory {self.path}: {error.strerror}") from error
            raise Refusal(self._held_by()) from None
        self._lock_fd = descriptor

    def release(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def running(self) -> Running | None:
        """Read the last supervisor's record, whether it still lives or not."""
        text = self.read_private("supervisor.json")
        if text is None:
            return None
        try:
            said: dict[str, Any] = json.loads(text)
            return Running(
                supervisor=Process(**said["supervisor"]),
                url=str(said["url"]),
                children={name: Process(**child) for name, child in said["children"].items()},
                ports={name: int(port) for name, port in said["ports"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def note_running(self, running: Running) -> None:
        self.write_private(
            "supervisor.json",
            json.dumps(
                {
                    "supervisor": {"pid": running.supervisor.pid, "started": running.supervisor.started},
                    "url": running.url,
                    "children": {
                        name: {"pid": child.pid, "started": child.started} for name, child in running.children.items()
                    },
                    "ports": dict(running.ports),
                }
            ),
        )

    def forget_running(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.path / "supervisor.json").unlink()

    def _held_by(self) -> str:
        # The holder writes its address a moment after it takes the lock; a second start may fall in between.
        for _ in range(20):
            running = self.running()
            if running is not None and running.alive:
                return (
                    f"Tidemark is already running on {self.path}: {running.url} (pid {running.supervisor.pid}; "
                    "a new sign-in link: tidemark sign-in)"
                )
            time.sleep(0.05)
        return f"another Tidemark is starting or stopping on {self.path}; try again in a few seconds"

    def _made_once(self, name: str, make: Any) -> str:
        value = self.read_private(name)
        if value is None:
            value = str(make())
            self.write_private(name, value)
        return value


def _why_unusable(path: Path, error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"the disk of the data directory {path} is full; free some space or choose another with --data-dir"
        case errno.EROFS:
            return f"the data directory {path} is on a read-only file system; choose another with --data-dir"
        case errno.EACCES | errno.EPERM:
            return f"the data directory {path} cannot be written by this user; choose another with --data-dir"
        case _:
            return f"the data directory {path} cannot be used: {error.strerror}; choose another with --data-dir"
