"""Telemetry of the machine while the suite runs: every source that answers, read ten times a second.

A run has the summary of everything, a result that of its own measured windows.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.telemetry import amd
from benchmarks.telemetry.nvml import NvmlProbe
from benchmarks.telemetry.readings import CpuProbe, Probe

INTERVAL_S = 0.1

Window = tuple[int, int]
"""From and to, in milliseconds since the epoch."""


def probes() -> list[Probe]:
    """Every source that answers on this machine."""
    found: list[Probe] = [CpuProbe()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if Path("/dev/nvidiactl").exists() and visible != "":
        with contextlib.suppress(OSError):
            found.append(NvmlProbe(visible))
    cards = sorted(Path("/sys/class/drm").glob("card[0-9]*/device"))
    return found + amd_probes([card for card in cards if (card / "gpu_busy_percent").exists()])


def amd_probes(cards: Sequence[Path]) -> list[Probe]:
    """amdsmi's answers for the first AMD GPU where that library works, else the kernel's files; none without a card."""
    if not cards:
        return []
    try:
        return [amd.AmdSmiProbe()]
    except (ImportError, OSError):
        return [amd.SysfsAmdProbe(cards[0])]


OF_A_GPU = frozenset("sm_clock_mhz temperature_c power_w power_limit_w energy_j throttle foreign_processes".split())


def of_the_measured_gpu(watched: Mapping[str, Any], measured_uuid: str | None) -> dict[str, Any]:
    """The telemetry of a run, without what was read of another GPU than the one that measuring processes used."""
    watched_uuid = watched.get("gpu_uuid")
    if measured_uuid is None or watched_uuid is None or watched_uuid == measured_uuid:
        return dict(watched)
    return {name: value for name, value in watched.items() if name not in OF_A_GPU}


@dataclass(slots=True)
class _Source:
    """A probe with all its readings, each with its moment in milliseconds since the epoch."""

    probe: Probe
    readings: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)

    def read(self) -> None:
        self.readings.append((int(time.time() * 1000), self.probe.read()))

    def within(self, window: Window) -> list[Mapping[str, Any]]:
        return [reading for at, reading in self.readings if window[0] <= at <= window[1]]

    def summary(self, windows: Sequence[Window]) -> dict[str, Any]:
        """Of all windows together; energy is counted within each, for others ran between them."""
        each = [self.within(window) for window in windows]
        together = [reading for readings in each for reading in readings]
        found = self.probe.summary(together) if together else {}
        energies = [self.probe.summary(readings).get("energy_j") for readings in each if readings]
        if "energy_j" in found:
            found["energy_j"] = sum(energy for energy in energies if energy is not None)
        return found


@dataclass(slots=True)
class Telemetry:
    """Reads every probe on a separate thread, between `started` and `stop`."""

    sources: list[_Source]
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def started(cls, make: Callable[[], list[Probe]] = probes) -> Telemetry:
        """A running telemetry."""
        telemetry = cls([_Source(probe) for probe in make()])
        telemetry._thread = threading.Thread(target=telemetry._watch, daemon=True)
        telemetry._thread.start()
        return telemetry

    def _watch(self) -> None:
        while True:
            for source in self.sources:
                source.read()
            if self._done.wait(INTERVAL_S):
                return

    def stop(self) -> dict[str, Any]:
        """Ends the reading and sums all of it up in the contract's fields."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        facts: dict[str, Any] = {}
        for source in self.sources:
            facts |= {name: fact for name, fact in getattr(source.probe, "facts", {}).items() if fact is not None}
        return self._summary([(0, 2**63)]) | facts

    def during(self, windows: Sequence[Window]) -> dict[str, Any]:
        """Readings within these windows, in the contract's fields; `readings` says how often."""
        counts = [sum(len(source.within(window)) for window in windows) for source in self.sources]
        return self._summary(windows) | {"readings": max(counts, default=0)}

    def _summary(self, windows: Sequence[Window]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for source in self.sources:
            found |= source.summary(windows)
        return found
