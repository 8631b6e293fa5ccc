"""MLPerf training logs: `:::MLLOG` lines of real submissions, among whatever else the log holds."""

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import mapping, moment_of, number, scalars

TOKEN = ":::MLLOG "
THROUGHPUT = "throughput"
# What logs call their `tracked_stats`. Only throughput gates: it is what a change of the code changes, and every
# submission has it. Losses and accuracies are not tracked here: they are of one training, not of its speed.
TRACKED = {
    THROUGHPUT: Metric(THROUGHPUT, "samples/s", Direction.HIGHER),
    "train_step_time": Metric("train_step_time", "s", Direction.LOWER, Role.WATCH),
    "step_time_ms": Metric("step_time_ms", "ms", Direction.LOWER, Role.WATCH),
    "validation_time": Metric("validation_time", "s", Direction.LOWER, Role.WATCH),
    "validation_step_time": Metric("validation_step_time", "s", Direction.LOWER, Role.WATCH),
    "validation_throughput": Metric("validation_throughput", "samples/s", Direction.HIGHER, Role.WATCH),
    "train_time": Metric("train_time", "s", Direction.LOWER, Role.WATCH),
    "walltime": Metric("walltime", "s", Direction.LOWER, Role.WATCH),
    "warmup_time": Metric("warmup_time", "s", Direction.LOWER, Role.WATCH),
    "before_model_init": Metric("before_model_init", "s", Direction.LOWER, Role.WATCH),
    "after_model_init": Metric("after_model_init", "s", Direction.LOWER, Role.WATCH),
    "init_finished": Metric("init_finished", "s", Direction.LOWER, Role.WATCH),
    "mfu": Metric("mfu", "1", Direction.HIGHER, Role.WATCH),
    "max_memory_usage": Metric("max_memory_usage", "GB", Direction.LOWER, Role.WATCH),
}
LEARNING = ("loss", "accuracy", "lr", "learning_rate")
TIME_TO_TRAIN = Metric("time_to_train_s", "s", Direction.LOWER, Role.WATCH)
SIZES = ("global_batch_size", "gradient_accumulation_steps", "opt_name")
Event = tuple[int, dict[str, Any]]
"""A line's number, and the event on it."""


def detect(file: ResultFile) -> bool:
    return TOKEN.encode() in file.data


def read(file: ResultFile, context: Context) -> Draft:
    """One log is one process of a benchmark: time to train (watched: it varies by 5 to 14 % between runs of the same
    code) and throughput (gate), as `tracked_stats` has it or else from the block intervals."""
    draft = Draft()
    events = list(_events(file, draft))
    if not events:
        raise Unreadable(f"{file.name}: no line with the token {TOKEN.strip()!r} and an event after it")
    said = {event["key"]: event for _, event in reversed(events)}
    first = {key: event.get("value") for key, event in said.items()}
    benchmark = first.get("submission_benchmark")
    if not isinstance(benchmark, str) or not benchmark:
        raise Unreadable(f"{file.name}: no event `submission_benchmark`, so nothing says what was measured")
    start, stop = said.get("run_start"), said.get("run_stop")
    # Which submission a directory holds: its parent says it where the log does not.
    placed: dict[str, Any] = {
        "where": f"{file.name}:{events[0][0]}",
        "benchmark": f"mlperf.{benchmark}",
        "suite": "mlperf",
        "testbed": str(first.get("submission_platform") or "") or None,
        "variant": scalars(first, SIZES),
        "at": moment_of(start["time_ms"]) if start else None,
        "finished_at": moment_of(stop["time_ms"]) if stop else None,
        "environment": {"submission_org": str(first.get("submission_org") or ""), "log": PurePath(file.name).name},
    }
    why = _why_failed(start, stop)
    if why is not None or start is None or stop is None:
        draft.readings.append(TIME_TO_TRAIN.failed(why or "", **placed))
        return draft
    draft.readings.append(TIME_TO_TRAIN.reading(((stop["time_ms"] - start["time_ms"]) / 1000,), **placed))
    tracked = _tracked(events)
    if THROUGHPUT not in tracked:
        rates = _block_rates(events, number(first.get("global_batch_size")))
        if rates:
            tracked[THROUGHPUT] = rates
            draft.note("throughput: samples of a block over its duration (the log tracks none itself)")
    for name, samples in tracked.items():
        metric = TRACKED.get(name, Metric(name, "", None, Role.WATCH))
        draft.readings.append(metric.reading((), samples=samples, **placed))
    return draft


def _why_failed(start: Mapping[str, Any] | None, stop: Mapping[str, Any] | None) -> str | None:
    if stop is None:
        return "the log has no run_stop: the run did not end"
    status = mapping(stop.get("metadata")).get("status")
    if status != "success":
        return f"run_stop says {status!r}"
    return "the log has no run_start" if start is None else None


def _events(file: ResultFile, draft: Draft) -> Iterator[Event]:
    for line_number, line in enumerate(file.data.decode("latin-1").split("\n"), 1):
        at = line.find(TOKEN)
        if at < 0:
            continue
        try:
            event = json.loads(line[at + len(TOKEN) :])
        except (ValueError, RecursionError) as error:
            draft.refuse(f"{file.name}:{line_number}", f"no JSON after the token: {error}")
            continue
        if not isinstance(event, dict) or not isinstance(event.get("key"), str) or number(event.get("time_ms")) is None:
            draft.refuse(f"{file.name}:{line_number}", "an event needs a text `key` and a number `time_ms`")
            continue
        yield line_number, {**event, "time_ms": float(event["time_ms"])}


def _tracked(events: list[Event]) -> dict[str, tuple[float, ...]]:
    """The numbers about speed and memory that `tracked_stats` events report, as samples by name."""
    tracked: dict[str, list[float]] = {}
    for _, event in events:
        if event["key"] == "tracked_stats":
            for name, raw in mapping(event.get("value")).items():
                value = number(raw)
                if value is not None and not name.endswith(LEARNING):
                    tracked.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in tracked.items()}


def _block_rates(events: list[Event], batch_size: float | None) -> tuple[float, ...]:
    """Samples per second of each block (or epoch), the first left out: it holds warm-up and compilation."""
    opened: tuple[float, Mapping[str, Any]] | None = None
    rates: list[float] = []
    for _, event in events:
        about = mapping(event.get("metadata"))
        if event["key"] in {"block_start", "epoch_start"} and "samples_count" in about:
            opened = event["time_ms"], about
        elif event["key"] in {"block_stop", "epoch_stop"} and opened is not None:
            milliseconds, samples = event["time_ms"] - opened[0], _samples(opened[1], about, batch_size)
            if milliseconds > 0 and samples > 0:
                rates.append(1000 * samples / milliseconds)
            opened = None
    return tuple(rates[1:] if len(rates) > 1 else rates)


def _samples(start: Mapping[str, Any], stop: Mapping[str, Any], batch_size: float | None) -> float:
    """How many samples a block trained on. Some logs count samples from the beginning of the run, others state the
    size of the block at both its ends."""
    steps = [number(start.get("step")), number(stop.get("step"))]
    if batch_size is not None and steps[0] is not None and steps[1] is not None:
        return (steps[1] - steps[0]) * batch_size
    before, after = number(start.get("samples_count")) or 0.0, number(stop.get("samples_count")) or 0.0
    return after if after == before else after - before


FORMAT = Format(
    name="mllog",
    title="MLPerf training log (`:::MLLOG` lines)",
    detect=detect,
    read=read,
    identity="the benchmark, with global batch size, gradient accumulation and optimizer; the platform is the testbed",
    metrics={**TRACKED, TIME_TO_TRAIN.name: TIME_TO_TRAIN},
    suffixes=(".txt", ".log", ".out", ".mllog"),
)
