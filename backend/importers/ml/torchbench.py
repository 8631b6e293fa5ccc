"""Output of TorchBench's userbenchmarks and of TritonBench: flat numbers by name, beside the environment."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric, Reading
from backend.importers.values import mapping, number, sha_of

UP, DOWN = Direction.HIGHER, Direction.LOWER
# What both call what they measure, and the unit they measure it in, which their files do not say.
METRICS = {
    "latency": Metric("latency", "ms", DOWN),
    "latencies": Metric("latency", "ms", DOWN),
    "walltime": Metric("walltime", "ms", DOWN),
    "compile_time": Metric("compile_time", "ms", DOWN, Role.WATCH),
    "cpu_peak_mem": Metric("cpu_peak_mem", "GB", DOWN),
    "gpu_peak_mem": Metric("gpu_peak_mem", "GB", DOWN),
    "mem_footprint": Metric("mem_footprint", "1", UP, Role.WATCH),
    "tflops": Metric("tflops", "TFLOPS", UP),
    "flops": Metric("flops", "FLOPS", UP),
    "gbps": Metric("gbps", "GB/s", UP),
    "throughput": Metric("throughput", "1/s", UP),
    "speedup": Metric("speedup", "1", UP, Role.WATCH),
    "pt2_compilation_time": Metric("pt2_compilation_time", "s", DOWN, Role.WATCH),
    "pt2_graph_breaks": Metric("pt2_graph_breaks", "1", DOWN, Role.WATCH),
}
ENDINGS = {"_ms": "ms", "_us": "us", "_ns": "ns", "_seconds": "s", "_sec": "s", "_gb": "GB", "_mb": "MB", "_bytes": "B"}
# `tritonbench_softmax_fwd[x_4096-triton]_latency` is of one input, `tritonbench_softmax_fwd[triton]-speedup` of all.
TRITON = re.compile(r"tritonbench_(?P<op>\w+?)_(?P<mode>fwd|bwd|fwd_bwd|fwd_no_grad)"
                    r"\[(?:x_(?P<input>.*)-)?(?P<backend>\w+)\][-_](?P<metric>.+)")  # fmt: skip
NO_MEASUREMENT = ("-pass", "-target")
WORD = re.compile(r"(?!nan$|-?inf)[a-z][a-z_ ]+", re.IGNORECASE)


def detect_torchbench(file: ResultFile) -> bool:
    return "metrics" in file.first and "environ" in file.first


def detect_tritonbench(file: ResultFile) -> bool:
    return isinstance(file.first.get("metrics"), dict) and isinstance(file.first.get("env"), dict)


def read_torchbench(file: ResultFile, context: Context) -> Draft:
    """{name, environ, metrics}. What is measured is the last word of a metric's name, the case all of it."""
    document = file.object_with("TorchBench's object with `name`, `environ` and an object `metrics`", metrics=dict)
    environment = mapping(document.get("environ"))
    draft = Draft()
    for where, key, value in _values(file, document["metrics"], draft):
        placed: dict[str, Any] = {
            "where": where,
            "benchmark": str(document.get("name") or "userbenchmark"),
            "variant": {"case": key},
            "suite": "torchbench",
            "commit": sha_of(environment.get("pytorch_git_version")),
            "environment": _plain(environment),
        }
        draft.readings.append(_reading(_metric(_last_words(key)), value, placed))
    return draft


def read_tritonbench(file: ResultFile, context: Context) -> Draft:
    """{name, env, metrics}: operator, direction, input and backend stand in each metric's name."""
    document = file.object_with("TritonBench's object with objects `env` and `metrics`", metrics=dict, env=dict)
    environment = document["env"]
    draft = Draft()
    for where, key, value in _values(file, document["metrics"], draft):
        found = TRITON.fullmatch(key)
        if found is None:
            benchmark, variant, metric = str(document.get("name") or "tritonbench"), {"case": key}, _last_words(key)
        else:
            parts = {name: text.strip() for name, text in found.groupdict().items() if text}
            benchmark, metric = parts.pop("op"), parts.pop("metric")
            variant = parts
        placed: dict[str, Any] = {
            "where": where,
            "benchmark": benchmark,
            "variant": variant,
            "suite": "tritonbench",
            "commit": sha_of(environment.get("triton_commit")) or sha_of(environment.get("pytorch_commit")),
            "environment": _plain(environment),
        }
        draft.readings.append(_reading(_metric(metric), value, placed))
    return draft


def _values(file: ResultFile, metrics: Mapping[str, Any], draft: Draft) -> list[tuple[str, str, float | str]]:
    """Where each entry stands, its name, and its number, or the word that stands for it where a test ended otherwise
    (`err`, `not_implemented`)."""
    found: list[tuple[str, str, float | str]] = []
    for key, said in metrics.items():
        where = f"{file.name} metrics[{json.dumps(key)}]"
        raw = mapping(said).get("value") if isinstance(said, dict) else said
        value = number(raw)
        if key.endswith(NO_MEASUREMENT):
            draft.note("entries that end with -pass or -target are left out: they measure nothing")
        elif value is None and not (isinstance(raw, str) and WORD.fullmatch(raw)):
            draft.refuse(where, f"{raw!r} is no finite number")
        else:
            found.append((where, key, str(raw) if value is None else value))
    return found


def _reading(metric: Metric, value: float | str, placed: dict[str, Any]) -> Reading:
    if not isinstance(value, str):
        return metric.reading((value,), **placed)
    return replace(metric, direction=metric.direction or DOWN).failed(f"the benchmark says {value!r}", **placed)


def _metric(name: str) -> Metric:
    """The known metric that a name such as `eval_latency` ends with, under its own name."""
    lowered = name.lower()
    known = METRICS.get(lowered)
    if known is None and (alike := METRICS.get(lowered.rpartition("_")[2])):
        known = replace(alike, name=name)
    unit = next((unit for ending, unit in ENDINGS.items() if lowered.endswith(ending)), "")
    return known or Metric(name, unit)


def _last_words(key: str) -> str:
    """The metric of a label, without its case: `…, latency` and `resnet50[x]-latency` are both `latency`."""
    for separator in (", ", "-", ":", "/", "]", "="):
        key = key.rsplit(separator, 1)[-1]
    return key.strip().strip("_") or "value"


def _plain(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in environment.items() if isinstance(value, str | int | float)}


FORMATS = (
    Format(
        name="tritonbench",
        title="TritonBench JSON (`env` and `metrics`)",
        detect=detect_tritonbench,
        read=read_tritonbench,
        identity="the operator, with mode (fwd, bwd), input and backend",
        metrics=METRICS,
    ),
    Format(
        name="torchbench",
        title="TorchBench userbenchmark JSON",
        detect=detect_torchbench,
        read=read_torchbench,
        identity="the userbenchmark, with the whole name of the metric as its case",
        metrics=METRICS,
    ),
)
