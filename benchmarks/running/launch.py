"""Starts one measuring process and waits for its report.

Time limit, clean kill of its whole group, tail of what it printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.spec import Status

PACKAGE_PARENT = Path(__file__).resolve().parents[2]
TAIL_LINES = 60

# `-P` and the explicit path keep a checkout's own `benchmarks/` folder from shadowing this package.
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from benchmarks.running import child; child.leave(child.main(sys.argv[1:]))"
)

DEFAULTS = {"KINETO_LOG_LEVEL": "99", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Unless the caller says otherwise: the profiler's library does not tell of every start among what measured code
prints, and GPUs are numbered as NVML numbers them, so that telemetry watches the one that is measured.
"""

CPU_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Memory is kept and comes in huge pages: else every step pays for page faults, the noisiest thing a shared
    # machine has.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """Report of a process, or how it failed."""

    report: dict[str, Any]
    output_tail: str
    seconds: float
    """Of wall time, the start of the process included."""


class Launcher:
    """Runs measuring processes one at a time; `stop` ends the one that is running."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def run(self, job: Mapping[str, Any], timeout_s: float, environment: Mapping[str, str]) -> ProcessOutcome:
        """One fresh process for one job."""
        with tempfile.TemporaryDirectory(prefix="tidemark-benchmark-") as folder:
            job_file, report_file = Path(folder, "job.json"), Path(folder, "report.json")
            job_file.write_text(json.dumps(job))
            command = [sys.executable, "-P", "-c", _START, str(PACKAGE_PARENT), str(job_file), str(report_file)]
            tail: deque[str] = deque(maxlen=TAIL_LINES)
            began = time.monotonic()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**DEFAULTS, **os.environ, **environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            self._running = process
            assert process.stdout is not None
            reader = threading.Thread(target=_pass_on, args=(process.stdout, tail), daemon=True)
            reader.start()
            timed_out = False
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                _end_group(process)
                self._running = None
            reader.join(timeout=2)
            text, seconds = "".join(tail)[-4000:], time.monotonic() - began
            report = _report(report_file, process.returncode, timed_out, timeout_s, text, self.stopped)
            return ProcessOutcome(report, text, seconds)

    def stop(self) -> None:
        """Ends the running process and its children; safe in a signal handler."""
        self.stopped = True
        if self._running is not None:
            _end_group(self._running)


def _pass_on(stream: IO[bytes], tail: deque[str]) -> None:
    """Measured code may print what it likes.

    It goes to our standard error, never among our own lines on standard output.
    """
    for chunk in _pieces(stream):
        text = chunk.decode("utf-8", "replace")
        tail.append(text[-4000:])
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.readline(65536):
        yield piece


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the process's group: ranks and data loaders die with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _report(
    path: Path, code: int | None, timed_out: bool, timeout_s: float, tail: str, stopped: bool
) -> dict[str, Any]:
    if timed_out:
        return {"status": Status.TIMEOUT, "error": f"no result within {timeout_s:g} s; the process was ended"}
    try:
        report: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        report = {}
    except ValueError:
        report = {"status": Status.FAILED, "error": "the measuring process wrote a report that is no JSON"}
    if report:
        return report
    if stopped:
        return {"status": Status.INCOMPLETE, "error": "interrupted before this process finished"}
    if code == -signal.SIGKILL:
        return {
            "status": Status.OUT_OF_MEMORY,
            "error": "the process was killed (signal 9), which the system does when memory runs out",
        }
    how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
    last = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "it printed nothing")
    return {"status": Status.FAILED, "error": f"the measuring process ended without a result ({how}): {last[:500]}"}
