"""What the machine did while the suite ran, behind one interface.

Load and neighbours on a CPU, clocks and power where NVML answers.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

INTERVAL_S = 0.2


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


THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
_HARMLESS = {"gpu_idle", "application_clocks", "sync_boost", "display_clocks"}


class NvmlProbe:
    """Clocks, temperature, power, throttle reasons and foreign processes of one NVIDIA GPU, through ctypes."""

    def __init__(self, index: int = 0) -> None:
        self._nvml = ctypes.CDLL(ctypes.util.find_library("nvidia-ml") or "libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self._device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._device))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._nvml, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} answered {code}")

    def _number(self, name: str, kind: Any, *before: Any) -> int | None:
        value = kind()
        try:
            self._call(name, self._device, *before, ctypes.byref(value))
        except (OSError, AttributeError):
            return None
        return int(value.value)

    def foreign_processes(self, ours: frozenset[int]) -> int | None:
        """Compute processes on this GPU that are not in `ours`."""

        class Process(ctypes.Structure):
            _fields_ = (
                ("pid", ctypes.c_uint),
                ("memory", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint),
            )

        count, buffer = ctypes.c_uint(128), (Process * 128)()
        try:
            self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._device, ctypes.byref(count), buffer)
        except (OSError, AttributeError):
            return None
        return sum(1 for process in buffer[: count.value] if process.pid not in ours)

    def read(self) -> Mapping[str, Any]:
        readings = {
            "sm_clock_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, 1),
            "temperature_c": self._number("nvmlDeviceGetTemperature", ctypes.c_uint, 0),
            "power_mw": self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint),
            "energy_mj": self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong),
            "throttle_bits": self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong),
            "foreign_processes": self.foreign_processes(own_group()),
        }
        return {name: value for name, value in readings.items() if value is not None}

    def summary(self, readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        found = device_summary(readings) | watched_summary(readings)
        bits = [int(value) for value in column(readings, "throttle_bits")]
        if bits:
            seen = {name for value in bits for bit, name in THROTTLE_REASONS.items() if value & bit}
            found["throttle"] = sorted(seen - _HARMLESS)
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


def column(readings: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Every reading of that name, in the order of time."""
    return [float(reading[name]) for reading in readings if name in reading]


def probes() -> list[Probe]:
    """Every source that answers on this machine."""
    found: list[Probe] = [CpuProbe()]
    if Path("/dev/nvidiactl").exists():
        with contextlib.suppress(OSError):
            found.append(NvmlProbe())
    cards = sorted(Path("/sys/class/drm").glob("card[0-9]*/device"))
    return found + amd_probes([card for card in cards if (card / "gpu_busy_percent").exists()])


def amd_probes(cards: Sequence[Path]) -> list[Probe]:
    """amdsmi's answers for the first AMD GPU where that library works, else the kernel's files; none without a card."""
    from benchmarks import amd

    if not cards:
        return []
    try:
        return [amd.AmdSmiProbe()]
    except (ImportError, OSError):
        return [amd.SysfsAmdProbe(cards[0])]


@dataclass(slots=True)
class Telemetry:
    """Reads every probe five times a second on a thread of its own, between `start` and `stop`."""

    sources: list[Probe]
    _readings: list[list[Mapping[str, Any]]]
    _done: threading.Event
    _thread: threading.Thread | None

    @classmethod
    def started(cls, make: Callable[[], list[Probe]] = probes) -> Telemetry:
        """A running telemetry."""
        sources = make()
        telemetry = cls(sources, [[] for _ in sources], threading.Event(), None)
        telemetry._thread = threading.Thread(target=telemetry._watch, daemon=True)
        telemetry._thread.start()
        return telemetry

    def _watch(self) -> None:
        while True:
            for source, readings in zip(self.sources, self._readings, strict=True):
                readings.append(source.read())
            if self._done.wait(INTERVAL_S):
                return

    def stop(self) -> dict[str, Any]:
        """Ends the reading and sums it up in the contract's fields."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        found: dict[str, Any] = {}
        for source, readings in zip(self.sources, self._readings, strict=True):
            found |= source.summary(readings)
        return found
