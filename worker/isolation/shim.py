"""The small process between the worker and the code of a commit: it starts that code and guarantees that it ends.

Started by the worker with nothing but the standard library and `namespaces` in reach, and never imported by it:

    python -I -S -c "… from worker.isolation import shim …" CONTROL_FD STATUS_FD

The first line on CONTROL is the order (JSON). Later lines are `end SECONDS` (terminate everything, kill what is left
after so many seconds). When CONTROL closes, the worker is gone, and everything is killed at once: a worker that dies
by `kill -9` leaves no benchmark behind. STATUS gets one line of JSON: how the command ended.

The shim makes itself the reaper of orphans (Linux), so a grandchild that left the session is still found and ended.
It can give the command another user, its own namespaces (`namespaces`: what it sees of the machine), and limits.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from worker.isolation import namespaces

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

STARTED, NOT_STARTED = b"+", b"-"

GRACE_FOR_LEFTOVERS_S = 1.0
GIVE_UP_KILLING_AFTER_S = 10.0
ON_LINUX = sys.platform.startswith("linux")


def main(control: int, status: int) -> None:
    try:
        order, rest = read_order(control)
    except (OSError, ValueError):
        return  # the worker died before it said what to run
    report = Shim(control, rest).carry_out(order)
    with contextlib.suppress(OSError):
        os.write(status, json.dumps(report).encode() + b"\n")


def read_order(control: int) -> tuple[dict[str, Any], bytes]:
    received = b""
    while b"\n" not in received:
        chunk = os.read(control, 65536)
        if not chunk:
            raise ValueError("the order never came")
        received += chunk
    line, _, rest = received.partition(b"\n")
    order: dict[str, Any] = json.loads(line)
    return order, rest


class Shim:
    """One command, its descendants, and the two reasons to end them: it is over, or the worker says so."""

    def __init__(self, control: int, pending: bytes) -> None:
        self.control = control
        self.pending = pending
        self.command_pid = 0
        self.first_pid = 0
        self.inside_reader = -1
        self.wait_status: int | None = None
        self.wake_reader, self.wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(self.wake_writer, False)

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        become_reaper_of_orphans()
        signal.set_wakeup_fd(self.wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        asked_to_end = False
        try:
            own = order.get("own_namespaces")
            if own and own["needed"] is not None:
                self.start_inside(order, own)
            else:
                if order.get("view") or own:
                    namespaces.furnish(order["view"], own)
                apply_limits(order.get("limits") or {})
                with in_groups(order.get("groups") or []):
                    self.command_pid = start(order)
        except (OSError, ValueError, subprocess.SubprocessError) as failure:
            return {"started": False, "error": str(failure)}
        while self.wait_status is None:
            grace_s = self.wait_for_news()
            if grace_s is not None:
                asked_to_end = True
                self.end_everything(grace_s)
                break
        leftovers = [pid for pid in descendants(os.getpid()) if pid != self.first_pid]
        survivors = self.end_everything(GRACE_FOR_LEFTOVERS_S if not asked_to_end else 0.0)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "started": True,
            "exit": os.waitstatus_to_exitcode(self.wait_status) if self.wait_status is not None else None,
            "leftovers": len(leftovers),
            "survivors": survivors,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "max_rss_bytes": usage.ru_maxrss * (1024 if ON_LINUX else 1),
        }

    def start_inside(self, order: dict[str, Any], own: dict[str, Any]) -> None:
        """The command with its own root, under a process that is the first in there and reaps for it."""
        self.inside_reader, inside_writer = os.pipe()
        namespaces.become_stranger(network=own["network"])
        self.first_pid = os.fork()
        if self.first_pid == 0:
            be_first(order, own, inside_writer)
        os.close(inside_writer)
        if os.read(self.inside_reader, 1) != STARTED:
            os.waitpid(self.first_pid, 0)
            raise OSError(os.read(self.inside_reader, 4096).decode() or "its first process died")

    def hear_inside(self) -> None:
        """How the command ended, from the process above it."""
        said = os.read(self.inside_reader, 4096).decode()
        self.wait_status = int(said) if said else self.wait_status
        os.close(self.inside_reader)
        self.inside_reader = -1

    def wait_for_news(self) -> float | None:
        """Sleeps until a process ended or the worker spoke; the grace in seconds when everything is to end."""
        self.reap()
        return None if self.wait_status is not None else self.hear_worker(None)

    def hear_worker(self, limit_s: float | None) -> float | None:
        """The grace the worker gives, if it said so within the limit or is gone (none then)."""
        if b"\n" not in self.pending:
            watched = [self.control, self.wake_reader, *([self.inside_reader] if self.inside_reader >= 0 else [])]
            readable, _, _ = select.select(watched, [], [], limit_s)
            if self.inside_reader in readable:
                self.hear_inside()
            if self.wake_reader in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake_reader, 4096)
            if self.control in readable:
                chunk = os.read(self.control, 4096)
                if not chunk:
                    return 0.0
                self.pending += chunk
        line, newline, rest = self.pending.partition(b"\n")
        if not newline:
            return None
        self.pending = rest
        return float(line.split()[1])

    def end_everything(self, grace_s: float) -> int:
        """TERM to every descendant, KILL after the grace; how many would not die (stuck in the kernel)."""
        began = time.monotonic()
        if grace_s > 0:
            signal_all(descendants(os.getpid()), signal.SIGTERM)
            # A stopped process gets to see its TERM only once it is continued.
            signal_all(descendants(os.getpid()), signal.SIGCONT)
        while True:
            self.reap()
            left = descendants(os.getpid())
            if not left:
                return 0
            waited_s = time.monotonic() - began
            if waited_s >= grace_s:
                signal_all(left, signal.SIGKILL)
            if waited_s >= grace_s + GIVE_UP_KILLING_AFTER_S:
                return len(left)
            # A worker that dies meanwhile, or loses its patience, cuts the grace short.
            sooner_s = self.hear_worker(0.02)
            if sooner_s is not None:
                grace_s = min(grace_s, waited_s + sooner_s)
                if sooner_s == 0:
                    time.sleep(0.02)  # a closed pipe answers at once, for ever

    def reap(self) -> None:
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.first_pid and self.inside_reader >= 0:
                self.hear_inside()
            if pid == self.command_pid or (pid == self.first_pid and self.wait_status is None):
                self.wait_status = wait_status


def start(order: dict[str, Any]) -> int:
    user = order.get("user")
    identity: dict[str, Any] = {}
    if user is not None:
        identity = {"user": user["uid"], "group": user["gid"], "extra_groups": []}
    if user is not None or order.get("own_namespaces"):
        forbid_new_privileges()
    process = subprocess.Popen(
        order["argv"],
        cwd=order["cwd"],
        env=order["env"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **identity,
    )
    process.returncode = 0  # the shim reaps; Popen must neither wait for the process nor warn about it
    return process.pid


def be_first(order: dict[str, Any], own: dict[str, Any], report: int) -> None:
    """The first process of new namespaces: it builds the root, starts the command, tells how that ended, and is there
    until nothing is left, as everything here ends with it."""
    try:
        signal.set_wakeup_fd(-1)
        namespaces.build(own)
        apply_limits(order.get("limits") or {})
        command = start(order)
        os.write(report, STARTED)
        while True:
            pid, wait_status = os.waitpid(-1, 0)
            if pid == command:
                os.write(report, str(wait_status).encode())
    except ChildProcessError:
        os._exit(0)
    except BaseException as failure:
        os.write(report, NOT_STARTED + f"{failure}"[:2000].encode())
        os._exit(1)


@contextlib.contextmanager
def in_groups(groups: list[list[str]]) -> Iterator[None]:
    """Processes started within this context belong to these groups; the shim itself returns to its own."""
    for place, _ in groups:
        enter_group(place)
    try:
        yield
    finally:
        for _, back in groups:
            enter_group(back)


def enter_group(place: str) -> None:
    with open(f"{place}/cgroup.procs", "w") as processes:
        processes.write(str(os.getpid()))


def descendants(root: int) -> list[int]:
    """Every living process below `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    for pid, parent in living_processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    frontier = [root]
    while frontier:
        below = children.pop(frontier.pop(), [])
        found += below
        frontier += below
    return found


def living_processes() -> list[tuple[int, int]]:
    if not ON_LINUX:
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=False)
        rows = [line.split() for line in listed.stdout.splitlines()]
        return [(int(row[0]), int(row[1])) for row in rows if len(row) == 3 and not row[2].startswith("Z")]
    processes = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:
                # The name stands in parentheses and may hold anything, so count from the last one.
                state, parent = stat.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            processes.append((int(entry), int(parent)))
    return processes


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def become_reaper_of_orphans() -> None:
    if ON_LINUX:
        libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def forbid_new_privileges() -> None:
    """No set-user-id program gives the command back what it was denied."""
    if ON_LINUX:
        libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def apply_limits(limits: dict[str, int]) -> None:
    for name, wanted in limits.items():
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is None:
            continue
        _, hard = resource.getrlimit(which)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(which, (limit, limit))
    if ON_LINUX:
        # When memory runs out, the benchmark is to go, not the database beside it.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("500")


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
