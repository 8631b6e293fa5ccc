"""The serving benchmarks of vLLM (`vllm bench serve|throughput|latency`) and SGLang (`sglang.bench_serving`)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Metric
from backend.importers.values import is_scalar, mapping, moment_of, number, numbers, text_of

REQUESTS, TOKENS = "1/s", "tokens/s"
UP, DOWN = Direction.HIGHER, Direction.LOWER
# What is measured; everything else is configuration, or counts what was asked for.
THROUGHPUTS = {
    "request_throughput": Metric("request_throughput", REQUESTS, UP),
    "requests_per_second": Metric("request_throughput", REQUESTS, UP),
    "output_throughput": Metric("output_throughput", TOKENS, UP),
    "total_token_throughput": Metric("total_token_throughput", TOKENS, UP),
    "total_throughput": Metric("total_token_throughput", TOKENS, UP),
    "tokens_per_second": Metric("total_token_throughput", TOKENS, UP),
    "request_goodput": Metric("request_goodput", REQUESTS, UP, Role.WATCH),
    "input_throughput": Metric("input_throughput", TOKENS, UP, Role.WATCH),
    "accept_length": Metric("accept_length", "tokens", UP, Role.WATCH),
    "elapsed_time": Metric("elapsed_s", "s", DOWN, Role.WATCH),
    "avg_latency": Metric("latency_s", "s", DOWN),
}
LATENCIES = {
    f"{statistic}_{foreign}_ms": Metric(f"{statistic}_{ours}_ms", "ms", DOWN)
    for statistic in ("mean", "median", "p50", "p90", "p95", "p99")
    for foreign, ours in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2el", "e2el"), ("e2e_latency", "e2el"))
}
OPTIONAL = {"accept_length", "request_goodput"}
GATES = {"median_ttft_ms", "median_tpot_ms", "median_itl_ms"}
METRICS = THROUGHPUTS | {
    key: metric if metric.name in GATES else replace(metric, role=Role.WATCH) for key, metric in LATENCIES.items()
}
CONFIGURATION = ("backend", "endpoint_type", "num_prompts", "request_rate", "max_concurrency", "burstiness",
                 "tensor_parallel_size", "input_len", "output_len", "batch_size", "dtype", "dataset_name",
                 "random_input_len", "random_output_len", "random_range_ratio", "sharegpt_output_len", "label",
                 "tp", "pp", "dp", "ep")  # fmt: skip
SGLANG_ONLY = ("total_output_tokens_retokenized", "server_info", "median_e2e_latency_ms", "total_throughput")
# What a serving benchmark found or when: of a row of a sweep, all else is what the sweep varied.
FOUND = re.compile(
    r".*_ms|std_.*|total_.*|max_concurrent_requests|max_output_tokens_per_s|date|duration|completed|failed|rtfx|"
    r"run_number|tokenizer_id|model_id|spec_decode_.*|errors|start_times|ttfts|itls|.*_lens"
)
NO_MODEL = "names no model, so results of different models would be mixed; state it with --variant model=NAME"


def detect_vllm(file: ResultFile) -> bool:
    return any(key in file.first for key in METRICS) and not detect_sglang(file) and not _has_units(file)


def detect_sglang(file: ResultFile) -> bool:
    measured = "request_throughput" in file.first or "output_throughput" in file.first
    return measured and any(key in file.first for key in SGLANG_ONLY)


def _has_units(file: ResultFile) -> bool:
    """AIPerf names some of its metrics alike, each an object with its unit."""
    return isinstance(file.first.get("request_throughput"), dict)


def read_vllm(file: ResultFile, context: Context) -> Draft:
    return _read(file, context, "vllm")


def read_sglang(file: ResultFile, context: Context) -> Draft:
    return _read(file, context, "sglang")


def _read(file: ResultFile, context: Context, tool: str) -> Draft:
    """One result, a list of them, or one a line. Throughput and medians are gates, tails are watched."""
    draft = Draft()
    for where, row in file.rows:
        if isinstance(row, Unreadable):
            draft.refuse(where, str(row))
        elif not isinstance(row, dict) or not any(key in row for key in METRICS):
            draft.refuse(where, f"no key of {tool}'s benchmark in it (request_throughput, median_ttft_ms …)")
        else:
            _read_result(where, row, context, tool, draft)
    return draft


def _read_result(where: str, row: Mapping[str, Any], context: Context, tool: str, draft: Draft) -> None:
    model = _model(row)
    if model is None and "model" not in context.variant:
        draft.refuse(where, NO_MODEL)
        return
    variant = {key: _written(row[key]) for key in _configuration(row) if is_scalar(_written(row.get(key)))}
    placed: dict[str, Any] = {
        "where": where,
        "benchmark": f"{tool}.{_kind(row)}",
        "suite": tool,
        "variant": variant if model is None else {("model_id" if "model_id" in row else "model"): model, **variant},
        "at": moment_of(row.get("date")),
        "turn": str(row["run_number"]) if "run_number" in row else None,
    }
    if number(row.get("completed")) == 0:
        draft.readings.append(METRICS["request_throughput"].failed("no request was completed", **placed))
        return
    seen: set[str] = set()
    for key, metric in METRICS.items():
        if key not in row or metric.name in seen or (row[key] is None and key in OPTIONAL):
            continue
        value = number(row[key])
        if value is None:
            draft.refuse(f"{where} {key}", f"{row[key]!r} is no finite number")
            continue
        seen.add(metric.name)
        samples = numbers(row.get("latencies")) or () if key == "avg_latency" else ()
        draft.readings.append(metric.reading(() if samples else (value,), samples=samples, **placed))


def _kind(row: Mapping[str, Any]) -> str:
    if "request_throughput" in row or "median_ttft_ms" in row:
        return "serve"
    return "latency" if "avg_latency" in row else "throughput"


def _configuration(row: Mapping[str, Any]) -> Iterable[str]:
    """Configuration of a run. A row of `vllm bench sweep` (it numbers its runs) adds what the sweep varied."""
    swept = [key for key in row if key not in METRICS and not FOUND.fullmatch(key)] if "run_number" in row else []
    return dict.fromkeys((*CONFIGURATION, *swept))


def _model(row: Mapping[str, Any]) -> str | None:
    server = mapping(row.get("server_info"))
    named = (row.get("model_id"), row.get("model"), server.get("model_path"), server.get("served_model_name"))
    return next((text for value in named if (text := text_of(value))), None)


def _written(value: Any) -> Any:
    """An unlimited rate is a configuration as any other."""
    return "inf" if value == float("inf") else value


IDENTITY = "the kind of benchmark, the model, and how it was loaded (rate, concurrency, lengths, dataset …)"
FORMATS = (
    Format(
        name="sglang",
        title="SGLang bench_serving, one JSON object a line",
        detect=detect_sglang,
        read=read_sglang,
        identity=IDENTITY,
        metrics=METRICS,
        suffixes=(".json", ".jsonl"),
    ),
    Format(
        name="vllm",
        title="vLLM bench JSON (serve, throughput, latency)",
        detect=detect_vllm,
        read=read_vllm,
        identity=IDENTITY,
        metrics=METRICS,
        suffixes=(".json", ".jsonl"),
    ),
)
