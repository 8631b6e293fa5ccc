"""Whether this machine can still be trusted with a run: its GPUs are there, its disk has space.

GPUs are queried through `nvidia-smi`, a separate process that can be abandoned: with a GPU that fell off the bus, the
driver's library may never return. The kernel's log says why (an Xid), if it may be read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ASK_LIMIT_S = 20.0
WRONG_CLOCK_S = 120.0
# Faults of the hardware or the driver: the GPU is of no use until somebody resets it. Others (13, 31, 43, 45 …) are
# what faulty code causes, and end with it.
FATAL_XIDS = {
    48: "double-bit memory error",
    62: "internal micro-controller halt",
    64: "memory rows cannot be remapped",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timed out",
    119: "GSP does not answer",
    120: "GSP error",
    140: "memory error that cannot be corrected",
}
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+)")
LOST = re.compile(r"(?:GPU is lost|fallen off the bus|Unable to determine the device handle[^\n]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs listed by `nvidia-smi`. `flaw`: why it could not list them."""

    ids: tuple[str, ...] = ()
    flaw: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The machine before a run."""

    gpus: Gpus
    xids: frozenset[tuple[str, int, int]]


def look() -> Baseline:
    return Baseline(gpus=list_gpus(), xids=read_xids())


def gpu_trouble(before: Baseline) -> str | None:
    """A GPU fault since the start, in words; None when all GPUs are still there."""
    if not before.gpus.ids:
        return None
    fresh = sorted(read_xids() - before.xids)
    fatal = [(place, code) for place, code, _ in fresh if code in FATAL_XIDS]
    because = ""
    if fatal:
        place, code = fatal[-1]
        because = f" (Xid {code} at {place}: {FATAL_XIDS[code]})"
    now = list_gpus()
    if now.flaw is not None:
        return f"a GPU was lost: {now.flaw}{because}"
    gone = [gpu for gpu in before.gpus.ids if gpu not in now.ids]
    if gone:
        return f"a GPU was lost: {', '.join(gone)}{because}"
    return f"a GPU reported a fault{because}" if fatal else None


def list_gpus() -> Gpus:
    """The GPUs of this machine by name and number; none where there is no driver."""
    if shutil.which("nvidia-smi") is None:
        return Gpus()
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, errors="replace", timeout=ASK_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Gpus(flaw=f"nvidia-smi did not answer within {ASK_LIMIT_S:.0f} s")
    except OSError as failure:
        return Gpus(flaw=f"nvidia-smi could not be run: {failure}")
    said = f"{done.stdout}\n{done.stderr}"
    lost = LOST.search(said)
    if lost is not None:
        return Gpus(flaw=" ".join(lost.group().split())[:200])
    if done.returncode != 0:
        return Gpus(flaw=" ".join(said.split())[:200] or f"nvidia-smi ended with exit code {done.returncode}")
    return Gpus(ids=tuple(line.split(" (UUID")[0].strip() for line in done.stdout.splitlines() if line.strip()))


def read_xids() -> frozenset[tuple[str, int, int]]:
    """Every Xid in the kernel's log as (GPU, code, how many times so far); empty where the log may not be read."""
    try:
        done = subprocess.run(
            ["dmesg"], capture_output=True, text=True, errors="replace", timeout=ASK_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    counted: dict[tuple[str, int], int] = {}
    for place, code in XID.findall(done.stdout):
        counted[place, int(code)] = counted.get((place, int(code)), 0) + 1
    return frozenset((place, code, times) for (place, code), times in counted.items())


def clock_trouble(ahead_s: float | None) -> str | None:
    """That this machine's clock is wrong: its runs would stand at a time at which they were not measured."""
    if ahead_s is None or abs(ahead_s) < WRONG_CLOCK_S:
        return None
    where = "ahead of" if ahead_s > 0 else "behind"
    return f"its clock is {abs(ahead_s):.0f} s {where} the service's: set it (NTP)"


def disk_trouble(directory: Path, needed_bytes: int) -> str | None:
    """That the disk is too full to begin a run; None when there is room."""
    free = shutil.disk_usage(directory).free
    if free >= needed_bytes:
        return None
    return f"the disk of {directory} is full: {free / 1e9:.1f} GB are free, {needed_bytes / 1e9:.1f} GB are needed"
