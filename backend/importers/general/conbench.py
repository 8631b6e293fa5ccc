"""Conbench: benchmark results as its runners post them and its API answers them."""

from collections.abc import Mapping
from typing import Any

from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Reading
from backend.importers.values import listed, mapping, moment_of, numbers, scalars, sha_of, text_of


def detect(file: ResultFile) -> bool:
    first = mapping(next(iter(listed(file.first.get("data"))), None)) or file.first
    return "tags" in first and ("data" in mapping(first.get("stats")) or "error" in first)


def _rows(file: ResultFile) -> list[tuple[str, Any]]:
    """The results: alone, in a list, one a line, or a page of the API's answer."""
    page = file.first.get("data")
    if not isinstance(page, list) or "tags" in file.first:
        return file.rows
    return [(f"{file.name} data[{index}]", row) for index, row in enumerate(page)]


def read(file: ResultFile, context: Context) -> Draft:
    """Read one benchmark's data as the samples of one process."""
    draft = Draft()
    for where, row in _rows(file):
        if isinstance(row, Unreadable):
            draft.refuse(where, str(row))
            continue
        result = mapping(row)
        stats, tags = mapping(result.get("stats")), dict(mapping(result.get("tags")))
        measured = [None if _is_none(value) else value for value in listed(stats.get("data"))]
        name, samples = text_of(tags.pop("name", None)), numbers(measured) or ()
        failed = _why_failed(result, measured)
        if name is None or not (samples or failed):
            draft.refuse(where, "needs tags.name and stats.data, a list of finite numbers")
            continue
        github = mapping(result.get("github")) or mapping(result.get("commit"))
        machine = mapping(result.get("machine_info")) or mapping(result.get("hardware"))
        placed: dict[str, Any] = {
            "where": where,
            "benchmark": name,
            "variant": {**scalars(tags), **_case(result)},
            "commit": sha_of(github.get("commit") or github.get("sha")),
            "branch": text_of(github.get("branch")),
            "testbed": text_of(machine.get("name")),
            "worker": text_of(machine.get("name")),
            "at": moment_of(result.get("timestamp")),
            "environment": {key: str(value) for key, value in scalars(mapping(result.get("context"))).items()},
        }
        unit = str(stats.get("unit") or "s")
        if failed is not None:
            placed["failed"] = failed[-2000:]
        draft.readings.append(Reading(metric=_metric(unit), unit=unit, samples=samples, **placed))
    return draft


def _is_none(value: object) -> bool:
    """Whether Conbench has no value for an iteration: null, or NaN as a number or a word."""
    return value is None or str(value).lower() == "nan"


def _why_failed(result: Mapping[str, Any], measured: list[Any]) -> str | None:
    """An iteration that gave no value voids the result, as Conbench itself has it."""
    if result.get("error"):
        error = mapping(result["error"])
        return str(error.get("stack_trace") or error.get("message") or result["error"])
    without = [number for number, value in enumerate(measured, 1) if value is None]
    return f"iteration {without[0]} of {len(measured)} gave no value" if without else None


def _case(result: Any) -> dict[str, str]:
    optional = text_of(mapping(result.get("optional_benchmark_info")).get("case"))
    return {} if optional is None else {"case": optional}


def _metric(unit: str) -> str:
    names = {"s": "seconds", "ns": "nanoseconds", "B/s": "bytes_per_second", "i/s": "items_per_second"}
    return names.get(unit, "value")


FORMAT = Format(
    name="conbench",
    title="Conbench benchmark results",
    detect=detect,
    read=read,
    identity="the benchmark's name, with its tags",
    suffixes=(".json", ".jsonl"),
)
