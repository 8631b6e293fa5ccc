"""Runs one command of a commit under the shim and says how it ended. Output is passed on line by line."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from worker.isolation.output import Lines, OutputStream

# Nothing of this machine's packages: commit code shall not get in between.
SHIM = (
    "import sys; sys.path.append(sys.argv[1]); from worker.isolation import shim; shim.main(*map(int, sys.argv[2:4]))",
    str(Path(__file__).parents[2]),
)
# How often the loop looks at the clock and at interruptions: seldom enough not to disturb what is being measured.
LOOK_EVERY_S = 0.1
# The shim needs at most its own patience (10 s) beyond the grace it was given.
SHIM_PATIENCE_S = 15.0
STRAYS_PATIENCE_S = 5.0

LineListener = Callable[[OutputStream, str], None]
Trouble = Callable[[], str | None]


class Ending(StrEnum):
    """Why a command is over."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    STOPPED = "stopped"
    NOT_STARTED = "not_started"
    OVER_LIMIT = "over_limit"


class Interrupt:
    """Ends a run from another thread or a signal handler. The first reason given is the one that holds."""

    def __init__(self) -> None:
        self._reason: Ending | None = None
        self._lock = threading.RLock()  # re-entrant: a signal handler may interrupt the thread that holds it
        self.raised = threading.Event()

    def give(self, reason: Ending) -> None:
        with self._lock:
            self._reason = self._reason or reason
        self.raised.set()

    @property
    def reason(self) -> Ending | None:
        return self._reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUser:
    """The unprivileged user that commit code runs as. `exclusive`: nothing else on this machine runs as it."""

    name: str
    uid: int
    gid: int
    exclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """How long a command may run and how much it may take. Without a time limit it may run for ever.

    `resources`: limits of each process, by the name of the resource (`NOFILE`). It has `kill_grace_s` to end by itself
    after its time limit or a cancellation, and `stop_grace_s` where the worker stops or it took too much.
    """

    timeout_s: float | None
    resources: Mapping[str, int] = field(default_factory=dict)
    kill_grace_s: float = 5.0
    stop_grace_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a run. `environment` is all the command gets to see.

    `view` and `own_namespaces`: what it sees of the machine (`namespaces`); `groups`: limits it shares (`cgroups`).
    """

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    limits: CommandLimits
    user: RunUser | None = None
    view: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    own_namespaces: Mapping[str, Any] | None = None
    groups: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended. `exit_code` is negative for a signal; `survivors` could not be killed (stuck in the
    kernel); `oom_kills` counts what the kernel's out-of-memory killer ended on this machine meanwhile."""

    ending: Ending
    exit_code: int | None
    duration_s: float
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    leftovers: int = 0
    survivors: int = 0
    oom_kills: int = 0
    error: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.ending is Ending.EXITED and self.exit_code == 0


def run_command(
    command: Command, on_line: LineListener, interrupt: Interrupt, trouble: Trouble = lambda: None
) -> CommandOutcome:
    """Runs the command to its end, its time limit, an interruption, or until `trouble` says why it may not go on;
    nothing it started is left behind."""
    if interrupt.reason is not None:
        return CommandOutcome(ending=interrupt.reason, exit_code=None, duration_s=0.0)
    oom_before = oom_kills_so_far()
    began = time.monotonic()
    with _Supervised(command) as shim:
        ending = shim.watch(began, on_line, interrupt, trouble)
    report = shim.report
    if report is None:
        # The code of the commit can kill its shim only where it runs as the same user: look for what it left.
        end_strays(command.cwd.parent)
        error = None if ending is not Ending.EXITED else "the process that supervised it was killed"
        report = {"started": True, "exit": None, "error": error}
    if command.user is not None and command.user.exclusive:
        end_processes_of(command.user)
    if not report["started"]:
        ending = Ending.NOT_STARTED
    elif ending is Ending.OVER_LIMIT:
        report["error"] = trouble()
    return CommandOutcome(
        ending=ending,
        exit_code=report.get("exit"),
        duration_s=time.monotonic() - began,
        cpu_s=report.get("cpu_s", 0.0),
        max_rss_bytes=report.get("max_rss_bytes", 0),
        leftovers=report.get("leftovers", 0),
        survivors=report.get("survivors", 0),
        oom_kills=max(0, oom_kills_so_far() - oom_before),
        error=report.get("error"),
    )


class _Supervised:
    """The shim's process and its pipes."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.report: dict[str, Any] | None = None

    def __enter__(self) -> _Supervised:
        control_reader, self.control = os.pipe()
        self.status, status_writer = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", *SHIM, str(control_reader), str(status_writer)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(control_reader, status_writer),
                # A session of its own: Ctrl-C in a terminal reaches the worker, which decides what happens.
                start_new_session=True,
                env={"PATH": os.defpath},
            )
        finally:
            os.close(control_reader)
            os.close(status_writer)
        self._send(json.dumps(_order(self.command)))
        return self

    def watch(self, began: float, on_line: LineListener, interrupt: Interrupt, trouble: Trouble) -> Ending:
        """Reads until the shim has reported (or is given up); why the command ended."""
        ending = Ending.EXITED
        give_up_at: float | None = None
        with selectors.DefaultSelector() as selector, _Reading(self.process, selector, on_line) as reading:
            selector.register(self.status, selectors.EVENT_READ, None)
            while self.report is None:
                if reading.look(LOOK_EVERY_S) and not self._read_report():
                    break
                if give_up_at is None:
                    reason = interrupt.reason
                    if reason is None and self._is_late(began):
                        reason = Ending.TIMED_OUT
                    if reason is None and trouble() is not None:
                        reason = Ending.OVER_LIMIT
                    if reason is not None:
                        ending = reason
                        patient = reason in (Ending.TIMED_OUT, Ending.CANCELLED)
                        grace_s = self.command.limits.kill_grace_s if patient else self.command.limits.stop_grace_s
                        self._send(f"end {grace_s}")
                        give_up_at = time.monotonic() + grace_s + SHIM_PATIENCE_S
                elif time.monotonic() > give_up_at:
                    self.process.kill()
                    break
            selector.unregister(self.status)
            # Everything that held the pipes is dead, so the rest is there already; never wait for more.
            reading.drain(limit_s=2.0)
        return ending

    def _is_late(self, began: float) -> bool:
        timeout_s = self.command.limits.timeout_s
        return timeout_s is not None and time.monotonic() - began > timeout_s

    def _read_report(self) -> bool:
        """Whether the shim reported; False when it closed its end without a word."""
        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(self.status, 65536)
            if not chunk:
                return False
            line += chunk
        self.report = json.loads(line)
        return True

    def _send(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            remaining = memoryview(line.encode() + b"\n")
            while remaining:
                remaining = remaining[os.write(self.control, remaining) :]

    def __exit__(self, *exception: object) -> None:
        # Closing the control pipe makes the shim kill everything, whatever happened here.
        os.close(self.control)
        os.close(self.status)
        try:
            self.process.wait(SHIM_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class _Reading:
    """Both output pipes, read without ever blocking."""

    def __init__(
        self, process: subprocess.Popen[bytes], selector: selectors.BaseSelector, on_line: LineListener
    ) -> None:
        self.selector = selector
        self.on_line = on_line
        self.lines = {OutputStream.STDOUT: Lines(), OutputStream.STDERR: Lines()}
        for pipe, stream in ((process.stdout, OutputStream.STDOUT), (process.stderr, OutputStream.STDERR)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe.fileno(), selectors.EVENT_READ, stream)

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *exception: object) -> None:
        for stream, lines in self.lines.items():
            for line in lines.finish():
                self.on_line(stream, line)

    def look(self, wait_s: float) -> bool:
        """Passes on what has come; whether something else (the report) is ready too."""
        report_is_ready = False
        for key, _ in self.selector.select(wait_s):
            if key.data is None:
                report_is_ready = True
                continue
            try:
                chunk = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if not chunk:
                self.selector.unregister(key.fd)
            for line in self.lines[key.data].feed(chunk):
                self.on_line(key.data, line)
        return report_is_ready

    def drain(self, limit_s: float) -> None:
        give_up_at = time.monotonic() + limit_s
        while self.selector.get_map() and time.monotonic() < give_up_at:
            self.look(0.05)


def _order(command: Command) -> dict[str, Any]:
    user = None if command.user is None else {"uid": command.user.uid, "gid": command.user.gid}
    return {
        "argv": list(command.argv),
        "cwd": str(command.cwd),
        "env": dict(command.environment),
        "user": user,
        "view": {closed: dict(needed) for closed, needed in command.view.items()},
        "own_namespaces": command.own_namespaces,
        "groups": [list(group) for group in command.groups],
        "limits": dict(command.limits.resources),
    }


def end_strays(directory: Path) -> int:
    """Kills processes of runs in this directory whose supervisor is gone, known by where their result belongs; how
    many there were."""

    def belongs(process: psutil.Process) -> bool:
        place = process.environ().get("TIDEMARK_RUN_JSON")
        return bool(place) and process.pid != os.getpid() and Path(place).is_relative_to(directory)

    return _end_all(belongs)


def end_processes_of(user: RunUser) -> int:
    """Kills whatever still runs as this user; how many there were."""
    return _end_all(lambda process: user.uid in process.uids())


def _end_all(condemned: Callable[[psutil.Process], bool]) -> int:
    """Looks again until none is left: a process may be starting another one while it is being looked at."""
    ended: set[int] = set()
    give_up_at = time.monotonic() + STRAYS_PATIENCE_S
    while time.monotonic() < give_up_at:
        alive = 0
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if condemned(process) and process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    ended.add(process.pid)
                    alive += 1
        if not alive:
            break
        time.sleep(0.02)
    return len(ended)


def oom_kills_so_far() -> int:
    """Processes that the kernel's out-of-memory killer has ended since boot; 0 where unknown."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def signal_name(exit_code: int) -> str:
    """`SIGSEGV` for -11, or the bare number for one that has no name."""
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
