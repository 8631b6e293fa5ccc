"""Telemetry of AMD GPUs: by amdsmi where it is installed, else from the kernel's files. Written without the hardware.

Both give the readings that NVML gives for NVIDIA's, in the same units, so that everything after them is shared.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.telemetry.readings import column, device_summary, own_group, strangers, watched_summary

VIOLATIONS = {
    "active_ppt_pwr": "sw_power_cap",
    "active_prochot_thrm": "hw_slowdown",
    "active_socket_thrm": "hw_thermal",
    "active_vr_thrm": "hw_thermal",
    "active_hbm_thrm": "hw_thermal",
}
"""The reasons of a held-back clock that amdsmi gives, in the words of the telemetry."""


class AmdSmiProbe:
    """Clock, temperature, power, energy, throttle reasons and foreign processes of one AMD GPU, through amdsmi."""

    def __init__(self, index: int = 0) -> None:
        self._smi = importlib.import_module("amdsmi")
        self._trouble: tuple[type[Exception], ...] = (self._smi.AmdSmiException, AttributeError, KeyError, TypeError)
        self._trouble += (ValueError,)
        try:
            self._smi.amdsmi_init()
            self._device = self._smi.amdsmi_get_processor_handles()[index]
        except (*self._trouble, IndexError) as error:
            raise OSError(f"amdsmi has no device {index}: {error}") from error

    def _tried(self, reading: Callable[[], Any]) -> float | None:
        """Read a value; None where amdsmi has none (`N/A`, a missing field or an exception, by release)."""
        try:
            return float(reading())
        except self._trouble:
            return None

    def read(self) -> Mapping[str, Any]:
        """Watts and microjoules become the milliwatts and millijoules that NVML counts in."""
        watts = self._tried(lambda: self._power()["current_socket_power"])
        if watts is None:
            watts = self._tried(lambda: self._power()["average_socket_power"])
        readings = {
            "sm_clock_mhz": self._tried(self._clock),
            "temperature_c": self._tried(self._temperature),
            "power_mw": None if watts is None else 1000 * watts,
            "energy_mj": self._tried(self._energy_mj),
            "busy": self._tried(lambda: self._smi.amdsmi_get_gpu_activity(self._device)["gfx_activity"] / 100),
            "foreign_processes": self._tried(self._foreign_processes),
        }
        found: dict[str, Any] = {name: value for name, value in readings.items() if value is not None}
        reasons = self._reasons()
        return found if reasons is None else found | {"throttle": reasons}

    def _power(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self._smi.amdsmi_get_power_info(self._device)
        return told

    def _clock(self) -> Any:
        told = self._smi.amdsmi_get_clock_info(self._device, self._smi.AmdSmiClkType.GFX)
        return told["clk"] if "clk" in told else told["cur_clk"]

    def _temperature(self) -> Any:
        kinds = self._smi.AmdSmiTemperatureType
        hottest = getattr(kinds, "HOTSPOT", None) or kinds.JUNCTION
        return self._smi.amdsmi_get_temp_metric(self._device, hottest, self._smi.AmdSmiTemperatureMetric.CURRENT)

    def _energy_mj(self) -> float:
        told = self._smi.amdsmi_get_energy_count(self._device)
        count = told["energy_accumulator"] if "energy_accumulator" in told else told["power"]
        return float(count) * float(told["counter_resolution"]) / 1000

    def _foreign_processes(self) -> int:
        pids = set()
        for entry in self._smi.amdsmi_get_gpu_process_list(self._device):
            told = entry if isinstance(entry, dict) else self._smi.amdsmi_get_gpu_process_info(self._device, entry)
            pids.add(int(told["pid"]))
        return strangers(frozenset(pids), own_group())

    def _reasons(self) -> list[str] | None:
        try:
            told = self._smi.amdsmi_get_violation_status(self._device)
        except self._trouble:
            return None
        return sorted({name for field, name in VIOLATIONS.items() if told.get(field) is True})

    def summary(self, readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The contract's fields; throttling by every reason that was seen once."""
        found = device_summary(readings) | watched_summary(readings)
        reasons = [reading["throttle"] for reading in readings if "throttle" in reading]
        if reasons:
            found["throttle"] = sorted({name for seen in reasons for name in seen})
        return found | _use(readings)


class SysfsAmdProbe:
    """Clock, temperature, power and use of one AMD GPU, from the kernel's own files."""

    def __init__(self, device: Path) -> None:
        self._device = device
        self._sensors = next(iter(sorted(device.glob("hwmon/hwmon*"))), device)

    def _number(self, path: Path) -> float | None:
        try:
            return float(path.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def read(self) -> Mapping[str, Any]:
        """Hertz, millidegrees and microwatts become the contract's units."""
        raw = {
            "sm_clock_mhz": (self._number(self._sensors / "freq1_input"), 1e-6),
            "temperature_c": (self._number(self._sensors / "temp1_input"), 1e-3),
            "power_mw": (self._number(self._sensors / "power1_average"), 1e-3),
            "busy": (self._number(self._device / "gpu_busy_percent"), 1e-2),
        }
        return {name: value * scale for name, (value, scale) in raw.items() if value is not None}

    def summary(self, readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """As for other GPUs, less what these files do not tell."""
        return device_summary(readings) | _use(readings)


def _use(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    busy = column(readings, "busy")
    return {"gpu_busy": round(median(busy), 3)} if busy else {}
