"""Telemetry of GPUs: libraries with the same calls as AMD's and NVIDIA's, made by the test, and the kernel's files."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.analysis.trust import why_not
from benchmarks.environment import _driver
from benchmarks.telemetry.amd import SysfsAmdProbe
from benchmarks.telemetry.nvml import NvmlProbe, NvmlProcess
from benchmarks.telemetry.readings import CpuProbe
from benchmarks.telemetry.sampler import INTERVAL_S, Telemetry, amd_probes, of_the_measured_gpu

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


# NVIDIA


class Nvml:
    """The calls of NVML on a machine of two GPUs; `running` are the processes on the second."""

    UUIDS = ("GPU-11111111-aaaa", "GPU-22222222-bbbb")

    def __init__(self, running=()):
        self.running, self.energy_mj = running, 0

    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, device):
        device._obj.value = index + 1
        return 0 if index < 2 else 2

    def nvmlDeviceGetUUID(self, device, buffer, length):
        buffer.value = self.UUIDS[device.value - 1].encode()
        return 0

    def nvmlSystemGetDriverVersion(self, buffer, length):
        buffer.value = b"580.159.04"
        return 0

    def nvmlDeviceGetEnforcedPowerLimit(self, device, value):
        value._obj.value = 700_000
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device, value):
        self.energy_mj += 1000
        value._obj.value = self.energy_mj
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device, count, buffer):
        for number, pid in enumerate(self.running):
            buffer[number] = NvmlProcess(pid=pid)
        count._obj.value = len(self.running)
        return 0


@pytest.mark.parametrize(
    ("visible", "wanted"),
    [(None, 0), ("0", 0), ("1", 1), ("1,0", 1), ("GPU-2222", 1), ("GPU-11111111-aaaa,GPU-22222222-bbbb", 0)],
)
def test_the_gpu_that_is_watched_is_the_one_that_a_process_sees_first(visible, wanted):
    assert NvmlProbe(visible, Nvml()).facts["gpu_uuid"] == Nvml.UUIDS[wanted]


@pytest.mark.parametrize("visible", ["7", "GPU-3333"])
def test_a_gpu_that_nvml_does_not_know_is_no_probe(visible):
    with pytest.raises(OSError, match=r"answered 2|no GPU GPU-3333"):
        NvmlProbe(visible, Nvml())


def test_processes_of_another_namespace_are_no_strangers():
    """Their numbers are the host's; in a container our own are among them, under numbers unknown here."""
    nobody, stranger = 2**22 + 1, os.getppid()
    found = watched(NvmlProbe("1", Nvml(running=(os.getpid(), nobody, stranger))))
    assert found["foreign_processes"] == 1


def test_a_run_says_which_gpu_under_which_driver_and_power_limit():
    found = Telemetry.started(lambda: [NvmlProbe("1", Nvml())]).stop()
    assert (found["gpu_uuid"], found["driver"], found["power_limit_w"]) == (Nvml.UUIDS[1], "580.159.04", 700.0)


def test_what_was_read_of_another_gpu_than_the_measured_one_is_left_out():
    read = {"gpu_uuid": "GPU-1", "foreign_processes": 3, "sm_clock_mhz": {"p50": 345}, "load_1m": 1.0}
    assert of_the_measured_gpu(read, "GPU-1") == read
    assert of_the_measured_gpu(read, "GPU-2") == {"gpu_uuid": "GPU-1", "load_1m": 1.0}


def test_a_result_has_the_readings_of_its_own_windows_and_the_energy_within_them():
    class Hot:
        def read(self):
            return {"temperature_c": 60.0}

        summary = NvmlProbe.summary

    telemetry = Telemetry.started(lambda: [Hot()])
    telemetry.stop()
    readings = [(0, 10.0), (100, 20.0), (200, 25.0), (5000, 90.0), (5100, 91.0), (9000, 99.0)]
    telemetry.sources[0].readings = [(at, {"energy_mj": 1000 * j, "temperature_c": j}) for at, j in readings]
    found = telemetry.during([(0, 200), (5000, 5100)])
    assert found == {"readings": 5, "energy_j": 15.0 + 1.0, "temperature_c": {"min": 10.0, "max": 91.0}}


def test_telemetry_reads_ten_times_a_second():
    assert INTERVAL_S <= 0.1
    assert CpuProbe().summary([CpuProbe().read()])["cpu_count"] == os.cpu_count()
