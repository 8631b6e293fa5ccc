"""The measuring process: reads one job, runs it, writes one report. Fresh for every repetition; the only place where
torch is imported.

A benchmark that fails is data: whatever happens becomes a status and a sentence in the report.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.spec import Status

# Wall seconds of measuring per process; warm-up is a third of it on a CPU.
CPU_MEASURE_S = 1.1
CPU_WARM_UP_S = 0.3

STATED = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TRITON_CACHE_DIR",
)
"""Settings of the allocator and of the compiler's caches: a run with different ones has a different environment."""

RAN_EAGERLY = (
    "the variant is compiled, and the timed steps entered no compiled region: the compiler fell back to eager code; "
    "TORCH_LOGS=dynamo says why"
)


def main(arguments: list[str]) -> int:
    """`child JOB REPORT`: both are files; the report is complete when this returns."""
    job_file, report_file = map(Path, arguments)
    job = json.loads(job_file.read_text())
    report = _run(job)
    report["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    temporary = report_file.with_suffix(".tmp")
    temporary.write_text(json.dumps(report))
    temporary.replace(report_file)
    return 0


def _run(raw: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.harness.plugin import PluginError
    from benchmarks.harness.workload import NotApplicable

    report: dict[str, Any] = {"status": Status.OK, "error": None, "started_ms": int(time.time() * 1000)}
    try:
        _measure(raw, report)
    except NotApplicable as reason:
        report |= {"status": Status.NOT_APPLICABLE, "error": str(reason)}
    except PluginError as error:
        report |= {"status": Status.FAILED, "error": str(error)}
    except (SystemExit, KeyboardInterrupt) as error:
        report |= {
            "status": Status.FAILED,
            "error": f"the measured code ended the process: {type(error).__name__}({error})",
        }
    except BaseException as error:
        report |= _failure(error, raw)
    return report


def _failure(error: BaseException, raw: dict[str, Any]) -> dict[str, Any]:
    text = str(error).strip() or type(error).__name__
    memory = (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text
    )
    what = f"{type(error).__name__}: {text}"
    if memory:
        return {
            "status": Status.OUT_OF_MEMORY,
            "error": f"{raw['benchmark']} ran out of memory: {text[:500]}",
            "traceback": traceback.format_exc(),
        }
    entry = raw.get("implementation")
    blame = f"implementation {entry} raised " if entry else ""
    return {"status": Status.FAILED, "error": f"{blame}{what[:2000]}", "traceback": traceback.format_exc()[-8000:]}


def _measure(raw: dict[str, Any], report: dict[str, Any]) -> None:
    from benchmarks.harness.timing.start_up import forget_compiled
    from benchmarks.harness.workload import Job, Workload

    job = Job(**(raw | {"tasks": tuple(raw["tasks"])}))
    _settle_in(job)
    report["environment"] = _environment(job)
    if job.tasks == ("canary_after",):
        report["canary_after"] = _ceilings(job)
        return
    module, _, name = job.workload.partition(":")
    workload: Workload = getattr(importlib.import_module(module), name)(job)
    if "canary_before" in job.tasks:
        report["canary_before"] = _ceilings(job)
    if "check" in job.tasks:
        correctness = workload.check()
        report["correctness"] = correctness.to_json()
        if correctness.failed is not None:
            report |= {"status": Status.CHECK_FAILED, "error": correctness.sentence()}
            return
        forget_compiled()
    workload.prepare()
    report["work"] = dataclasses.asdict(workload.work)
    _forget_peaks(job)
    report["measured_from_ms"] = int(time.time() * 1000)
    if "overhead" in job.tasks:
        report["overhead"] = _overhead(workload, job)
    if "time" in job.tasks:
        _time_or_let_measure(_slowed(workload, job), job, report)
        report["measured_to_ms"] = int(time.time() * 1000)
    # After timing: what counts watches every operation, and the compiler may give up on code that is watched.
    if "count" in job.tasks and report["status"] == Status.OK:
        _add_counters(report, workload.counters())
    if hasattr(workload, "notes") and report["status"] == Status.OK and "time" in job.tasks:
        report["notes"] = workload.notes()
    if "profile" in job.tasks and not hasattr(workload, "measure"):
        report["kernels"] = _profile(workload, job)
    if "canary_after" in job.tasks:
        report["canary_after"] = _ceilings(job)


def _time_or_let_measure(workload: Any, job: Any, report: dict[str, Any]) -> None:
    measure = getattr(workload, "measure", None)
    if measure is not None:
        report["values"] = [dataclasses.asdict(value) for value in measure()]
        _judge_after(workload, report)
    else:
        _time(workload, job, report)


def _add_counters(report: dict[str, Any], counters: Iterable[Any]) -> None:
    report.setdefault("counters", []).extend(dataclasses.asdict(counter) for counter in counters)


def _count_compiled_regions(workload: Any, report: dict[str, Any]) -> None:
    """Count the compiled regions in every process; a variant that should be compiled and is not fails."""
    from benchmarks.harness.counters import count_compiled_regions
    from benchmarks.harness.timing.marks import NoMarks
    from benchmarks.harness.workload import StepCounter

    regions = count_compiled_regions(lambda: workload.step(NoMarks()))
    if regions:
        _add_counters(report, [StepCounter(metric="compiled_regions", value=regions)])
    elif workload.compiles:
        report |= {"status": Status.FAILED, "error": RAN_EAGERLY}


def _slowed(workload: Any, job: Any) -> Any:
    """The workload, or one that costs a known fraction more, where that is what is being tried."""
    if not job.extra.get("slow_down"):
        return workload
    from benchmarks.harness.timing.injection import Slowed

    return Slowed(workload, float(job.extra["slow_down"]), str(job.config.get("device", "cpu")))


def _overhead(workload: Any, job: Any) -> dict[str, float]:
    from benchmarks.harness.timing.overhead import measure_overhead

    return measure_overhead(workload.step, str(job.config.get("device", "cpu")))


def _forget_peaks(job: Any) -> None:
    """Only the first process checks and counts; what that needed of the device's memory is not the step's."""
    if job.config.get("device", "cpu") == "cpu":
        return
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def _profile(workload: Any, job: Any) -> dict[str, Any]:
    from benchmarks.harness.profiling import profile_steps

    return profile_steps(workload.step, str(job.config.get("device", "cpu")), Path(job.extra["trace"]))


def _judge_after(workload: Any, report: dict[str, Any]) -> None:
    """Checks that need the measurement first: correctness on ranks, a loss that is no number."""
    correctness = workload.correctness() if hasattr(workload, "correctness") else None
    if correctness is not None:
        report["correctness"] = correctness.to_json()
        if correctness.failed is not None:
            report |= {"status": Status.CHECK_FAILED, "error": correctness.sentence()}
            return
    problem = workload.after()
    if problem:
        report |= {"status": Status.FAILED, "error": problem}


def _settle_in(job: Any) -> None:
    import torch

    from benchmarks.harness.timing.start_up import spare_the_compiler_import, use_one_thread

    if job.config.get("device", "cpu") == "cpu":
        use_one_thread()
        spare_the_compiler_import()
    torch.manual_seed(job.seed)


def _environment(job: Any) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"threads": torch.get_num_threads(), "torch_git": torch.version.git_version}
    if torch.cuda.is_available() and job.config.get("device") != "cpu":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "accelerator": torch.cuda.get_device_name(0),
            "accelerator_count": torch.cuda.device_count(),
            "accelerator_memory_bytes": properties.total_memory,
            "gpu_uuid": f"GPU-{properties.uuid}",
            "cuda": torch.version.cuda,
            "rocm": torch.version.hip,
            "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
        }
    else:
        found["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    found |= {name.lower(): os.environ.get(name) for name in STATED}
    return {key: value for key, value in found.items() if value is not None}


def _ceilings(job: Any) -> dict[str, Any]:
    if job.config.get("device", "cpu") != "cpu":
        from benchmarks.harness.ceilings_gpu import measure_gpu_ceilings

        return measure_gpu_ceilings()
    from benchmarks.harness.ceilings_cpu import measure_cpu_ceilings
    from benchmarks.harness.timing.clock import HostClock

    return measure_cpu_ceilings(HostClock())


def _time(workload: Any, job: Any, report: dict[str, Any]) -> None:
    from benchmarks.harness.timing import paired
    from benchmarks.harness.timing.clock import HostClock

    if job.config.get("device", "cpu") != "cpu":
        _time_on_device(workload, job, report)
        return
    clock = HostClock()
    budget = paired.Budget(warm_up_s=CPU_WARM_UP_S, measure_s=CPU_MEASURE_S)
    times = paired.measure(workload.step, clock, budget, random.Random(job.seed + job.process))
    problem = workload.after()
    if problem:
        report |= {"status": Status.FAILED, "error": problem}
        return
    report["times"] = {
        "clock": clock.name,
        "step_s": times.step_s,
        "yardstick_s": times.yardstick_s,
        "phase_shares": paired.phases_of_typical_steps(times),
        "warm_up_steps": times.warm_up_steps,
        "steps_per_sample": times.steps_per_sample,
        "settled": times.settled,
    }
    _count_compiled_regions(workload, report)


def _time_on_device(workload: Any, job: Any, report: dict[str, Any]) -> None:
    from benchmarks.harness.timing import events

    budget = events.StepBudget.smoke() if job.preset == "smoke" else events.StepBudget()
    times = events.measure_steps(workload.step, budget, flush=getattr(workload, "flushes", False))
    problem = workload.after()
    if problem:
        report |= {"status": Status.FAILED, "error": problem}
        return
    report["times"] = {"clock": "device_events", **dataclasses.asdict(times)}
    report["memory"] = _device_memory()
    _count_compiled_regions(workload, report)


def _device_memory() -> dict[str, float]:
    import torch

    stats = torch.cuda.memory_stats()
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "alloc_retries": stats.get("num_alloc_retries", 0),
        "inactive_split_bytes": stats.get("inactive_split_bytes.all.peak", 0),
    }


def leave(code: int) -> None:
    """Ends at once: tearing down torch costs a quarter of a second, and the report is on disk."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
