"""Observe this machine: capabilities reported to the service, telemetry written next to results."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# A process that used less of one core than this, over a whole run, did not disturb it.
DISTURBING_SHARE = 0.1
SHOWN_FOREIGN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One GPU as its driver describes it. None where the driver does not say."""

    index: int
    name: str
    memory_bytes: int | None
    temperature_c: int | None
    power_w: float | None
    sm_clock_mhz: int | None
    process_ids: tuple[int, ...]


def capabilities(data_dir: Path) -> dict[str, Any]:
    """Capabilities of this machine, sent to the service and shown on its pages."""
    accelerators = read_accelerators()
    driver = nvidia_driver()
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count() or 1,
        "cpu_usable": _usable_cpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "disk_free_bytes": shutil.disk_usage(data_dir).free,
        "accelerators": [{"name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in accelerators],
        **({"driver": driver} if driver else {}),
    }


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    return platform.processor() or platform.machine()


def _usable_cpus() -> int:
    """Cores this process may use: a container or a taskset may allow fewer than there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class MachineWatch:
    """How busy the rest of the machine was while a run went on. It reads twice, at the start and at the end:
    watching in between would disturb what is measured."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy_s = _busy_s()
        self._cpu_s = _cpu_s_by_process()
        self._load_1m = _load_1m()
        self._gpus = {gpu.index: gpu for gpu in read_accelerators()}

    def finish(self, own_cpu_s: float) -> dict[str, Any]:
        """Telemetry of the time in between; `own_cpu_s` is what the run itself used."""
        elapsed_s = max(time.monotonic() - self._began, 1e-3)
        foreign_s = max(0.0, _busy_s() - self._busy_s - own_cpu_s)
        foreign = self._foreign_processes(elapsed_s)
        telemetry: dict[str, Any] = {
            "load_1m": _load_1m(),
            "load_1m_before": self._load_1m,
            "foreign_cpu_share": round(min(1.0, foreign_s / elapsed_s / (os.cpu_count() or 1)), 4),
            "foreign_processes": len(foreign),
            "memory_available_bytes": psutil.virtual_memory().available,
            "cpu_s": round(own_cpu_s, 3),
        }
        if foreign:
            telemetry["foreign"] = [
                {"name": name, "cpu_share": round(share, 3)} for name, share in foreign[:SHOWN_FOREIGN]
            ]
        if self._gpus:
            telemetry["accelerators"] = [self._gpu_telemetry(gpu) for gpu in read_accelerators()]
        return telemetry

    def _foreign_processes(self, elapsed_s: float) -> list[tuple[str, float]]:
        """Processes other than this one that used a fair part of a core meanwhile, the busiest first. The run's own
        have ended by now, so whatever still lives is foreign."""
        shares = []
        for key, (name, cpu_s) in _cpu_s_by_process().items():
            before_s = self._cpu_s.get(key, (name, 0.0))[1]
            share = (cpu_s - before_s) / elapsed_s
            if share >= DISTURBING_SHARE and key[0] != os.getpid():
                shares.append((name, share))
        return sorted(shares, key=lambda pair: pair[1], reverse=True)

    def _gpu_telemetry(self, after: Accelerator) -> dict[str, Any]:
        before = self._gpus.get(after.index, after)
        return {
            "index": after.index,
            "name": after.name,
            "temperature_c": {"start": before.temperature_c, "end": after.temperature_c},
            "power_w": {"start": before.power_w, "end": after.power_w},
            "sm_clock_mhz": {"start": before.sm_clock_mhz, "end": after.sm_clock_mhz},
            "foreign_processes": len(after.process_ids),
        }


def _load_1m() -> float | None:
    with contextlib.suppress(OSError):
        return round(os.getloadavg()[0], 2)
    return None


def _busy_s() -> float:
    times = psutil.cpu_times()
    # Guest time is counted in user time already; waiting for disks keeps no core busy.
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def _cpu_s_by_process() -> dict[tuple[int, float], tuple[str, float]]:
    used = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError), process.oneshot():
            times = process.cpu_times()
            # A process id is used again in time; with the moment of its start it is not.
            used[(process.pid, process.create_time())] = (process.name(), times.user + times.system)
    return used


# --- NVIDIA, through its management library (NVML), which every driver brings along -----------------------------------


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@contextlib.contextmanager
def _nvml() -> Any:
    """The library while it is initialised, or None where there is none."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        usable = library.nvmlInit_v2() == 0
    except (OSError, AttributeError):
        yield None
        return
    try:
        yield library if usable else None
    finally:
        if usable:
            library.nvmlShutdown()


def read_accelerators() -> list[Accelerator]:
    """The GPUs of this machine as they are now; empty where there are none."""
    with _nvml() as library:
        count = ctypes.c_uint()
        if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        return [_read_accelerator(library, index) for index in range(count.value)]


def nvidia_driver() -> str | None:
    with _nvml() as library:
        version = ctypes.create_string_buffer(96)
        if library is None or library.nvmlSystemGetDriverVersion(version, len(version)) != 0:
            return None
        return version.value.decode(errors="replace")


def _read_accelerator(library: Any, index: int) -> Accelerator:
    device = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        # A GPU that fell off the bus still counts: it explains why its runs fail.
        return Accelerator(
            index=index,
            name="unreachable",
            memory_bytes=None,
            temperature_c=None,
            power_w=None,
            sm_clock_mhz=None,
            process_ids=(),
        )
    name = ctypes.create_string_buffer(96)
    named = library.nvmlDeviceGetName(device, name, len(name)) == 0
    memory = _Memory()
    has_memory = library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
    power_mw = _number(lambda out: library.nvmlDeviceGetPowerUsage(device, out))
    return Accelerator(
        index=index,
        name=name.value.decode(errors="replace") if named else "unknown",
        memory_bytes=memory.total if has_memory else None,
        temperature_c=_number(lambda out: library.nvmlDeviceGetTemperature(device, 0, out)),
        power_w=None if power_mw is None else power_mw / 1000,
        sm_clock_mhz=_number(lambda out: library.nvmlDeviceGetClockInfo(device, 1, out)),
        process_ids=_gpu_processes(library, device),
    )


def _number(ask: Any) -> int | None:
    value = ctypes.c_uint()
    return value.value if ask(ctypes.byref(value)) == 0 else None


def _gpu_processes(library: Any, device: ctypes.c_void_p) -> tuple[int, ...]:
    count = ctypes.c_uint(64)
    found = (_ProcessInfo * count.value)()
    if library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found) != 0:
        return ()
    return tuple(found[position].pid for position in range(count.value))
