"""Keeps the children of `tidemark up` alive, and stops them all, in order, when told to.

One thread, one loop: check every child, restart what died, and ask the API now and then whether it still answers.
Children die with this process even when it is killed (the kernel ensures that on Linux); what survives anyway is
found at the next start from the notes in the data directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil

from tidemark.machine import processes
from tidemark.machine.datadir import DataDirectory, Running
from tidemark.machine.processes import Process
from tidemark.refusal import Refusal

TICK_S = 0.1
HEALTH_EVERY_S = 5.0
UNHEALTHY_AFTER = 3
STARTS_WITHIN_S = 60.0  # until it has answered once: on a busy machine a start alone takes longer than three misses
STEADY_AFTER_S = 30.0  # a child that lived so long starts with a clean record
LONGEST_WAIT_S = 4.0  # so that a dead child is back within 5 s, however often it died
STOP_WITHIN_S = 3.8  # of being asked to; then whatever is left is killed
LOG_BYTES = 10_000_000
OLD_LOGS = 3
LOGS_EVERY_S = 10.0
USERS_OF_SERVERS = ("worker", "api", "beat")


class SupervisedService(Protocol):
    """A child that can be restarted."""

    @property
    def name(self) -> str: ...
    @property
    def stop_signal(self) -> signal.Signals: ...
    def start(self, output: int) -> subprocess.Popen[bytes]: ...
    def is_ready(self, child: Process) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCommand:
    """A service of our own code: a command, an environment created at each start, and how to check that it works."""

    name: str
    arguments: Sequence[str]
    environment: Callable[[], Mapping[str, str]]
    ready: Callable[[Process], bool] = lambda child: True
    healthy: Callable[[], bool] | None = None
    pass_fds: tuple[int, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM

    def start(self, output: int) -> subprocess.Popen[bytes]:
        return processes.start(self.arguments, environment=self.environment(), output=output, pass_fds=self.pass_fds)

    def is_ready(self, child: Process) -> bool:
        return self.ready(child)


@dataclass(slots=True)
class _Watched:
    """A service and the child that is it at the moment."""

    service: SupervisedService
    child: subprocess.Popen[bytes] | None = None
    process: Process | None = None
    started_at: float = 0.0
    start_again_at: float = 0.0
    deaths: int = 0
    unhealthy: int = 0
    answered: bool = False
    asked_at: float = field(default_factory=time.monotonic)


class Supervisor:
    """Starts services one after another and keeps them running."""

    def __init__(self, data: DataDirectory, *, url: str, say: Callable[[str], None]) -> None:
        self._data = data
        self._url = url
        self._say = say
        self._watched: list[_Watched] = []
        self._stopping = False
        self._asked_to_stop_at: float | None = None
        self._looked_at_logs = time.monotonic()
        self._orphans: dict[int, float] = {}

    # --- starting -----------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Becomes the only supervisor of this data directory and stops what an earlier one left running."""
        before = self._data.running()
        processes.adopt_orphans()
        if before is not None:
            left = [child for child in before.children.values() if processes.is_alive(child)]
            below = [process for child in left for process in processes.descendants(child.pid)]
            processes.end(left, patience_s=3.0)
            processes.end(below, patience_s=0.5)
        self._note()

    def catch_signals(self) -> None:
        """Ctrl-C and SIGTERM request the stop; a second one does not speed it up, only the time limit does."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask_to_stop)

    def start(self, service: SupervisedService, *, timeout_s: float = 30.0) -> float:
        """Starts a service and waits until it is ready; returns the seconds that took. Raises if it does not start."""
        return self.begin(service)(timeout_s)

    def begin(self, service: SupervisedService) -> Callable[..., float]:
        """Starts a service; the returned function waits until it is ready, as `start` does."""
        watched = _Watched(service)
        self._watched.append(watched)
        self._launch(watched)
        return partial(self._wait_until_ready, watched)

    def _wait_until_ready(self, watched: _Watched, timeout_s: float = 30.0) -> float:
        service, began = watched.service, time.monotonic()
        while not self.is_ready(watched):
            self.check_stop()
            if watched.child is not None and (code := watched.child.poll()) is not None:
                how = processes.describe_exit(code)
                raise Refusal(f"{service.name} did not start ({how}){self._last_words(service)}")
            if time.monotonic() - began > timeout_s:
                raise Refusal(f"{service.name} did not answer within {timeout_s:.0f} s{self._last_words(service)}")
            time.sleep(0.02)
        return time.monotonic() - began

    def run_once(self, command: ServiceCommand, say: Callable[[str], None]) -> str:
        """Runs a command to its end, however long it takes. To the pipe given as TIDEMARK_RESULT_FD it writes lines, of
        which `say` is told as they come, and last, without an end of line, its result."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        result = b""
        with os.fdopen(reader, "rb") as written:
            with self._log(command.name) as output:
                child = processes.start(
                    command.arguments,
                    environment={**command.environment(), "TIDEMARK_RESULT_FD": str(writer)},
                    output=output,
                    pass_fds=(writer,),
                )
            os.close(writer)
            is_over = False
            while not is_over:
                time.sleep(0.02)
                is_over = _is_over(child)
                *lines, result = (result + (written.read() or b"")).split(b"\n")
                for line in lines:
                    say(line.decode())
                if self._stopping and not is_over:
                    child.kill()
                    child.wait()
            self.check_stop()
            if child.returncode != 0:
                code = processes.describe_exit(child.returncode)
                raise Refusal(f"{command.name} failed ({code}){self._last_words(command)}")
        return result.decode()

    def check_stop(self) -> None:
        """Ends a start that the person has cancelled."""
        if self._stopping:
            raise KeyboardInterrupt

    # --- watching -----------------------------------------------------------------------------------------------

    def watch(self, until: Callable[[], bool] = lambda: False) -> None:
        """Keeps every service alive until told to stop."""
        while not self._stopping and not until():
            for watched in self._watched:
                self._look_at(watched)
            self._end_orphans()
            if time.monotonic() - self._looked_at_logs > LOGS_EVERY_S:
                self._rotate_logs()
            time.sleep(TICK_S)

    def restart(self, *names: str) -> None:
        """Stops these services; the next check restarts them with their environment at that time."""
        for watched in self._watched:
            if watched.service.name in names and watched.child is not None and watched.child.poll() is None:
                self._end([watched], 2.0)

    def is_ready(self, watched: _Watched) -> bool:
        return watched.process is not None and watched.service.is_ready(watched.process)

    def _look_at(self, watched: _Watched) -> None:
        now = time.monotonic()
        if watched.child is None:
            if now >= watched.start_again_at:
                try:
                    self._launch(watched)
                except Refusal as refusal:
                    self._say(f"{watched.service.name} cannot be started: {refusal}; trying again")
                    watched.deaths += 1
                    watched.start_again_at = now + LONGEST_WAIT_S
            return
        code = watched.child.poll()
        if code is not None:
            self._bury(watched, code, now)
        elif now - watched.asked_at > HEALTH_EVERY_S:
            watched.asked_at = now
            self._ask(watched)

    def _bury(self, watched: _Watched, code: int, now: float) -> None:
        if now - watched.started_at > STEADY_AFTER_S:
            watched.deaths = 0
        watched.deaths += 1
        # At once the first time; what keeps dying waits longer each time, but never past the promised 5 s.
        wait_s = 0.0 if watched.deaths == 1 else min(LONGEST_WAIT_S, 0.25 * 2 ** (watched.deaths - 1))
        watched.child, watched.process, watched.start_again_at = None, None, now + wait_s
        again = f", {watched.deaths} times now{self._last_words(watched.service)}" if watched.deaths > 2 else ""
        self._say(f"{watched.service.name} died ({processes.describe_exit(code)}){again}; starting it again")

    def _ask(self, watched: _Watched) -> None:
        healthy = getattr(watched.service, "healthy", None)
        if healthy is None:
            return
        if healthy():
            watched.unhealthy, watched.answered = 0, True
        elif watched.answered or time.monotonic() - watched.started_at > STARTS_WITHIN_S:
            watched.unhealthy += 1
        if watched.unhealthy >= UNHEALTHY_AFTER:
            self._say(f"{watched.service.name} does not answer; ending it")
            self._end([watched], 2.0)

    def _end_orphans(self) -> None:
        """Processes whose parent died are ours now (see `adopt_orphans`): reaped, and ended when they linger."""
        known = {watched.child.pid for watched in self._watched if watched.child is not None}
        mine = {pid for pid in _children() if pid not in known}
        self._orphans = {pid: seen for pid, seen in self._orphans.items() if pid in mine}
        for pid in mine:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    continue
            since = self._orphans.setdefault(pid, time.monotonic())
            waited = time.monotonic() - since
            # Servers' own helpers leave by themselves when they see that their parent is gone; give them the time.
            if waited > 2.0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if waited < 3.0 else signal.SIGKILL)

    # --- stopping -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stops everything within 5 s: the worker first, which hands its run back to the API; the database last."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # What was being done when the signal came, an answer waited for on a busy machine, counts as well.
        deadline = (self._asked_to_stop_at or time.monotonic()) + STOP_WITHIN_S
        waves = (("worker", "beat"), ("api",), ("valkey", "postgres"))
        for position, names in enumerate(waves):
            left_s = deadline - time.monotonic()
            keep_s = 1.0 * (len(waves) - 1 - position)
            self._end([w for w in self._watched if w.service.name in names], max(0.3, left_s - keep_s))
        processes.end(processes.descendants(os.getpid()), first=signal.SIGKILL, patience_s=1.0)
        self._data.forget_running()
        self._data.release()

    def _end(self, group: Sequence[_Watched], patience_s: float) -> None:
        alive = [w for w in group if w.child is not None and w.child.poll() is None]
        for watched in alive:
            assert watched.child is not None
            watched.child.send_signal(watched.service.stop_signal)
        processes.wait_until(lambda: all(w.child is None or w.child.poll() is not None for w in alive), patience_s)
        for watched in alive:
            assert watched.child is not None
            if watched.child.poll() is None and (firmly := getattr(watched.service, "kill_signal", None)) is not None:
                watched.child.send_signal(firmly)
                processes.wait_until(partial(_is_over, watched.child), 0.3)
            if watched.child.poll() is None:
                below = processes.descendants(watched.child.pid)
                watched.child.kill()
                processes.end(below, first=signal.SIGKILL, patience_s=0.5)
                watched.child.wait()

    # --- helpers ------------------------------------------------------------------------------------------------

    def _ask_to_stop(self, number: int, frame: object) -> None:
        del number, frame
        self._stopping = True
        self._asked_to_stop_at = self._asked_to_stop_at or time.monotonic()

    def _launch(self, watched: _Watched) -> None:
        port_before = getattr(watched.service, "port", None)
        with self._log(watched.service.name) as output:
            watched.child = watched.service.start(output)
        if port_before not in {None, getattr(watched.service, "port", None)}:
            # Somebody took the port while the server was away: those who know the old one must start anew.
            self.restart(*USERS_OF_SERVERS)
        watched.process = processes.identify(watched.child.pid)
        watched.unhealthy, watched.answered = 0, False
        watched.started_at = watched.asked_at = time.monotonic()
        self._note()

    def _note(self) -> None:
        me = processes.identify(os.getpid())
        assert me is not None
        children = {w.service.name: w.process for w in self._watched if w.process is not None}
        ports = {w.service.name: port for w in self._watched if (port := getattr(w.service, "port", None)) is not None}
        with contextlib.suppress(OSError):  # a full disk must not end the service; the note only helps a recovery
            self._data.note_running(Running(supervisor=me, url=self._url, children=children, ports=ports))

    @contextlib.contextmanager
    def _log(self, name: str) -> Iterator[int]:
        descriptor = os.open(self._log_path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _log_path(self, name: str) -> Path:
        return self._data.logs / f"{name}.log"

    def _rotate_logs(self) -> None:
        """Copies a long log aside and empties it in place: its writers append, so they go on at the start."""
        self._looked_at_logs = time.monotonic()
        for log in self._data.logs.glob("*.log"):
            with contextlib.suppress(OSError):
                if log.stat().st_size < LOG_BYTES:
                    continue
                for number in range(OLD_LOGS - 1, 0, -1):
                    old = log.with_name(f"{log.name}.{number}")
                    if old.exists():
                        old.replace(log.with_name(f"{log.name}.{number + 1}"))
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)

    def _last_words(self, service: SupervisedService | ServiceCommand) -> str:
        path = self._log_path(service.name)
        line = last_line(path)
        return f": {line} (all of it: {path})" if line else f" (its log: {path})"


def _is_over(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is not None


def last_line(path: Path) -> str:
    """The last non-empty line of a log, shortened, without anything that could move a terminal's cursor."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    printable = "".join(character for character in (said[-1] if said else "") if character.isprintable())
    return printable if len(printable) <= 300 else printable[:297] + "…"


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:  # not Linux, or a kernel built without it
        return [child.pid for child in psutil.Process().children()]
