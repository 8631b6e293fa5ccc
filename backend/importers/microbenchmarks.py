"""pytest-benchmark, google-benchmark, github-action-benchmark (`data.js`) and its custom lists of values."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from backend.contract import Direction
from backend.importers.model import (
    Context,
    Draft,
    Reading,
    Unreadable,
    decode,
    mapping,
    moment_of,
    number,
    numbers,
    sha_of,
    text_of,
)

TIME_UNITS = ("ns", "us", "ms", "s")
RATES = {"bytes_per_second": "B/s", "items_per_second": "1/s"}
# Which way the tools of github-action-benchmark are better; the others report times.
HIGHER_TOOLS = frozenset({"benchmarkjs", "pytest", "customBiggerIsBetter"})


def read_pytest_benchmark(name: str, data: bytes, context: Context) -> Draft:
    """`pytest --benchmark-json`: seconds per round, with the raw rounds where `--benchmark-save-data` kept them."""
    document = decode(data, name)
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        raise Unreadable(f"{name}: expected pytest-benchmark's object with a list `benchmarks`")
    draft = Draft()
    commit = mapping(document.get("commit_info"))
    machine = mapping(document.get("machine_info"))
    for index, entry in enumerate(document["benchmarks"]):
        where = f"{name} benchmarks[{index}]"
        stats = mapping(mapping(entry).get("stats"))
        median = number(stats.get("median"))
        rounds = numbers(stats.get("data")) or ()
        if median is None and not rounds:
            draft.refuse(where, "no stats.median and no stats.data")
            continue
        draft.readings.append(
            Reading(
                where=where,
                benchmark=str(entry.get("group") or entry.get("fullname") or entry.get("name")),
                variant=_variant_of_pytest(entry),
                metric="seconds",
                unit="s",
                direction=Direction.LOWER,
                values=() if rounds else (median,) if median is not None else (),
                samples=rounds,
                commit=sha_of(commit.get("id")),
                branch=text_of(commit.get("branch")),
                at=moment_of(document.get("datetime")),
                worker=text_of(machine.get("node")),
                environment={
                    "python": str(machine.get("python_version", "")),
                    "cpu": str(mapping(machine.get("cpu")).get("brand_raw", "")),
                },
            )
        )
    return draft


def _variant_of_pytest(entry: Mapping[str, Any]) -> dict[str, Any]:
    parameters = entry.get("params")
    if isinstance(parameters, dict):
        return {key: value if isinstance(value, str | int | float | bool) else str(value)
                for key, value in parameters.items()}  # fmt: skip
    return {"name": str(entry["name"])} if entry.get("group") and entry.get("name") else {}


def read_google_benchmark(name: str, data: bytes, context: Context) -> Draft:
    """`--benchmark_format=json`: repetitions are samples of one process; without them the median is taken."""
    document = decode(data, name)
    if not isinstance(document, dict) or "context" not in document or not isinstance(document.get("benchmarks"), list):
        raise Unreadable(f"{name}: expected google-benchmark's object with `context` and a list `benchmarks`")
    draft = Draft()
    entries = [(f"{name} benchmarks[{index}]", mapping(entry)) for index, entry in enumerate(document["benchmarks"])]
    repeated = {_run_name(entry) for _, entry in entries if entry.get("run_type", "iteration") == "iteration"}
    samples: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    first: dict[str, str] = {}
    failed: dict[str, str] = {}
    for where, entry in entries:
        label = _run_name(entry)
        if entry.get("run_type") == "aggregate" and (label in repeated or entry.get("aggregate_name") != "median"):
            continue
        unit = str(entry.get("time_unit", "ns"))
        time = number(entry.get("real_time"))
        if entry.get("error_occurred") and label:
            failed[label] = str(entry.get("error_message") or "error_occurred")
        elif not label or time is None or unit not in TIME_UNITS:
            draft.refuse(where, f"needs a name, a number `real_time` and a `time_unit` of {', '.join(TIME_UNITS)}")
            continue
        else:
            for metric, its_unit in (("real_time", unit), ("cpu_time", unit), *RATES.items()):
                value = number(entry.get(metric))
                if value is not None:
                    samples[label, metric, its_unit].append(value)
        first.setdefault(label, where)
    machine = mapping(document["context"])
    environment = {key: machine[key] for key in ("num_cpus", "mhz_per_cpu", "library_build_type") if key in machine}

    def reading(label: str, metric: str, unit: str, **more: Any) -> Reading:
        benchmark, _, arguments = label.partition("/")
        return Reading(
            where=first[label],
            benchmark=benchmark,
            variant={"arguments": arguments} if arguments else {},
            metric=metric,
            unit=unit,
            direction=Direction.HIGHER if metric in RATES else Direction.LOWER,
            at=moment_of(machine.get("date")),
            worker=text_of(machine.get("host_name")),
            environment=environment,
            **more,
        )

    draft.readings += [reading(label, "real_time", "ns", failed=why) for label, why in failed.items()]
    draft.readings += [reading(*key, samples=tuple(values)) for key, values in samples.items()]
    return draft


def _run_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("run_name") or entry.get("name") or "")


def read_data_js(name: str, data: bytes, context: Context) -> Draft:
    """github-action-benchmark's history, `window.BENCHMARK_DATA = {…}`: every entry is a commit of its own."""
    document = decode(re.sub(rb"^\s*window\.BENCHMARK_DATA\s*=\s*", b"", data).rstrip().rstrip(b";"), name)
    if not isinstance(document, dict) or not isinstance(document.get("entries"), dict):
        raise Unreadable(f"{name}: expected `window.BENCHMARK_DATA = {{…}}` with an object `entries`")
    draft = Draft()
    for suite, entries in document["entries"].items():
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            where = f"{name} entries[{json.dumps(suite)}][{index}]"
            commit = mapping(mapping(entry).get("commit"))
            sha = sha_of(commit.get("id"))
            if sha is None:
                draft.refuse(where, f"commit.id is {commit.get('id')!r}; accepted: 40 hexadecimal digits")
                continue
            at = moment_of(commit.get("timestamp")) or moment_of(mapping(entry).get("date"))
            way = Direction.HIGHER if entry.get("tool") in HIGHER_TOOLS else Direction.LOWER
            _read_benches(draft, where, entry.get("benches"), way, suite=suite, commit=sha, at=at)
    return draft


def read_custom_smaller(name: str, data: bytes, context: Context) -> Draft:
    """customSmallerIsBetter: a list of {name, unit, value}."""
    return _read_custom(name, data, Direction.LOWER)


def read_custom_bigger(name: str, data: bytes, context: Context) -> Draft:
    """customBiggerIsBetter: a list of {name, unit, value}."""
    return _read_custom(name, data, Direction.HIGHER)


def _read_custom(name: str, data: bytes, direction: Direction) -> Draft:
    document = decode(data, name)
    if not isinstance(document, list):
        raise Unreadable(f"{name}: expected a list of {{name, unit, value}}, found {type(document).__name__}")
    draft = Draft()
    _read_benches(draft, name, document, direction)
    return draft


def _read_benches(draft: Draft, where: str, benches: object, direction: Direction, **placed: Any) -> None:
    if not isinstance(benches, list):
        draft.refuse(where, "expected a list of {name, unit, value}")
        return
    for index, bench in enumerate(benches):
        at = f"{where} [{index}]"
        entry = mapping(bench)
        label, value = entry.get("name"), number(entry.get("value"))
        if not isinstance(label, str) or not label.strip() or value is None:
            draft.refuse(at, f"needs a name and a finite number `value`; found {json.dumps(bench)[:120]}")
            continue
        unit = str(entry.get("unit") or "1")
        draft.readings.append(
            Reading(where=at, benchmark=label, metric="value", unit=unit[:50], direction=direction, values=(value,),
                    **placed)
        )  # fmt: skip
