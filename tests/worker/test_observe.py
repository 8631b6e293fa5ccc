"""What a worker says about its machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.config import WorkerConfig
from worker.observe import MachineWatch, capabilities, read_accelerators


def test_capabilities_name_the_machine(tmp_path: Path) -> None:
    told = capabilities(tmp_path)
    assert told["cpu_count"] == os.cpu_count()
    assert told["cpu"] and told["memory_bytes"] > 0 and told["disk_free_bytes"] > 0
    assert len(told["accelerators"]) == len(read_accelerators())


def test_a_busy_neighbour_is_named_in_the_telemetry() -> None:
    busy = "import time\nend = time.monotonic() + 60\nprint('busy', flush=True)\nwhile time.monotonic() < end: pass"
    watch = MachineWatch()
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as neighbour:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        # It has to have used a tenth of a core over the whole time, however little of it this machine gives it.
        for _ in range(200):
            os.sched_yield()
            telemetry = watch.finish(own_cpu_s=0.0)
            if telemetry["foreign_processes"]:
                break
        neighbour.kill()
    assert telemetry["foreign_processes"] >= 1
    assert telemetry["foreign"][0]["cpu_share"] >= 0.1
    assert 0 < telemetry["foreign_cpu_share"] <= 1


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("name", "../x", "name '../x' is not usable"), ("testbed", "", "testbed ''"), ("api_url", "ftp://x", "http")],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, field: str, value: str, said: str) -> None:
    told = {"api_url": "http://x", "api_token": "t", "redis_url": "r", "testbed": "cpu", "name": "n"}
    with pytest.raises(ValueError, match=said):
        WorkerConfig(**(told | {field: value}), data_dir=tmp_path)


def test_a_token_is_not_shown_with_the_settings(tmp_path: Path) -> None:
    config = WorkerConfig(
        api_url="http://x", api_token="tm_secret", redis_url="redis://:pw@x", testbed="cpu", name="n", data_dir=tmp_path
    )
    assert "tm_secret" not in repr(config) and "pw" not in repr(config)
