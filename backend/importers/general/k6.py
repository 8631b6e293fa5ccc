"""k6: the summary at the end of a load test, of `--summary-export` or `handleSummary`."""

from collections.abc import Mapping
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import mapping

GATES = {"http_req_duration", "iteration_duration", "grpc_req_duration", "ws_session_duration"}
UNNAMED = "a summary of k6 does not name the test it is of; state it with --variant test=NAME"
STATISTICS = {"med": Role.GATE, "p(95)": Role.WATCH, "p(99)": Role.WATCH}
SHARES = {"http_req_failed": Direction.LOWER, "checks": Direction.HIGHER}


def detect(file: ResultFile) -> bool:
    metrics = mapping(file.first.get("metrics"))
    return "root_group" in file.first or bool(metrics.keys() & {"http_reqs", "iterations", "vus_max"})


def read(file: ResultFile, context: Context) -> Draft:
    """Of times the median (a gate where it is of whole requests or iterations) and the tails, of counters the rate."""
    document = file.object_with("k6's summary with an object `metrics`", metrics=dict)
    draft = Draft()
    if "test" not in context.variant:
        draft.refuse(file.name, UNNAMED)
        return draft
    for name, raw in document["metrics"].items():
        said = mapping(raw)
        values = mapping(said.get("values")) or said
        for metric, stated in _measured(name, values):
            where = f"{file.name} metrics.{name}"
            value = draft.number_at(f"{where} {metric.name}", stated)
            if value is not None:
                draft.readings.append(metric.reading((value,), where=where, benchmark="k6", suite="k6", variant={}))
    return draft


def _measured(name: str, values: Mapping[str, Any]) -> list[tuple[Metric, Any]]:
    """The metrics that a summary has of this one, and what it says of each."""
    found: list[tuple[Metric, Any]] = []
    for statistic, role in STATISTICS.items():
        if statistic in values:
            plain = f"{name}_{statistic.strip(')').replace('(', '')}"
            metric = Metric(plain, "ms", Direction.LOWER, role if name in GATES else Role.WATCH)
            found.append((metric, values[statistic]))
    if name in SHARES:
        share = values.get("rate", values.get("value"))
        found.append((Metric(name, "1", SHARES[name], Role.WATCH), share))
    elif name in {"http_reqs", "iterations"}:
        role = Role.GATE if name == "http_reqs" else Role.WATCH
        found.append((Metric(f"{name}_per_s", "1/s", Direction.HIGHER, role), values.get("rate")))
    return [(metric, value) for metric, value in found if value is not None]


FORMAT = Format(
    name="k6",
    title="k6 summary (`--summary-export`, handleSummary)",
    detect=detect,
    read=read,
    identity="the test's name as --variant test=NAME states it",
)
