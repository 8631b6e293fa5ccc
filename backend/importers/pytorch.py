"""PyTorch's benchmark database records (v3), TorchBench userbenchmarks, and the serving benchmark of vLLM."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from backend.contract import Direction, Role
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


def read_v3(name: str, data: bytes, context: Context) -> Draft:
    """Records of `oss_ci_benchmark_v3`: a JSON list, one object, or one object a line. Several values are samples."""
    draft = Draft()
    for where, record in _v3_records(name, data, draft):
        metric, model = mapping(record.get("metric")), mapping(record.get("model"))
        benchmark, extra = mapping(record.get("benchmark")), mapping(mapping(record.get("metric")).get("extra_info"))
        values = numbers(metric.get("benchmark_values"))
        if not isinstance(metric.get("name"), str) or not values:
            draft.refuse(where, "needs metric.name and metric.benchmark_values, a list of finite numbers")
            continue
        runner = _runner(record)
        stated = extra.get("direction")
        draft.readings.append(
            Reading(
                where=where,
                benchmark=str(benchmark.get("name") or record.get("name") or "benchmark"),
                variant=_v3_variant(record, benchmark, model),
                metric=metric["name"],
                unit=str(extra.get("unit", "")),
                direction=Direction(stated) if stated in {"lower", "higher"} else None,
                role=Role(extra["role"]) if extra.get("role") in {str(role) for role in Role} else Role.GATE,
                samples=values,
                testbed=text_of(runner.get("type")),
                worker=text_of(runner.get("name")),
                commit=sha_of(record.get("head_sha")),
                branch=text_of(record.get("head_branch")),
                at=moment_of(record.get("timestamp")),
                environment=_v3_environment(record),
            )
        )
    if not draft.readings and not draft.problems:
        raise Unreadable(f"{name}: no record of benchmark database v3 in it")
    return draft


def _v3_records(name: str, data: bytes, draft: Draft) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        document = json.loads(data)
        listed = document if isinstance(document, list) else [document]
        rows = [(f"{name} [{index}]", row) for index, row in enumerate(listed)]
    except (ValueError, RecursionError):
        rows = []
        for line_number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if not line.strip():
                continue
            try:
                rows.append((f"{name}:{line_number}", json.loads(line)))
            except (ValueError, RecursionError) as error:
                draft.refuse(f"{name}:{line_number}", f"no JSON: {error}")
    for where, row in rows:
        if isinstance(row, dict) and "metric" in row:
            yield where, row
        else:
            draft.refuse(where, "expected an object with `metric`, as benchmark database v3 has it")


def _v3_variant(record: Mapping[str, Any], benchmark: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "model": model.get("name"),
        "backend": model.get("backend"),
        "mode": benchmark.get("mode"),
        "dtype": benchmark.get("dtype"),
    }
    for key, value in mapping(record.get("inputs")).items():
        found[key] = mapping(value).get("dtype") or json.dumps(mapping(value).get("extra_info") or "", sort_keys=True)
    for key, value in mapping(benchmark.get("extra_info")).items():
        plain = isinstance(value, str | int | float | bool)
        found.setdefault(key, value if plain else json.dumps(value, sort_keys=True))
    return {key: value for key, value in found.items() if value not in (None, "", '""')}


def _runner(record: Mapping[str, Any]) -> Mapping[str, Any]:
    runners = record.get("runners")
    return mapping(runners[0]) if isinstance(runners, list) and runners else {}


def _v3_environment(record: Mapping[str, Any]) -> dict[str, Any]:
    versions = {
        key: str(mapping(value).get("version") or mapping(value).get("sha") or "")
        for key, value in mapping(record.get("dependencies")).items()
    }
    runner = _runner(record)
    return {**versions, **{key: runner[key] for key in ("gpu_info", "gpu_count", "cpu_info") if runner.get(key)}}


def read_userbenchmark(name: str, data: bytes, context: Context) -> Draft:
    """TorchBench: {name, environ, metrics}, flat numbers by name. Unit and direction are read from the names."""
    document = decode(data, name)
    if not isinstance(document, dict) or not isinstance(document.get("metrics"), dict):
        raise Unreadable(f"{name}: expected TorchBench's object with `name`, `environ` and an object `metrics`")
    draft = Draft()
    environment = mapping(document.get("environ"))
    commit = sha_of(environment.get("pytorch_git_version"))
    for key, raw in document["metrics"].items():
        value = number(mapping(raw).get("value") if isinstance(raw, dict) else raw)
        if value is None:
            draft.refuse(f"{name} metrics[{json.dumps(key)}]", f"{raw!r} is no finite number")
            continue
        draft.readings.append(
            Reading(
                where=f"{name} metrics[{json.dumps(key)}]",
                benchmark=str(document.get("name") or "userbenchmark"),
                variant={"case": key},
                metric=_last_words(key),
                unit=_unit_in(key),
                values=(value,),
                suite="torchbench",
                commit=commit,
                environment={str(k): v for k, v in environment.items() if isinstance(v, str | int | float)},
            )
        )
    return draft


def _unit_in(key: str) -> str:
    lowered = key.lower()
    for ending, unit in (("_ms", "ms"), ("_us", "us"), ("_ns", "ns"), ("_seconds", "s"), ("_sec", "s"), ("_gb", "GB"),
                         ("_mb", "MB"), ("_bytes", "B")):  # fmt: skip
        if lowered.endswith(ending):
            return unit
    return ""


def _last_words(key: str) -> str:
    """What is measured, without which case: `…, latency` and `resnet50[x]-latency` are both `latency`."""
    for separator in (", ", "-", ":", "/", "]"):
        key = key.rsplit(separator, 1)[-1]
    return key.strip() or "value"


# vLLM's and SGLang's serving benchmark: what is a measurement in it; everything else is configuration.
SERVING: dict[str, tuple[str, str, Direction]] = {
    "request_throughput": ("request_throughput", "1/s", Direction.HIGHER),
    "output_throughput": ("output_throughput", "tokens/s", Direction.HIGHER),
    "total_token_throughput": ("total_token_throughput", "tokens/s", Direction.HIGHER),
    "request_goodput": ("request_goodput", "1/s", Direction.HIGHER),
    "elapsed_time": ("elapsed_s", "s", Direction.LOWER),
    "requests_per_second": ("request_throughput", "1/s", Direction.HIGHER),
    "tokens_per_second": ("total_token_throughput", "tokens/s", Direction.HIGHER),
    "avg_latency": ("latency_s", "s", Direction.LOWER),
} | {
    f"{statistic}_{latency}_ms": (f"{statistic}_{latency}_ms", "ms", Direction.LOWER)
    for statistic in ("mean", "median", "p50", "p90", "p95", "p99")
    for latency in ("ttft", "tpot", "itl", "e2el")
}
GATES = {"request_throughput", "output_throughput", "total_token_throughput", "median_ttft_ms", "median_tpot_ms",
         "median_itl_ms", "latency_s"}  # fmt: skip
CONFIGURATION = ("model_id", "model", "backend", "endpoint_type", "num_prompts", "request_rate", "max_concurrency",
                 "burstiness", "tensor_parallel_size", "input_len", "output_len", "batch_size", "dtype")  # fmt: skip


def read_vllm(name: str, data: bytes, context: Context) -> Draft:
    """`vllm bench serve|throughput|latency --save-result`: throughput and medians are gates, tails are watched."""
    document = decode(data, name)
    rows = document if isinstance(document, list) else [document]
    draft = Draft()
    for index, row in enumerate(rows):
        where = f"{name} [{index}]" if isinstance(document, list) else name
        if not isinstance(row, dict) or not any(key in row for key in SERVING):
            draft.refuse(where, "no key of vLLM's benchmark in it (request_throughput, median_ttft_ms, avg_latency …)")
            continue
        kind = "serve" if "request_throughput" in row else "latency" if "avg_latency" in row else "throughput"
        variant = {key: row[key] for key in CONFIGURATION if isinstance(row.get(key), str | int | float | bool)}
        common: dict[str, Any] = {"where": where, "benchmark": f"vllm.{kind}", "suite": "vllm", "variant": variant,
                                  "at": moment_of(row.get("date"))}  # fmt: skip
        if number(row.get("completed")) == 0:
            draft.readings.append(
                Reading(metric="request_throughput", unit="1/s", direction=Direction.HIGHER,
                        failed="no request was completed", **common)
            )  # fmt: skip
            continue
        for key, (metric, unit, direction) in SERVING.items():
            if key not in row:
                continue
            value = number(row[key])
            if value is None:
                draft.refuse(f"{where} {key}", f"{row[key]!r} is no finite number")
                continue
            samples = numbers(row.get("latencies")) or () if key == "avg_latency" else ()
            draft.readings.append(
                Reading(metric=metric, unit=unit, direction=direction,
                        role=Role.GATE if metric in GATES else Role.WATCH,
                        values=() if samples else (value,), samples=samples, **common)
            )  # fmt: skip
    if not draft.readings and len(draft.problems) == len(rows):
        raise Unreadable(f"{draft.problems[0]}" if draft.problems else f"{name}: empty")
    return draft
