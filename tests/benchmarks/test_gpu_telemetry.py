"""AMD's two sources of telemetry: a library of the same calls, installed by the test, and the kernel's files."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.amd import SysfsAmdProbe
from benchmarks.environment import _driver
from benchmarks.telemetry import Telemetry, amd_probes
from benchmarks.trust import why_not

LIBRARY = """
import json, os


class AmdSmiException(Exception):
    pass


class AmdSmiClkType:
    GFX = "gfx"


class AmdSmiTemperatureType:
    JUNCTION = "junction"


class AmdSmiTemperatureMetric:
    CURRENT = "current"


TOLD = json.loads(os.environ["AMD_TELLS"])
_energy = 0


def _answer(name, device):
    assert device == "gpu 0"
    if name not in TOLD:
        raise AmdSmiException(f"{name} is not supported")
    return TOLD[name]


def amdsmi_init():
    if TOLD.get("broken"):
        raise AmdSmiException("no driver")


def amdsmi_get_processor_handles():
    return ["gpu 0"]


def amdsmi_get_clock_info(device, kind):
    assert kind == AmdSmiClkType.GFX
    return _answer("clock", device)


def amdsmi_get_temp_metric(device, kind, which):
    assert (kind, which) == (AmdSmiTemperatureType.JUNCTION, AmdSmiTemperatureMetric.CURRENT)
    return _answer("temperature", device)


def amdsmi_get_power_info(device):
    return _answer("power", device)


def amdsmi_get_energy_count(device):
    global _energy
    _energy += _answer("energy", device)
    return {"energy_accumulator": _energy, "counter_resolution": 15.3, "timestamp": 0}


def amdsmi_get_gpu_activity(device):
    return _answer("activity", device)


def amdsmi_get_gpu_process_list(device):
    return [{"pid": pid} for pid in _answer("processes", device)]


def amdsmi_get_violation_status(device):
    return _answer("violations", device)
"""

TELLS = {
    "clock": {"clk": 2100, "max_clk": 2100},
    "temperature": 58,
    "power": {"current_socket_power": 650, "average_socket_power": "N/A"},
    "energy": 1_000_000,
    "activity": {"gfx_activity": 97},
    "processes": [os.getpid()],
    "violations": {"active_ppt_pwr": True, "active_hbm_thrm": False, "active_vr_thrm": "N/A"},
}


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Installs the library where `import amdsmi` finds it, telling what is asked of it."""
    import json

    def install(**changed):
        (tmp_path / "amdsmi.py").write_text(LIBRARY)
        monkeypatch.syspath_prepend(str(tmp_path))
        told = {name: value for name, value in (TELLS | changed).items() if value is not None}
        monkeypatch.setenv("AMD_TELLS", json.dumps(told))
        sys.modules.pop("amdsmi", None)
        card = tmp_path / "device"
        card.mkdir(exist_ok=True)
        (card / "gpu_busy_percent").write_text("42")
        return amd_probes([card])[0]

    yield install
    sys.modules.pop("amdsmi", None)


NVIDIA = "proc/driver/nvidia/version"


def watched(probe, times=3):
    return probe.summary([probe.read() for _ in range(times)])


def test_amd_telemetry_through_the_library_has_what_nvml_gives(library):
    found = watched(library())
    assert found["sm_clock_mhz"]["p50"] == 2100
    assert found["temperature_c"] == {"min": 58, "max": 58}
    assert found["power_w"] == {"p50": 650}
    assert found["energy_j"] == pytest.approx(2 * 15.3)
    assert found["gpu_busy"] == 0.97
    assert found["throttle"] == ["sw_power_cap"]
    assert found["foreign_processes"] == 0


def test_a_strangers_process_on_an_amd_gpu_quarantines_as_on_any(library):
    found = watched(library(processes=[os.getpid(), 1]))
    assert found["foreign_processes"] == 1
    assert "1 foreign processes" in why_not([], found)


def test_what_an_amd_device_does_not_tell_is_left_out_and_never_zero(library):
    old = {"current_socket_power": "N/A", "average_socket_power": 300}
    found = watched(library(violations=None, processes=None, energy=None, temperature="N/A", power=old))
    assert found["power_w"] == {"p50": 300}, "older cards tell the average only"
    assert not {"throttle", "foreign_processes", "energy_j", "temperature_c"} & set(found)


def test_a_library_without_a_driver_gives_way_to_the_kernels_files(library):
    probe = library(broken=True)
    assert isinstance(probe, SysfsAmdProbe)
    assert watched(probe) == {"gpu_busy": 0.42}


def test_telemetry_reads_an_amd_gpu_between_start_and_stop(library):
    telemetry = Telemetry.started(lambda: [library()])
    assert telemetry.stop()["sm_clock_mhz"]["p50"] == 2100


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        (NVIDIA, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue\n", "580.159.04"),
        (NVIDIA, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86  T\n", "570.86"),
        ("sys/module/amdgpu/version", "6.10.5\n", "6.10.5"),
    ],
)
def test_the_drivers_version_is_read_from_its_own_file(tmp_path, file, text, version):
    assert _driver(tmp_path) is None
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert _driver(tmp_path) == version


def test_amd_telemetry_reads_the_kernels_files_in_their_units(tmp_path):
    sensors = tmp_path / "hwmon" / "hwmon3"
    sensors.mkdir(parents=True)
    (sensors / "freq1_input").write_text("2100000000\n")
    (sensors / "temp1_input").write_text("58000\n")
    (sensors / "power1_average").write_text("650000000\n")
    (tmp_path / "gpu_busy_percent").write_text("97\n")
    probe = SysfsAmdProbe(tmp_path)
    found = probe.summary([probe.read()])
    assert found["sm_clock_mhz"]["p50"] == pytest.approx(2100)
    assert found["temperature_c"]["max"] == pytest.approx(58)
    assert found["power_w"]["p50"] == pytest.approx(650)
    assert found["gpu_busy"] == pytest.approx(0.97)
