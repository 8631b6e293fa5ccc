"""A machine that fails: lost GPUs, full disks, memory that runs out. The run is told why, or measured elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from worker import health
from worker.health import disk_trouble, gpu_trouble, list_gpus, look, read_xids

TWO = "GPU 0: NVIDIA H200 (UUID: GPU-aaaa)\nGPU 1: NVIDIA H200 (UUID: GPU-bbbb)\n"
LOST = "Unable to determine the device handle for GPU0000:65:00.0: GPU is lost.  Reboot the system to recover this GPU"
XID_79 = "[1234.5] NVRM: Xid (PCI:0000:65:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n"
XID_31 = "[1234.5] NVRM: Xid (PCI:0000:65:00): 31, pid=4242, name=python, MMU Fault\n"


class Machine:
    """Programs `nvidia-smi` and `dmesg` that say what a machine with GPUs would say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        for name in ("nvidia-smi", "dmesg"):
            program = directory / name
            program.write_text(f'#!/bin/sh\n[ -f {directory}/{name}.hangs ] && exec sleep 60\n'
                               f'cat {directory}/{name}.says\n'
                               f'exit "$(cat {directory}/{name}.code 2>/dev/null || echo 0)"\n')  # fmt: skip
            program.chmod(0o755)
        self.says(TWO)
        self.log("")

    def says(self, text: str, code: int = 0) -> None:
        (self.directory / "nvidia-smi.says").write_text(text)
        (self.directory / "nvidia-smi.code").write_text(str(code))

    def log(self, text: str) -> None:
        (self.directory / "dmesg.says").write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.directory}{os.pathsep}{os.environ['PATH']}")
    return made


def test_gpus_that_are_all_there_are_no_trouble(machine: Machine) -> None:
    before = look()
    assert before.gpus.ids == ("GPU 0: NVIDIA H200", "GPU 1: NVIDIA H200")
    machine.log(XID_31)
    assert gpu_trouble(before) is None, "that one is what faulty code causes"


@pytest.mark.parametrize(
    ("says", "code", "log", "said"),
    [
        (LOST, 15, XID_79, "Unable to determine the device handle .* (Xid 79 at 0000:65:00: fallen off the bus)"),
        (TWO.splitlines()[0], 0, "", "a GPU was lost: GPU 1: NVIDIA H200"),
        (TWO, 0, XID_79, "a GPU reported a fault (Xid 79 at 0000:65:00: fallen off the bus)"),
        ("No devices were found", 6, "", "a GPU was lost: No devices were found"),
    ],
)
def test_a_lost_gpu_is_told_with_what_the_kernel_says(
    machine: Machine, says: str, code: int, log: str, said: str
) -> None:
    before = look()
    machine.says(says, code)
    machine.log(log)
    trouble = gpu_trouble(before)
    assert trouble is not None
    assert all(part in trouble for part in said.split(" .* ")), trouble


def test_a_driver_that_does_not_answer_is_given_up(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    before = look()
    monkeypatch.setattr(health, "ASK_LIMIT_S", 0.3)
    (machine.directory / "nvidia-smi.hangs").touch()
    assert "did not answer" in (gpu_trouble(before) or "")


def test_an_old_fault_in_the_kernels_log_is_not_counted_again(machine: Machine) -> None:
    machine.log(XID_79)
    assert gpu_trouble(look()) is None
    before = look()
    machine.log(XID_79 + XID_79)
    assert "Xid 79" in (gpu_trouble(before) or "")


def test_a_machine_without_gpus_has_none_to_lose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_gpus().ids == () and read_xids() == frozenset() and gpu_trouble(look()) is None


def test_the_run_of_a_lost_gpu_goes_to_another_worker_and_this_one_takes_no_more(machine: Machine, bench: Any) -> None:
    lost = machine.directory / "nvidia-smi.says"
    program = f"import sys\nopen({str(lost)!r}, 'w').write({LOST!r})\nsys.exit('CUDA error: launch failure')"
    run_id = bench.begin(program)
    assert bench.job.carry_out(run_id, bench.interrupt) is None
    assert run_id not in bench.service.runs, "it is not the commit's fault"
    assert bench.service.lost == [run_id]
    ((_, reason),) = bench.service.releases
    assert reason.startswith("worker host-1: a GPU was lost: Unable to determine the device handle")
    assert not bench.job.is_fit() and "a GPU was lost" in bench.job.trouble


def test_a_disk_without_room_takes_no_run_until_what_is_kept_made_room(
    make_bench: Callable[..., Any], config: Any
) -> None:
    free = os.statvfs(config.data_dir.parent)
    bench = make_bench(replace(config, min_free_bytes=free.f_frsize * free.f_blocks * 2))
    assert not bench.job.is_fit()
    assert "is full: " in bench.job.trouble and "GB are needed" in bench.job.trouble
    assert disk_trouble(config.data_dir, 0) is None


def test_a_gpu_whose_memory_ran_out_is_told_by_torchs_own_words(bench: Any) -> None:
    program = (
        "import sys\n"
        "print('Traceback (most recent call last):', file=sys.stderr)\n"
        "print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 GiB.', file=sys.stderr)\n"
        "print('[rank0]: exiting', file=sys.stderr)\n"
        "sys.exit(1)"
    )
    error = bench.run(program)["error"]
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 GiB."
    assert error.endswith(f"ran out of GPU memory: {words}")


def test_a_killed_process_is_told_with_how_large_it_was(bench: Any) -> None:
    error = bench.run("import os, signal\nx = bytearray(200 << 20)\nos.kill(os.getpid(), signal.SIGKILL)")["error"]
    assert "SIGKILL" in error or "memory ran out" in error
    assert "with 0.2 GB in its largest process" in error


def test_zombie_grandchildren_are_buried(bench: Any) -> None:
    import psutil

    program = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
time.sleep(0.3)
"""
    bench.run(program)
    left = [process for process in psutil.Process().children(recursive=True) if "bench.py" in " ".join(_words(process))]
    assert left == []


def _words(process: Any) -> list[str]:
    import psutil

    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def test_a_worker_in_trouble_says_so(start_worker: Any, service: Any, config: Any) -> None:
    start_worker(min_free_bytes=1 << 60)
    until(lambda: service.hellos)
    assert "is full" in service.hellos[-1]["capabilities"]["trouble"]
