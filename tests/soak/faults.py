"""The faults of a soak: each breaks something that breaks in real life, at a moment that chance picks."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import redis

from tests.soak.stack import LEASE_S, WORKERS, Stack


@dataclass(frozen=True)
class Struck:
    """A fault that was done, when (wall clock), and to whom."""

    name: str
    at: float
    victim: str


def kill_worker(stack: Stack, chance: random.Random) -> str | None:
    return _kill(stack, chance.choice(WORKERS))


def stop_worker(stack: Stack, chance: random.Random) -> str | None:
    """SIGTERM: it hands its run back."""
    return _kill(stack, chance.choice(WORKERS), signal.SIGTERM)


def freeze_worker(stack: Stack, chance: random.Random) -> str | None:
    """For longer than its lease: it comes back to a run that is somebody else's."""
    name = chance.choice(WORKERS)
    child = stack.children[name]
    if not child.kill(signal.SIGSTOP):
        return None
    frozen = child.process
    assert frozen is not None
    threading.Timer(LEASE_S * 1.5, lambda: frozen.send_signal(signal.SIGCONT)).start()
    return name


def fill_disk(stack: Stack, chance: random.Random) -> str | None:
    """For some seconds no file grows that a worker, or what it starts, writes: what a full disk is to them."""
    name = chance.choice(WORKERS)
    child = stack.children[name].process
    if child is None or child.poll() is not None or not _let_files_grow(child, False):
        return None
    threading.Timer(chance.uniform(1, 6), lambda: _let_files_grow(child, True)).start()
    return name


def _let_files_grow(child: subprocess.Popen[bytes], may: bool) -> bool:
    """Of a worker and all below it; whether it was there to be told."""
    if child.poll() is not None:
        return False
    for process in (psutil.Process(child.pid), *_below(child.pid)):
        try:
            _, most = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (most if may else 0, most))
        except psutil.Error:
            continue
    return True


def kill_benchmark(stack: Stack, chance: random.Random) -> str | None:
    """The command of a run, or the shim above it."""
    workers = [child for name in WORKERS if (child := stack.children[name].process) is not None]
    found = [process for worker in workers for process in _below(worker.pid)]
    if not found:
        return None
    victim = chance.choice(found)
    try:
        name = " ".join(victim.cmdline())[-40:]
        victim.kill()
    except psutil.Error:
        return None
    return name or "a process"


def kill_api(stack: Stack, chance: random.Random) -> str | None:
    return _kill(stack, "api")


def kill_beat(stack: Stack, chance: random.Random) -> str | None:
    return _kill(stack, "beat")


def kill_broker(stack: Stack, chance: random.Random) -> str | None:
    return _kill(stack, "valkey")


def flush_broker(stack: Stack, chance: random.Random) -> str | None:
    try:
        redis.Redis.from_url(stack.valkey.url, socket_timeout=2, socket_connect_timeout=2).flushall()
    except redis.RedisError:
        return None
    return "valkey"


def kill_postgres(stack: Stack, chance: random.Random) -> str | None:
    """The whole server at once, as when the power goes."""
    child = stack.children["postgres"].process
    if child is None or child.poll() is not None:
        return None
    family = [*_below(child.pid)]
    child.kill()
    for process in family:
        try:
            process.kill()
        except psutil.Error:
            continue
    return "postgres"


def restart_postgres(stack: Stack, chance: random.Random) -> str | None:
    return _kill(stack, "postgres", signal.SIGINT)


def kill_machine(stack: Stack, chance: random.Random) -> str | None:
    """Every process there is, at one moment."""
    with stack.lock:
        for process in stack.processes():
            try:
                process.kill()
            except psutil.Error:
                continue
    return "everything"


FAULTS: tuple[tuple[Callable[[Stack, random.Random], str | None], int], ...] = (
    (kill_worker, 5),
    (stop_worker, 2),
    (freeze_worker, 2),
    (kill_benchmark, 4),
    (fill_disk, 3),
    (kill_api, 3),
    (kill_beat, 2),
    (kill_broker, 2),
    (flush_broker, 3),
    (kill_postgres, 1),
    (restart_postgres, 1),
    (kill_machine, 1),
)


def strike(stack: Stack, chance: random.Random) -> Struck | None:
    """One fault; None where its victim was dead already."""
    ((fault, _),) = chance.choices(FAULTS, weights=[weight for _, weight in FAULTS])
    at = time.time()
    victim = fault(stack, chance)
    return None if victim is None else Struck(fault.__name__, at, victim)


def _kill(stack: Stack, name: str, number: signal.Signals = signal.SIGKILL) -> str | None:
    return name if stack.children[name].kill(number) else None


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
