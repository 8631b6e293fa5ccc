"""BenchmarkDotNet: the full JSON report (`*-report-full.json`, `*-report-full-compressed.json`, `*-report.json`)."""

import re
from collections.abc import Mapping
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import mapping, number, numbers, scalars, text_of

METRICS = {
    "Median": Metric("time", "ns", Direction.LOWER),
    "BytesAllocatedPerOperation": Metric("allocated_bytes", "B", Direction.LOWER, Role.WATCH),
}
JOB = re.compile(r":\s*(?P<job>.+?)(?:\s*\[|$)")
DEFAULT_JOB = "DefaultJob"


def detect(file: ResultFile) -> bool:
    return "HostEnvironmentInfo" in file.first and "Benchmarks" in file.first


def read(file: ResultFile, context: Context) -> Draft:
    """The measured values of each case are samples: one process measured them."""
    document = file.object_with("BenchmarkDotNet's object with a list `Benchmarks`", Benchmarks=list)
    host = scalars(mapping(document.get("HostEnvironmentInfo")))
    environment = {key: str(host[key]) for key in ("BenchmarkDotNetVersion", "OsVersion", "ProcessorName",
                                                  "RuntimeVersion", "DotNetCliVersion") if key in host}  # fmt: skip
    draft = Draft()
    for index, raw in enumerate(document["Benchmarks"]):
        where, entry = f"{file.name} Benchmarks[{index}]", mapping(raw)
        parts = [text_of(entry.get(key)) for key in ("Namespace", "Type", "Method")]
        name = ".".join(part for part in parts if part)
        if not name:
            draft.refuse(where, "needs a text `Type` and `Method`")
            continue
        placed: dict[str, Any] = {
            "where": where, "benchmark": name, "variant": _variant(entry), "environment": environment
        }  # fmt: skip
        statistics = mapping(entry.get("Statistics"))
        median, values = number(statistics.get("Median")), numbers(statistics.get("OriginalValues")) or ()
        if median is None and not values:
            draft.readings.append(METRICS["Median"].failed("no Statistics: the benchmark did not run", **placed))
            continue
        measured = () if values or median is None else (median,)
        draft.readings.append(METRICS["Median"].reading(measured, samples=values, **placed))
        stated = mapping(entry.get("Memory")).get("BytesAllocatedPerOperation")
        allocated = None if stated is None else draft.number_at(f"{where} Memory", stated)
        if allocated is not None:
            draft.readings.append(METRICS["BytesAllocatedPerOperation"].reading((allocated,), **placed))
    return draft


def _variant(entry: Mapping[str, Any]) -> dict[str, str]:
    """Its parameters, and its job where a class is measured under several."""
    stated = [pair.partition("=") for pair in str(entry.get("Parameters") or "").split("&")]
    variant = {key.strip(): value.strip() for key, _, value in stated if key.strip()}
    job = JOB.search(str(entry.get("DisplayInfo") or ""))
    return variant if job is None or job["job"] == DEFAULT_JOB else {**variant, "job": _lasting(job["job"])}


def _lasting(job: str) -> str:
    """A job's settings without the id that BenchmarkDotNet gives it, which is another in the next version."""
    name, bracket, settings = job.partition("(")
    return settings.rstrip(")") if bracket and name.startswith("Job-") else job


FORMAT = Format(
    name="benchmarkdotnet",
    title="BenchmarkDotNet JSON report",
    detect=detect,
    read=read,
    identity="namespace, type and method, with parameters and job",
    metrics=METRICS,
)
