"""AIPerf and GenAI-Perf: `profile_export_aiperf.json`, `profile_export_genai_perf.json`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import listed, mapping, moment_of, scalars, text_of

UP, DOWN = Direction.HIGHER, Direction.LOWER
# What gates, with the statistic that does; of the other times and rates the same statistic is watched.
METRICS = {
    "request_throughput": Metric("request_throughput", "requests/sec", UP),
    "output_token_throughput": Metric("output_token_throughput", "tokens/sec", UP),
    "time_to_first_token": Metric("time_to_first_token", "ms", DOWN),
    "inter_token_latency": Metric("inter_token_latency", "ms", DOWN),
    "request_latency": Metric("request_latency", "ms", DOWN),
}
RATES = ("/sec", "/s", "/sec/user", "/s/user")
TIMES = ("ms", "s", "sec", "us", "ns")
TAILS = ("p90", "p99")
NO_MODEL = "names no model; state it with --variant model=NAME"


def detect(file: ResultFile) -> bool:
    return any("avg" in mapping(metric) and "unit" in mapping(metric) for _, metric in _metrics(file.first))


def _metrics(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The metrics of a report, which some versions keep one level deeper."""
    for place in (document, mapping(document.get("records")), mapping(document.get("llm_metrics"))):
        yield from ((name, value) for name, value in place.items() if isinstance(value, dict))


def read(file: ResultFile, context: Context) -> Draft:
    """For rates the average, for times median and tails; counts and lengths only state the request."""
    document = file.object_with("AIPerf's object of metrics, each with `unit` and `avg`")
    draft = Draft()
    asked = mapping(document.get("input_config"))
    model = _model(document, asked)
    if model is None and "model" not in context.variant:
        draft.refuse(file.name, NO_MODEL)
        return draft
    placed: dict[str, Any] = {
        "benchmark": "aiperf.profile",
        "suite": "aiperf",
        "variant": {**({} if model is None else {"model": model}), **_load(asked)},
        "at": moment_of(document.get("start_time")),
        "finished_at": moment_of(document.get("end_time")),
    }
    for name, said in _metrics(document):
        unit = str(said.get("unit", ""))
        rate, time = unit.endswith(RATES), unit in TIMES
        if "avg" not in said or not (rate or time) or name.endswith("_timestamp"):
            continue
        known = METRICS.get(name, Metric(name, unit, UP if rate else DOWN, Role.WATCH))
        statistics = ["avg"] if rate else ["p50" if "p50" in said else "avg", *TAILS]
        for index, statistic in enumerate(statistics):
            where = f"{file.name} {name}.{statistic}"
            value = None if said.get(statistic) is None else draft.number_at(where, said[statistic])
            if value is not None:
                metric = replace(known, unit=unit, name=name if rate else f"{name}_{statistic}")
                metric = metric if index == 0 else replace(metric, role=Role.WATCH)
                draft.readings.append(metric.reading((value,), where=where, **placed))
    return draft


def _model(document: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    endpoint, metadata = mapping(asked.get("endpoint")), mapping(document.get("metadata"))
    items = [mapping(item).get("name") for item in listed(mapping(asked.get("models")).get("items"))]
    names = [*items, *listed(asked.get("model_names")), *listed(endpoint.get("model_names")), asked.get("model"),
             asked.get("formatted_model_name"), metadata.get("model"), document.get("model")]  # fmt: skip
    return next((text for name in names if (text := text_of(name))), None)


def _load(asked: Mapping[str, Any]) -> dict[str, Any]:
    """How the server was loaded: in a place that differs from version to version."""
    found: dict[str, Any] = {}
    phases = [phase for said in listed(asked.get("phases")) if not (phase := mapping(said)).get("exclude_from_results")]
    stimulus = mapping(mapping(asked.get("perf_analyzer")).get("stimulus"))
    for place in (asked, mapping(asked.get("loadgen")), stimulus, *phases):
        found |= scalars(place, ("concurrency", "request_rate", "request_count", "num_prompts"))
    tokens = mapping(mapping(asked.get("input")).get("prompt"))
    lengths = {"input_tokens": mapping(tokens.get("input_tokens")).get("mean"),
               "output_tokens": mapping(tokens.get("output_tokens")).get("mean")}  # fmt: skip
    return {**found, **scalars(lengths)}


FORMAT = Format(
    name="aiperf",
    title="AIPerf and GenAI-Perf reports (profile_export_*.json)",
    detect=detect,
    read=read,
    identity="the model, with concurrency, request rate and lengths",
    metrics=METRICS,
)
