"""Readings of a machine, whatever they come from: what a probe is, a CPU's probe, and how readings are summed up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Protocol


class Probe(Protocol):
    """One source of readings."""

    def read(self) -> Mapping[str, Any]:
        """Readings of this moment, by name."""
        ...

    def summary(self, readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The contract's fields from all readings."""
        ...


class CpuProbe:
    """Load, stolen time and CPU use of processes that are not ours, from /proc."""

    def __init__(self) -> None:
        self._last: tuple[int, int, int] | None = None

    def read(self) -> Mapping[str, Any]:
        reading: dict[str, Any] = {}
        try:
            reading["load_1m"] = os.getloadavg()[0]
            fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return reading
        total, idle, stolen = sum(fields), fields[3] + fields[4], fields[7] if len(fields) > 7 else 0
        if self._last is not None and total > self._last[0]:
            passed = total - self._last[0]
            reading["busy"] = 1 - (idle - self._last[1]) / passed
            reading["stolen"] = (stolen - self._last[2]) / passed
        self._last = (total, idle, stolen)
        return reading

    def summary(self, readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        cores = os.cpu_count() or 1
        busy, stolen, load = (column(readings, name) for name in ("busy", "stolen", "load_1m"))
        found: dict[str, Any] = {"cpu_count": cores}
        if load:
            found["load_1m"] = round(load[-1], 2)
        if busy:
            # The suite itself keeps one core busy; what is above that belongs to others.
            found["cpu_busy"] = round(median(busy), 3)
            found["foreign_cpus"] = round(max(0.0, median(busy) * cores - 1.0), 2)
        if stolen:
            found["stolen"] = round(max(stolen), 3)
        return found


def device_summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Clock, temperature and power of a GPU in the contract's fields."""
    found: dict[str, Any] = {}
    clocks, degrees, power = (column(readings, name) for name in ("sm_clock_mhz", "temperature_c", "power_mw"))
    if clocks:
        ordered = sorted(clocks)
        found["sm_clock_mhz"] = {"p05": ordered[len(ordered) // 20], "p50": median(ordered)}
    if degrees:
        found["temperature_c"] = {"min": min(degrees), "max": max(degrees)}
    if power:
        found["power_w"] = {"p50": median(power) / 1000}
    return found


def watched_summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Energy between the first and the last reading, and the most strangers seen at once."""
    found: dict[str, Any] = {}
    energy, foreign = column(readings, "energy_mj"), column(readings, "foreign_processes")
    if len(energy) > 1:
        found["energy_j"] = (energy[-1] - energy[0]) / 1000
    if foreign:
        found["foreign_processes"] = int(max(foreign))
    return found


def own_group() -> frozenset[int]:
    """This process and all below it: ranks and loaders of ours are no strangers."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        grown = bool(more)
        ours |= more
    return frozenset(ours)


def strangers(pids: frozenset[int], ours: frozenset[int]) -> int:
    """How many of these processes are neither ours nor of another namespace.

    A driver identifies processes by the host's ids. In a container our own have different ids, and would appear under
    the host's, so only a process that this system knows by that id can be called a stranger.
    """
    return sum(1 for pid in pids - ours if Path(f"/proc/{pid}").exists())


def column(readings: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Every reading of that name, in the order of time."""
    return [float(reading[name]) for reading in readings if name in reading]
