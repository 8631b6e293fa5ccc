"""Child processes: started so that they die with us, recognized by more than their pid, and reliably ended.

A pid alone identifies nothing: the kernel reuses it. So a process is remembered with its start time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Loaded before any fork: between fork and exec nothing may be imported or allocated at leisure.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group by number; neither needs a line in /etc/passwd."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process for all time: its pid and when it started (boot and clock ticks on Linux)."""

    pid: int
    started: str


def identify(pid: int) -> Process | None:
    """The process that has this pid now, or None when there is none or it is already dead."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in {"Z", "X"} else Process(pid, f"{_boot_id()}:{fields[19]}")
    try:
        found = psutil.Process(pid)
        return None if found.status() == psutil.STATUS_ZOMBIE else Process(pid, f"{found.create_time():.2f}")
    except psutil.Error:
        return None


def is_alive(process: Process) -> bool:
    return identify(process.pid) == process


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: int,
    account: Account | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a child in its own session (a Ctrl-C in the terminal reaches only us, and we stop it in order).

    Must be called from the main thread: the kernel sends `death_signal` when the thread that forked ends.
    """
    return subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        start_new_session=True,
        pass_fds=tuple(pass_fds),
        # Safe here: the supervisor has one thread, and the function makes two system calls.
        preexec_fn=_dies_with(os.getpid(), death_signal),  # noqa: PLW1509
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
    )


def adopt_orphans() -> None:
    """Grandchildren whose parent dies become our children (Linux), so that none escapes the stop."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[Process]:
    """Everything below this process, deepest last."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [process for child in below if (process := identify(child.pid)) is not None]


def send(process: Process, signal_number: int) -> None:
    """Signals this very process; silently nothing when it has gone or its pid belongs to another now."""
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal_number)


def end(processes: Iterable[Process], *, first: signal.Signals = signal.SIGTERM, patience_s: float = 2.0) -> None:
    """Asks, waits, then kills; returns when none is left."""
    left = [process for process in processes if is_alive(process)]
    for process in left:
        send(process, first)
    if not wait_until(lambda: not any(is_alive(process) for process in left), patience_s):
        for process in left:
            send(process, signal.SIGKILL)
        wait_until(lambda: not any(is_alive(process) for process in left), 2.0)


def wait_until(condition: Callable[[], bool], timeout_s: float, *, every_s: float = 0.02) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def describe_exit(code: int) -> str:
    """How a child ended, in words: `exit status 3`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _dies_with(parent: int, death_signal: signal.Signals) -> Callable[[], None] | None:
    # After a change of user the kernel forgets the wish, so this must run as the child's last step before exec;
    # subprocess calls it there.
    libc = _LIBC
    if libc is None:
        return None

    def ask_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the kernel knew of our wish
            os._exit(1)

    return ask_kernel


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
