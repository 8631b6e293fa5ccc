"""Telemetry of one NVIDIA GPU through NVML, by ctypes."""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.telemetry.readings import column, device_summary, own_group, strangers, watched_summary

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

STRANGERS_EVERY_S = 1.0
"""Between two looks for strangers: who is ours is read from all of /proc, too much for every reading."""


class NvmlProcess(ctypes.Structure):
    """`nvmlProcessInfo_t`."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlProbe:
    """Clock, temperature, power, throttle reasons and foreign processes of the GPU that measuring processes see first.

    `visible` is `CUDA_VISIBLE_DEVICES`: indices, whole or shortened UUIDs. Raises `OSError` where NVML does not answer,
    or knows no such GPU.
    """

    def __init__(self, visible: str | None = None, library: Any = None) -> None:
        self._nvml = library or ctypes.CDLL(ctypes.util.find_library("nvidia-ml") or "libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self._device = self._first_visible(visible)
        self.facts = {
            "gpu_uuid": self._text("nvmlDeviceGetUUID", self._device),
            "driver": self._text("nvmlSystemGetDriverVersion"),
            "power_limit_w": _thousandth(self._number("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint)),
        }
        self._looked_at, self._strangers = -STRANGERS_EVERY_S, 0

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._nvml, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} answered {code}")

    def _first_visible(self, visible: str | None) -> ctypes.c_void_p:
        first = (visible or "0").split(",")[0].strip()
        if first.isdigit():
            return self._by_index(int(first))
        if first.startswith("MIG-"):
            device = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByUUID", first.encode(), ctypes.byref(device))
            return device
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            device = self._by_index(index)
            if (self._text("nvmlDeviceGetUUID", device) or "").startswith(first):
                return device
        raise OSError(f"NVML knows no GPU {first}")

    def _by_index(self, index: int) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
        return device

    def _text(self, name: str, *before: Any) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        try:
            self._call(name, *before, buffer, len(buffer))
        except (OSError, AttributeError):
            return None
        return buffer.value.decode()

    def _number(self, name: str, kind: Any, *before: Any) -> int | None:
        value = kind()
        try:
            self._call(name, self._device, *before, ctypes.byref(value))
        except (OSError, AttributeError):
            return None
        return int(value.value)

    def _foreign_processes(self) -> int | None:
        """Compute processes on this GPU that are not ours, looked for once a second."""
        now = time.monotonic()
        if now - self._looked_at < STRANGERS_EVERY_S:
            return self._strangers
        count, buffer = ctypes.c_uint(128), (NvmlProcess * 128)()
        try:
            self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._device, ctypes.byref(count), buffer)
        except (OSError, AttributeError):
            return None
        pids = frozenset(int(process.pid) for process in buffer[: count.value])
        self._looked_at, self._strangers = now, strangers(pids, own_group())
        return self._strangers

    def read(self) -> Mapping[str, Any]:
        """Megahertz, degrees, milliwatts, millijoules."""
        readings = {
            "sm_clock_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, 1),
            "temperature_c": self._number("nvmlDeviceGetTemperature", ctypes.c_uint, 0),
            "power_mw": self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint),
            "energy_mj": self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong),
            "throttle_bits": self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong),
            "foreign_processes": self._foreign_processes(),
        }
        return {name: value for name, value in readings.items() if value is not None}

    def summary(self, readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The contract's fields; throttling by every reason that was seen once."""
        found = device_summary(readings) | watched_summary(readings)
        bits = [int(value) for value in column(readings, "throttle_bits")]
        if bits:
            seen = {name for value in bits for bit, name in THROTTLE_REASONS.items() if value & bit}
            found["throttle"] = sorted(seen - _HARMLESS)
        return found


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
