"""Stored results in the formats of other tools: `:::MLLOG`, PyTorch's benchmark database v3, CSV, Parquet.

Built from what was delivered (`tidemark.run/1`) and from the read model of a series; nothing is judged or rounded here.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from backend.contract import variant_key
from backend.services.base.errors import BadRequest
from backend.services.base.tables import Table, TableFormat, written
from backend.services.reports.history import SeriesPoints

MLLOG = ":::MLLOG "
RUN_COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("run_id", "project", "commit", "branch", "suite", "suite_version", "testbed", "worker"), str),
    **dict.fromkeys(("started_at", "benchmark", "variant", "preset", "status"), str),
    **dict.fromkeys(("metric", "unit", "direction", "role"), str),
    "value": float,
    **dict.fromkeys(("processes", "error"), str),
}
POINT_COLUMNS: Mapping[str, type] = {
    "position": int,
    **dict.fromkeys(("sha", "run_id"), str),
    **dict.fromkeys(("committed_at", "measured_at"), datetime),
    **dict.fromkeys(("value", "smoothed", "baseline", "band_low", "band_high"), float),
    "verdict": str,
    **dict.fromkeys(("change", "change_low", "change_high", "low", "high"), float),
    "runs": int,
}


class RunFormat(StrEnum):
    RUN = "run.json"
    MLLOG = "mllog"
    V3 = "v3"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Exported:
    """A file: its media type, its name, its bytes in parts."""

    media_type: str
    file_name: str
    parts: Iterable[bytes]


def export_run(document: Mapping[str, Any], received_at: datetime, wanted: RunFormat) -> Exported:
    """A delivered run in another format. Those that need a time have that of its arrival, if it states none."""
    name = str(document["id"])
    began = document.get("started_at") or document.get("finished_at") or received_at.isoformat()
    dated = {**document, "started_at": began}
    match wanted:
        case RunFormat.RUN:
            whole = json.dumps(document, ensure_ascii=False).encode()
            return Exported("application/json", f"{name}.run.json", [whole])
        case RunFormat.MLLOG:
            lines = (f"{MLLOG}{json.dumps(event)}\n".encode() for event in mllog_events(dated))
            return Exported("text/plain; charset=utf-8", f"{name}.mllog", [b"".join(lines)])
        case RunFormat.V3:
            records = json.dumps(list(v3_records(dated))).encode()
            return Exported("application/json", f"{name}.v3.json", [records])
        case _:
            return export_table(run_table(document), TableFormat(wanted.value))


def export_table(table: Table, wanted: TableFormat) -> Exported:
    """A table as a file with this name."""
    return Exported(wanted.media_type, f"{table.name}.{wanted}", written(table, wanted))


def run_table(document: Mapping[str, Any]) -> Table:
    return Table(name=str(document["id"]), columns=RUN_COLUMNS, rows=run_rows(document))


def points_table(points: SeriesPoints) -> Table:
    return Table(name=f"series-{points.series.id}", columns=POINT_COLUMNS, rows=point_rows(points))


# --- rows ------------------------------------------------------------------------------------------------------------


def run_rows(document: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """One row per measurement; a result without any (it failed) has one row that says so."""
    of_run = [document.get(name) for name in ("id", *list(RUN_COLUMNS)[1:9])]
    for result in document.get("results", ()):
        variant = variant_key(result.get("variant", {}))
        of_result = [result["benchmark"], variant, result.get("preset", "full"), result["status"]]
        error = result.get("error")
        for item in result.get("measurements", ()):
            processes = " ".join(map(repr, item.get("processes", ())))
            yield (
                *of_run, *of_result, item["metric"], item["unit"], item["direction"], item["role"], item["value"],
                processes, error,
            )  # fmt: skip
        if not result.get("measurements"):
            yield (*of_run, *of_result, *[None] * 6, error)


def point_rows(points: SeriesPoints) -> Iterator[Sequence[Any]]:
    columns = [getattr(points, name) for name in POINT_COLUMNS]
    for index in range(len(points.value)):
        yield [_plain(column[index]) if len(column) else None for column in columns]


def _plain(value: Any) -> Any:
    """A numpy scalar as Python's own, times in UTC; not-a-number is nothing."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- MLPerf logs and benchmark database v3 ---------------------------------------------------------------------------


def mllog_events(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The run, whose start is stated, as MLPerf-style events: one block per result, every event with all six fields."""
    began, ended = _ms(document["started_at"]), _ms(document.get("finished_at") or document["started_at"])

    def event(at: int, kind: str, key: str, value: Any, **metadata: Any) -> dict[str, Any]:
        place = {"file": str(document["suite"]), "lineno": 1, **metadata}
        return {"namespace": "", "time_ms": at, "event_type": kind, "key": key, "value": value, "metadata": place}

    for result in document.get("results", ()):
        facts = {
            "submission_benchmark": result["benchmark"],
            "submission_org": document["project"],
            "submission_division": "open",
            "submission_platform": document["testbed"],
            "tidemark_commit": document["commit"],
            "tidemark_variant": result.get("variant", {}),
            "tidemark_preset": result.get("preset", "full"),
        }
        for key, value in facts.items():
            yield event(began, "POINT_IN_TIME", key, value)
        yield event(began, "INTERVAL_START", "run_start", None)
        for number, stats in enumerate(_stats(result.get("measurements", ()))):
            yield event(ended, "POINT_IN_TIME", "tracked_stats", stats, step=number)
        status = "success" if result["status"] == "ok" else "aborted"
        yield event(ended, "INTERVAL_END", "run_stop", None, status=status)


def _stats(measurements: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, float]]:
    """One set of numbers for each process; a metric without process values stands in each."""
    count = max((len(item.get("processes", ())) or 1 for item in measurements), default=0)
    for number in range(count):
        processes = ((item, item.get("processes", ())) for item in measurements)
        yield {item["metric"]: values[number] if number < len(values) else item["value"] for item, values in processes}


def _ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def v3_records(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One record per metric of each good result of a run whose start is stated; failed results are left out, never
    written as 0."""
    environment = document.get("environment") or {}
    for result in document.get("results", ()):
        if result["status"] != "ok":
            continue
        variant = result.get("variant", {})
        for item in result.get("measurements", ()):
            yield {
                "timestamp": _ms(document["started_at"]) // 1000,
                "schema_version": "v3",
                "name": document["suite"],
                "repo": document["project"],
                "head_branch": document.get("branch") or "",
                "head_sha": document["commit"],
                "workflow_id": 0,
                "run_attempt": document.get("attempt") or 1,
                "job_id": 0,
                "runners": [
                    {
                        "name": document.get("worker") or "",
                        "type": document["testbed"],
                        "gpu_info": str(environment.get("accelerator", "")),
                        "gpu_count": environment.get("accelerator_count", 0),
                        "extra_info": _texts({"environment": environment.get("hash", "")}),
                    }
                ],
                "benchmark": {
                    "name": result["benchmark"],
                    "mode": result.get("mode") or "",
                    "dtype": str(variant.get("dtype", "")),
                    "extra_info": _texts({"preset": result.get("preset", "full"), **variant}),
                },
                "model": {"name": str(variant.get("model", result["benchmark"])), "type": "tidemark", "origins": []},
                "inputs": {},
                "dependencies": {
                    "pytorch": {"repo": "pytorch/pytorch", "version": str(environment.get("torch", "")), "sha": ""}
                },
                "metric": {
                    "name": item["metric"],
                    "benchmark_values": list(item.get("processes") or [item["value"]]),
                    "extra_info": _texts({name: item[name] for name in ("unit", "direction", "role")}),
                },
            }


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """The schema's extra_info maps text to text."""
    return {name: str(value) for name, value in values.items()}


def run_format(name: str) -> RunFormat:
    try:
        return RunFormat(name)
    except ValueError:
        raise BadRequest.field("format", name, [item.value for item in RunFormat]) from None
