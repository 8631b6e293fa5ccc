"""MLPerf logs (`:::MLLOG` lines of real training submissions) and nccl-tests (its text table and its JSON)."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from backend.contract import Direction, Role
from backend.importers.model import Context, Draft, Reading, Unreadable, decode, mapping, number, numbers

TOKEN = ":::MLLOG "
# Names a log's `tracked_stats` values go by, with unit and direction; others are left to their names.
TRACKED = {
    "throughput": ("samples/s", Direction.HIGHER),
    "mfu": ("1", Direction.HIGHER),
    "step_time_ms": ("ms", Direction.LOWER),
}


def read_mllog(name: str, data: bytes, context: Context) -> Draft:
    """One log is one process of a benchmark: time to train (watched: it varies by 5 to 14 % between runs of the same
    code) and throughput (gate), from `tracked_stats` or else from the block intervals."""
    draft = Draft()
    events = list(_mllog_events(name, data, draft))
    if not events:
        raise Unreadable(f"{name}: no line with the token {TOKEN.strip()!r}")
    said = {event["key"]: event for _, event in reversed(events)}
    first = {key: mapping(said[key]).get("value") for key in said}
    benchmark = first.get("submission_benchmark")
    if not benchmark:
        raise Unreadable(f"{name}: no event `submission_benchmark`, so nothing says what was measured")
    stop = said.get("run_stop")
    status = mapping(mapping(stop).get("metadata")).get("status")
    started = next((event["time_ms"] for _, event in events if event["key"] == "run_start"), None)
    # Which submission a directory holds: its parent says it where the log does not.
    common: dict[str, Any] = {
        "benchmark": f"mlperf.{benchmark}",
        "suite": "mlperf",
        "testbed": str(first.get("submission_platform") or "") or None,
        "variant": {key: first[key] for key in ("global_batch_size", "gradient_accumulation_steps", "opt_name")
                    if isinstance(first.get(key), str | int | float)},
        "at": _at(started),
        "finished_at": _at(mapping(stop).get("time_ms")),
        "environment": {"submission_org": str(first.get("submission_org") or ""), "log": PurePath(name).name},
    }  # fmt: skip
    where = f"{name}:{events[0][0]}"
    if status != "success" or started is None or stop is None:
        why = f"run_stop says {status!r}" if stop else "the log has no run_stop: the run did not end"
        draft.readings.append(
            Reading(where=where, metric="time_to_train_s", unit="s", direction=Direction.LOWER, failed=why, **common)
        )
        return draft
    seconds = (stop["time_ms"] - started) / 1000
    draft.readings.append(
        Reading(where=where, metric="time_to_train_s", unit="s", direction=Direction.LOWER, role=Role.WATCH,
                values=(seconds,), **common)
    )  # fmt: skip
    tracked = _tracked(events)
    if "throughput" not in tracked:
        rates = tuple(_block_rates(events))
        if rates:
            tracked["throughput"] = rates
            draft.note("throughput: samples of a block over its duration (the log tracks none itself)")
    for metric, samples in tracked.items():
        unit, direction = TRACKED.get(metric, ("", None))
        role = Role.GATE if metric == "throughput" else Role.WATCH
        draft.readings.append(
            Reading(where=where, metric=metric, unit=unit, direction=direction, role=role, samples=samples, **common)
        )
    return draft


def _mllog_events(name: str, data: bytes, draft: Draft) -> Iterator[tuple[int, dict[str, Any]]]:
    for line_number, line in enumerate(data.decode("latin-1").splitlines(), 1):
        at = line.find(TOKEN)
        if at < 0:
            continue
        try:
            event = json.loads(line[at + len(TOKEN) :])
        except (ValueError, RecursionError) as error:
            draft.refuse(f"{name}:{line_number}", f"no JSON after the token: {error}")
            continue
        if not isinstance(event, dict) or not isinstance(event.get("key"), str) or number(event.get("time_ms")) is None:
            draft.refuse(f"{name}:{line_number}", "an event needs a text `key` and a number `time_ms`")
            continue
        yield line_number, {**event, "time_ms": float(event["time_ms"])}


def _tracked(events: list[tuple[int, dict[str, Any]]]) -> dict[str, tuple[float, ...]]:
    """Every number that `tracked_stats` events report, as samples by name."""
    tracked: dict[str, list[float]] = {}
    for _, event in events:
        if event["key"] == "tracked_stats":
            for key, raw in mapping(event.get("value")).items():
                value = number(raw)
                if value is not None:
                    tracked.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in tracked.items()}


def _block_rates(events: list[tuple[int, dict[str, Any]]]) -> Iterator[float]:
    """Samples per second of each block (or epoch), the first left out: it holds warm-up and compilation."""
    opened: tuple[float, float] | None = None
    rates: list[float] = []
    for _, event in events:
        count = number(mapping(event.get("metadata")).get("samples_count"))
        if event["key"] in {"block_start", "epoch_start"} and count is not None:
            opened = event["time_ms"], count
        elif event["key"] in {"block_stop", "epoch_stop"} and count is not None and opened is not None:
            milliseconds, samples = event["time_ms"] - opened[0], count - opened[1]
            if milliseconds > 0 and samples > 0:
                rates.append(1000 * samples / milliseconds)
            opened = None
    yield from rates[1:] if len(rates) > 1 else rates


def _at(milliseconds: object) -> str | None:
    value = number(milliseconds)
    try:
        return None if value is None else datetime.fromtimestamp(value / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


# --- nccl-tests ------------------------------------------------------------------------------------------------------

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv", "scatter",
               "gather", "hypercube")  # fmt: skip
ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(-?\d+)\s+(.*)$")
SIDE_COLUMNS = 4  # time (us), algbw, busbw, #wrong


def read_nccl_tests(name: str, data: bytes, context: Context) -> Draft:
    """A size sweep of one collective: time, algbw and busbw, out of place and in place; wrong values make it fail."""
    if data.lstrip()[:1] in (b"{", b"["):
        return _read_nccl_json(name, data)
    text = data.decode("utf-8", "replace")
    draft = Draft()
    operation = _nccl_operation(name, text)
    version = re.search(r"nccl.*?version[:\s]+([\d.]+)", text, re.IGNORECASE)
    environment = {"nccl": version.group(1)} if version else {}
    ranks = len(re.findall(r"^#\s+Rank\s+\d+", text, re.MULTILINE))
    for line_number, line in enumerate(text.splitlines(), 1):
        row = ROW.match(line)
        if row is None:
            continue
        size, _, dtype, reduction, _, rest = row.groups()
        cells = rest.split()
        if len(cells) < SIDE_COLUMNS:
            draft.refuse(f"{name}:{line_number}", f"a row needs time, algbw, busbw and #wrong; found {rest.strip()!r}")
            continue
        variant = _nccl_variant(int(size), dtype, reduction, ranks)
        for placement, side in (("out_of_place", cells[:4]), ("in_place", cells[4:8])):
            if len(side) == SIDE_COLUMNS:
                cell = dict(zip(("time", "alg_bw", "bus_bw", "nwrong"), side, strict=True))
                where = f"{name}:{line_number}"
                _nccl_side(draft, where, operation, {**variant, "placement": placement}, cell, environment)
    if not draft.readings and not draft.problems:
        columns = "size, count, type, redop, root, time, algbw, busbw, #wrong"
        raise Unreadable(f"{name}: no row of nccl-tests' table ({columns})")
    return draft


def _read_nccl_json(name: str, data: bytes) -> Draft:
    document = decode(data, name)
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise Unreadable(f"{name}: expected nccl-tests' object with a list `results`")
    draft = Draft()
    arguments = document.get("args")
    spoken = " ".join(map(str, arguments)) if isinstance(arguments, list) else str(arguments or "")
    operation = _nccl_operation(name, f"{mapping(document.get('config')).get('test', '')} {spoken}")
    environment = {"nccl": str(document["nccl_version"])} if document.get("nccl_version") else {}
    ranks = len(document["ranks"]) if isinstance(document.get("ranks"), list) else 0
    for index, entry in enumerate(document["results"]):
        where = f"{name} results[{index}]"
        row = mapping(entry)
        size = number(row.get("size"))
        if size is None:
            draft.refuse(where, "needs a number `size`")
            continue
        variant = _nccl_variant(int(size), str(row.get("type", "")), str(row.get("redop", "none")), ranks)
        for placement in ("out_of_place", "in_place"):
            if isinstance(row.get(placement), dict):
                _nccl_side(draft, where, operation, {**variant, "placement": placement}, row[placement], environment)
    return draft


def _nccl_operation(name: str, text: str) -> str:
    for spoken in (text, PurePath(name).name):
        found = re.search(rf"({'|'.join(COLLECTIVES)})(?:_perf)?", spoken)
        if found:
            return {"alltoall": "all_to_all", "sendrecv": "send_recv"}.get(found.group(1), found.group(1))
    return "collective"


def _nccl_variant(size: int, dtype: str, reduction: str, ranks: int) -> dict[str, Any]:
    variant: dict[str, Any] = {"bytes": size, "dtype": dtype}
    if reduction not in {"none", "-1", ""}:
        variant["reduction"] = reduction
    return {**variant, "ranks": ranks} if ranks else variant


def _nccl_side(
    draft: Draft,
    where: str,
    operation: str,
    variant: Mapping[str, Any],
    side: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> None:
    common: dict[str, Any] = {"where": where, "benchmark": f"coll.{operation}", "suite": "coll", "variant": variant,
                              "environment": environment}  # fmt: skip
    wrong = number(side.get("nwrong"))
    if wrong:
        draft.readings.append(
            Reading(metric="time_us", unit="us", direction=Direction.LOWER, failed=f"{wrong:g} wrong values", **common)
        )
        return
    samples = numbers(mapping(side.get("per_iter")).get("times_us")) or ()
    for key, metric, unit, direction, role in (
        ("time", "time_us", "us", Direction.LOWER, Role.GATE),
        ("alg_bw", "algbw_gb_per_s", "GB/s", Direction.HIGHER, Role.DERIVED),
        ("bus_bw", "busbw_gb_per_s", "GB/s", Direction.HIGHER, Role.DERIVED),
    ):
        value = number(side.get(key))
        if value is None:
            draft.refuse(where, f"{key} is {side.get(key)!r}; expected a finite number")
            continue
        draft.readings.append(
            Reading(metric=metric, unit=unit, direction=direction, role=role, values=(value,),
                    samples=samples if key == "time" else (), **common)
        )  # fmt: skip
