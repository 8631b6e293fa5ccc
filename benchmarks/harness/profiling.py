"""A separate profiled run, never inside timed samples: self time per kernel and phase, a trace for Perfetto."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.analysis.kernels import KernelCall, busy_share, normalised, table
from benchmarks.harness.timing.marks import Marks, NoMarks

STEPS = 6
WARM_UP = 3
PHASE = "phase: "


class ProfilerMarks:
    """Phases as ranges of the profiler, so that the trace shows them and every kernel falls into one."""

    def __init__(self) -> None:
        self._open: record_function | None = None

    def enter(self, phase: str) -> None:
        """From here on, time belongs to `phase`."""
        self.close()
        self._open = record_function(PHASE + phase)
        self._open.__enter__()

    def close(self) -> None:
        """Ends the last phase."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


def profile_steps(step: Callable[[Marks], None], device: str, trace: Path) -> dict[str, Any]:
    """Profiles a few steps after a warm-up; writes the trace, returns the kernel table of an average step."""
    for _ in range(WARM_UP):
        step(NoMarks())
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(STEPS):
            marks = ProfilerMarks()
            with record_function("step"):
                step(marks)
                marks.close()
        if device == "cuda":
            torch.cuda.synchronize()
    _write_trace(profiler, trace)
    events = profiler.events()
    found = table(_rows(events, device), STEPS)
    steps = [(e.time_range.start, e.time_range.end) for e in events if _on_host(e) and e.name == "step"]
    busy = busy_share(_device_spans(events), steps)
    return found | ({} if busy is None else {"device_busy": busy})


def _write_trace(profiler: Any, trace: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as source, gzip.open(trace, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)


def _device_spans(events: Any) -> list[tuple[float, float]]:
    """When kernels ran on the accelerator; nothing on a CPU, where the host is the device."""
    on_device = (event for event in events if event.device_type in (DeviceType.CUDA, DeviceType.HIP))
    return [(e.time_range.start, e.time_range.end) for e in on_device if not e.is_user_annotation]


def _on_host(event: Any) -> bool:
    return bool(event.device_type == DeviceType.CPU)


def _rows(events: Any, device: str) -> list[KernelCall]:
    """One row per call: on a CPU the operation's own time; on a GPU the kernels that the operation launched."""
    # The profiler gives each range twice: as the host passed it, and as its kernels ran on the device. An operation
    # belongs to the phase in which the host called it, however far ahead of the device that was.
    spans = sorted(
        (event.time_range.start, event.time_range.end, event.name.removeprefix(PHASE))
        for event in events
        if event.name.startswith(PHASE) and _on_host(event)
    )
    rows: list[KernelCall] = []
    for event in events:
        if event.name.startswith((PHASE, "Optimizer.step")) or event.name == "step" or not _on_host(event):
            continue
        phase = _phase_at(spans, event.time_range.start)
        if phase is None:
            continue
        shape = str([list(shape) for shape in event.input_shapes if shape]) if event.input_shapes else ""
        if device == "cuda":
            rows += [
                KernelCall(phase, normalised(kernel.name), shape, float(kernel.duration)) for kernel in event.kernels
            ]
        elif event.self_cpu_time_total > 0:
            rows.append(KernelCall(phase, normalised(event.name), shape, float(event.self_cpu_time_total)))
    return rows


def _phase_at(spans: list[tuple[float, float, str]], moment: float) -> str | None:
    """The phase whose range holds this moment; ranges do not overlap."""
    for start, end, name in spans:
        if start <= moment < end:
            return name
    return None
