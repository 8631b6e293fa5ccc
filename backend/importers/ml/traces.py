"""Traces: torch.profiler's (Kineto) and Nsight Systems' (SQLite), as phases of a step and time of kernels."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import listed, mapping, number

DOWN = Direction.LOWER
STEP = Metric("step_ms", "ms", DOWN)
PHASES = {
    "compute": Metric("compute_ms", "ms", DOWN, Role.PHASE),
    "exposed_communication": Metric("exposed_communication_ms", "ms", DOWN, Role.PHASE),
    "copies": Metric("exposed_copies_ms", "ms", DOWN, Role.PHASE),
    "idle": Metric("idle_ms", "ms", DOWN, Role.PHASE),
}
KERNEL = Metric("kernel_ms", "ms", DOWN, Role.WATCH)
BUSY = Metric("gpu_busy_ms", "ms", DOWN)
MOST_KERNELS = 40
UNNAMED = "a trace does not name what it is of; state it with --variant trace=NAME"
SQLITE = b"SQLite format 3\x00"
COMMUNICATION = ("nccl", "rccl", "oneccl", "mscclpp")
COPIES = ("gpu_memcpy", "gpu_memset")
Span = tuple[float, float]


def detect_kineto(file: ResultFile) -> bool:
    return "traceEvents" in file.first


def detect_nsight(file: ResultFile) -> bool:
    return file.data.startswith(SQLITE)


def read_kineto(file: ResultFile, context: Context) -> Draft:
    """Steps are what the profiler marked as `ProfilerStep#`; without marks the whole trace is one. Per step: computing,
    communication and copies that nothing hides, idleness; and the kernels that take longest, summed over a step."""
    document = file.object_with("a trace with a list `traceEvents`", traceEvents=list)
    draft = Draft()
    if "trace" not in context.variant:
        draft.refuse(file.name, UNNAMED)
        return draft
    marks: list[Span] = []
    work: list[tuple[str, str, float, float]] = []
    for index, event in enumerate(document["traceEvents"]):
        said = mapping(event)
        start, length = number(said.get("ts")), number(said.get("dur"))
        if said.get("ph") != "X":
            continue
        if start is None or length is None:
            draft.refuse(f"{file.name} traceEvents[{index}]", "an event needs the numbers `ts` and `dur`")
            continue
        category, name = str(said.get("cat", "")).lower(), str(said.get("name", ""))
        if name.startswith("ProfilerStep#") and category != "gpu_user_annotation":
            marks.append((start, start + length))
        elif category == "kernel" or category in COPIES:
            work.append((category, name, start, start + length))
    if not work:
        raise Unreadable(f"{file.name}: no GPU kernel in the trace (events of category `kernel`)")
    steps = sorted(marks) or [(min(start for *_, start, _ in work), max(end for *_, end in work))]
    placed: dict[str, Any] = {"where": file.name, "benchmark": "trace", "suite": "trace", "variant": {}}
    _read_steps(draft, steps, work, placed)
    return draft


def _read_steps(
    draft: Draft, steps: Sequence[Span], work: Sequence[tuple[str, str, float, float]], placed: dict[str, Any]
) -> None:
    samples: dict[str, list[float]] = defaultdict(list)
    kernels: dict[str, float] = defaultdict(float)
    for begin, end in steps:
        within = [(kind, name, max(a, begin), min(b, end)) for kind, name, a, b in work if a < end and b > begin]
        computing = union((a, b) for kind, name, a, b in within if kind == "kernel" and not _communicates(name))
        busy = union((a, b) for kind, _, a, b in within if kind == "kernel")
        everything = union((a, b) for _, _, a, b in within)
        samples["step"].append((end - begin) / 1000)
        samples["compute"].append(computing / 1000)
        samples["exposed_communication"].append((busy - computing) / 1000)
        samples["copies"].append((everything - busy) / 1000)
        samples["idle"].append((end - begin - everything) / 1000)
        for kind, name, a, b in within:
            if kind == "kernel":
                kernels[name] += (b - a) / 1000 / len(steps)
    draft.readings.append(STEP.reading((), samples=tuple(samples["step"]), **placed))
    for phase, metric in PHASES.items():
        draft.readings.append(metric.reading((), samples=tuple(samples[phase]), **placed))
    _read_kernels(draft, kernels, placed)


def _communicates(name: str) -> bool:
    return any(word in name.lower() for word in COMMUNICATION)


def _read_kernels(draft: Draft, kernels: dict[str, float], placed: dict[str, Any]) -> None:
    longest = sorted(kernels.items(), key=lambda item: -item[1])
    for name, milliseconds in longest[:MOST_KERNELS]:
        draft.readings.append(KERNEL.reading((milliseconds,), **{**placed, "variant": {"kernel": name}}))
    if len(longest) > MOST_KERNELS:
        rest = sum(milliseconds for _, milliseconds in longest[MOST_KERNELS:])
        draft.note(
            f"of {len(longest)} kernels the {MOST_KERNELS} longest are taken; the others take {rest:.3g} ms in all"
        )


def union(spans: Iterable[Span]) -> float:
    """How much time the spans cover together."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def read_nsight(file: ResultFile, context: Context) -> Draft:
    """`nsys export --type sqlite`: the time of each kernel summed over the profile, and how long the GPU was busy."""
    draft = Draft()
    if "trace" not in context.variant:
        draft.refuse(file.name, UNNAMED)
        return draft
    rows = _kernels_of(file)
    if not rows:
        raise Unreadable(f"{file.name}: no CUDA kernel in the profile (table CUPTI_ACTIVITY_KIND_KERNEL is empty)")
    kernels: dict[str, float] = defaultdict(float)
    devices: dict[int, list[Span]] = defaultdict(list)
    for name, device, begin, end in rows:
        kernels[str(name or "unnamed")] += (end - begin) / 1e6
        devices[device].append((begin, end))
    placed: dict[str, Any] = {"where": file.name, "benchmark": "trace", "suite": "trace", "variant": {}}
    busy = sum(map(union, devices.values())) / 1e6
    draft.readings.append(BUSY.reading((busy,), **placed))
    _read_kernels(draft, kernels, placed)
    return draft


def _kernels_of(file: ResultFile) -> list[tuple[str, int, int, int]]:
    database = sqlite3.connect(":memory:")
    try:
        database.deserialize(file.data)
        columns = {row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
        if not {"start", "end"} <= columns:
            raise Unreadable(f"{file.name}: an SQLite file without CUDA kernels (no table CUPTI_ACTIVITY_KIND_KERNEL)")
        name = next((column for column in ("demangledName", "shortName") if column in columns), None)
        spoken = "NULL" if name is None else f"(SELECT value FROM StringIds WHERE id = k.{name})"
        device = "k.deviceId" if "deviceId" in columns else "0"
        found = database.execute(f'SELECT {spoken}, {device}, k.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k')
        return listed(found.fetchall())
    except sqlite3.Error as error:
        raise Unreadable(f"{file.name}: not a readable SQLite file: {error}") from None
    finally:
        database.close()


IDENTITY = "what was traced as --variant trace=NAME states it; kernels by name"
FORMATS = (
    Format(
        name="kineto",
        title="torch.profiler trace (Kineto JSON, also gzipped)",
        detect=detect_kineto,
        read=read_kineto,
        identity=IDENTITY,
        metrics={"step": STEP, **PHASES, "kernel": KERNEL},
    ),
    Format(
        name="nsight-systems",
        title="Nsight Systems profile (`nsys export --type sqlite`)",
        detect=detect_nsight,
        read=read_nsight,
        identity=IDENTITY,
        metrics={"busy": BUSY, "kernel": KERNEL},
        suffixes=(".sqlite",),
    ),
)
