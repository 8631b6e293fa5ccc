"""A team's own benchmark in ten lines: decorate a function, call `run()`, and a `tidemark.run/1` file is written.

    from tidemark.benchmark import benchmark, run

    @benchmark("tokenizer.encode", variants=[{"words": 1_000}, {"words": 100_000}])
    def encode(words):
        text = "tide mark " * words          # set-up: not timed
        return lambda: text.split()          # timed

    if __name__ == "__main__":
        run()

Every variant is measured in fresh processes, each call beside a fixed yardstick in random order; what is judged is the
quotient, which holds on a busy machine. Standard library only.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import platform
import random
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["Registered", "benchmark", "run"]

Scalar = str | int | float | bool
Timed = Callable[[], object]

PROCESSES = 3
MEASURE_S = 1.0
LEAST_SAMPLES = 9
SAMPLE_S = 4e-3
CHILD_TIMEOUT_S = 600.0
_CHILD = "--tidemark-measure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A decorated function: what it is called, its variants, and how its result is checked and its device awaited."""

    id: str
    function: Callable[..., Timed]
    variants: tuple[Mapping[str, Scalar], ...]
    check: Callable[..., object] | None
    synchronize: Callable[[], object] | None
    items_per_call: float | None


_registered: dict[str, Registered] = {}


def benchmark(
    id: str,
    *,
    variants: Sequence[Mapping[str, Scalar]] = ({},),
    check: Callable[..., object] | None = None,
    synchronize: Callable[[], object] | None = None,
    items_per_call: float | None = None,
) -> Callable[[Callable[..., Timed]], Callable[..., Timed]]:
    """Registers a function that prepares one variant and returns the callable to time.

    `check(result, **variant)` sees what one call returns, before anything is timed, and says no by returning False or
    raising. `synchronize` (for example `torch.cuda.synchronize`) is called after each timed call where work is left to
    a device; milliseconds are then judged themselves. `items_per_call` adds a rate, `items_per_s`.
    """
    if not re.fullmatch(r"[0-9A-Za-z_][0-9A-Za-z._+:/-]{0,199}", id):
        raise ValueError(f"benchmark id {id!r} is not a name like 'tokenizer.encode' (letters, digits, . _ - + : /)")
    if id in _registered:
        raise ValueError(f"benchmark {id!r} is registered twice")
    if not variants:
        raise ValueError(f"benchmark {id!r} has no variants; leave `variants` out for a single one")
    if len({json.dumps(dict(variant), sort_keys=True) for variant in variants}) < len(variants):
        raise ValueError(f"benchmark {id!r} has the same variant twice")

    def register(function: Callable[..., Timed]) -> Callable[..., Timed]:
        _registered[id] = Registered(
            id=id,
            function=function,
            variants=tuple(dict(variant) for variant in variants),
            check=check,
            synchronize=synchronize,
            items_per_call=items_per_call,
        )
        return function

    return register


def run(arguments: Sequence[str] | None = None) -> None:
    """Measures every registered benchmark and writes the run where `$TIDEMARK_RUN_JSON` points (else run.json).

    Exits with 0 when every result is ok, else with 1; the file is written either way.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [_CHILD]:
        _, id, number, report = words
        Path(report).write_text(json.dumps(_measured(_registered[id], int(number))))
        return
    if words:
        known = ", ".join(_registered)
        unknown = [word for word in words if word not in _registered]
        if unknown:
            raise SystemExit(f"unknown benchmark {unknown[0]!r}; known: {known}")
    if not _registered:
        raise SystemExit("no benchmark is registered: decorate a function with @benchmark before calling run()")
    out = Path(os.environ.get("TIDEMARK_RUN_JSON") or "run.json")
    started = _now()
    results = _results([_registered[word] for word in words] or list(_registered.values()))
    document = _document(results, started)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(document, allow_nan=False))
    temporary.replace(out)
    for result in results:
        gate = next((m for m in result["measurements"] if m["role"] == "gate"), None)
        figure = f"{gate['metric']} {gate['value']:.4g}" if gate else result["error"]
        print(f"{result['benchmark']} {json.dumps(result['variant'])} {result['status']} {figure}", file=sys.stderr)
    if any(result["status"] != "ok" for result in results):
        raise SystemExit(1)


def _results(chosen: Sequence[Registered]) -> list[dict[str, Any]]:
    """Every variant in fresh processes, round by round, in random order."""
    cases = [(registered, number) for registered in chosen for number in range(len(registered.variants))]
    reports: dict[tuple[str, int], list[dict[str, Any]]] = {(r.id, number): [] for r, number in cases}
    done, total = 0, PROCESSES * len(cases)
    for _ in range(PROCESSES):
        for registered, number in random.sample(cases, len(cases)):
            found = reports[registered.id, number]
            if not any(report["status"] != "ok" for report in found):
                found.append(_in_fresh_process(registered, number))
            done += 1
            if os.environ.get("TIDEMARK_PROGRESS") == "1":
                line = {"done": done, "total": total, "note": registered.id, "eta_s": None}
                print("::tidemark-progress " + json.dumps(line), flush=True)
    return [_result(registered, number, reports[registered.id, number]) for registered, number in cases]


def _in_fresh_process(registered: Registered, number: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, os.path.abspath(sys.argv[0]), _CHILD, registered.id, str(number), str(report)]
        try:
            done = subprocess.run(command, stdout=sys.stderr, check=False, timeout=CHILD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return {"status": "timeout", "error": f"no result within {CHILD_TIMEOUT_S:g} s"}
        if not report.exists():
            return {"status": "failed", "error": f"the measuring process ended with {done.returncode} and no result"}
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def _measured(registered: Registered, number: int) -> dict[str, Any]:
    """In the fresh process: set up, check, time."""
    variant = registered.variants[number]
    try:
        timed = registered.function(**variant)
        if not callable(timed):
            kind = type(timed).__name__
            said = f"{registered.id} returned {kind}; it must return the callable to time"
            return {"status": "failed", "error": said}
        returned = timed()
        if registered.check is not None and registered.check(returned, **variant) is False:
            return {"status": "check_failed", "error": f"the check of {registered.id} refused what one call returned"}
    except MemoryError as error:
        return {"status": "out_of_memory", "error": f"{registered.id} ran out of memory: {error}"}
    except Exception as error:
        return {"status": "failed", "error": f"{registered.id} raised {type(error).__name__}: {error}"[:2000]}
    return {"status": "ok", **_timed_pairs(timed, registered.synchronize)}


def _timed_pairs(timed: Timed, synchronize: Callable[[], object] | None) -> dict[str, Any]:
    def whole(count: int) -> None:
        for _ in range(count):
            timed()
            if synchronize is not None:
                synchronize()

    count = max(1, min(100_000, math.ceil(SAMPLE_S / max(_seconds(lambda: whole(1)), 1e-9))))
    whole(count)
    _yardstick()
    seconds: list[float] = []
    yardsticks: list[float] = []
    gc.collect()
    gc.disable()
    deadline = time.perf_counter() + MEASURE_S
    while time.perf_counter() < deadline or len(seconds) < LEAST_SAMPLES:
        first = random.random() < 0.5
        if first:
            seconds.append(_seconds(lambda: whole(count)) / count)
        yardsticks.append(_seconds(_yardstick))
        if not first:
            seconds.append(_seconds(lambda: whole(count)) / count)
    return {"seconds": seconds, "yardsticks": yardsticks}


def _sleeps() -> int | None:
    """Voluntary context switches of this thread, where the system counts them."""
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (ImportError, AttributeError):
        return None


def _seconds(work: Callable[[], object]) -> float:
    """Cost of the work: its CPU time if it never slept, so that neighbours' time slices stay out; else wall time."""
    sleeps, cpu, wall = _sleeps(), time.thread_time(), time.perf_counter()
    work()
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    return cpu if sleeps is not None and sleeps == _sleeps() else wall


def _yardstick() -> int:
    """A fixed piece of interpreter work of about 5 ms: arithmetic, dictionaries, lists, strings and hashing."""
    total = 0
    seen: dict[int, str] = {}
    for number in range(6000):
        total = (total * 31 + number) % 1_000_003
        seen[total % 997] = f"{number}"
    words = sorted(seen.values())
    for _ in range(40):
        total ^= int.from_bytes(hashlib.sha256("".join(words).encode()).digest()[:4], "big")
    return total


def _result(registered: Registered, number: int, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    bad = next((report for report in reports if report["status"] != "ok"), None)
    state = "skipped" if registered.check is None else "pass"
    if bad is not None:
        state = "fail" if bad["status"] == "check_failed" else "skipped"
    return {
        "benchmark": registered.id,
        "variant": dict(registered.variants[number]),
        "preset": os.environ.get("TIDEMARK_PRESET") or "full",
        "mode": "call",
        "status": "ok" if bad is None else bad["status"],
        "error": None if bad is None else bad["error"],
        "correctness": {"state": state, "reference": "the benchmark's own check", "checks": []},
        "measurements": [] if bad is not None else _measurements(registered, reports),
    }


def _measurements(registered: Registered, reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    ms = [[1000 * s for s in report["seconds"]] for report in reports]
    pairs = [zip(report["seconds"], report["yardsticks"], strict=True) for report in reports]
    ratios = [[s / y for s, y in paired] for paired in pairs]
    on_device = registered.synchronize is not None
    found = [
        _measurement("latency_over_yardstick", "ratio", "watch" if on_device else "gate", ratios),
        _measurement("latency_ms", "ms", "gate" if on_device else "watch", ms),
    ]
    if registered.items_per_call is not None:
        rate = registered.items_per_call / (found[1]["value"] / 1000)
        found.append({"metric": "items_per_s", "unit": "1/s", "direction": "higher", "role": "derived", "value": rate})
    return found


def _measurement(metric: str, unit: str, role: str, samples: Sequence[Sequence[float]]) -> dict[str, Any]:
    processes = [median(values) for values in samples]
    kept = [list(values[:1000]) for values in samples]
    return {
        "metric": metric,
        "unit": unit,
        "direction": "lower",
        "role": role,
        "value": median(processes),
        "processes": processes,
        "samples": kept,
        "samples_taken": [len(values) for values in samples],
    }


def _document(results: Sequence[Mapping[str, Any]], started: str) -> dict[str, Any]:
    environ = os.environ
    parents = environ.get("TIDEMARK_PARENTS")
    ok = any(result["status"] == "ok" for result in results)
    environment = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    digest = hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()
    return {
        "schema": "tidemark.run/1",
        "id": environ.get("TIDEMARK_RUN_ID") or new_id(),
        "project": environ.get("TIDEMARK_PROJECT") or "local/" + re.sub(r"[^0-9A-Za-z._-]", "-", Path.cwd().name),
        "commit": environ.get("TIDEMARK_COMMIT") or git_says("rev-parse", "HEAD") or "0" * 40,
        "parents": git_says("show", "-s", "--format=%P").split()
        if parents is None
        else [p.strip() for p in parents.split(",") if p.strip()],
        "branch": environ.get("TIDEMARK_BRANCH") or git_says("symbolic-ref", "--quiet", "--short", "HEAD") or None,
        "suite": environ.get("TIDEMARK_SUITE") or "own",
        "suite_version": environ.get("TIDEMARK_SUITE_VERSION") or "1",
        "testbed": environ.get("TIDEMARK_TESTBED") or "local",
        "worker": environ.get("TIDEMARK_WORKER") or _machine(),
        "attempt": int(environ.get("TIDEMARK_ATTEMPT") or 1),
        "started_at": started,
        "finished_at": _now(),
        "status": "ok" if ok else "failed",
        "code_under_test": {"kind": "benchmark", "entry": os.path.basename(sys.argv[0])},
        "environment": environment | {"hash": "sha256:" + digest},
        "results": list(results),
    }


def _machine() -> str:
    """The name of this machine. GitHub's own runners are a fresh one each time: they are one pool, of one name."""
    hosted = os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    return "github-hosted" if hosted else platform.node() or "unknown"


def new_id() -> str:
    """A ULID: 48 bits of time, 80 of chance, so that ids sort by time."""
    number = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[(number >> shift) & 31] for shift in range(125, -1, -5))


def git_says(*words: str, directory: Path | None = None) -> str:
    """Output of a git command, without its last line end; empty where git fails or is missing."""
    try:
        done = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _now() -> str:
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"
