"""What TorchBench's userbenchmarks and TritonBench write: flat numbers by name, beside the environment."""

import json
import re
from collections.abc import Mapping
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile
from backend.importers.model import Context, Draft, Format, Metric
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


def detect_torchbench(file: ResultFile) -> bool:
    return "metrics" in file.first and "environ" in file.first


def detect_tritonbench(file: ResultFile) -> bool:
    return isinstance(file.first.get("metrics"), dict) and isinstance(file.first.get("env"), dict)


def read_torchbench(file: ResultFile, context: Context) -> Draft:
    """{name, environ, metrics}. What is measured is the last word of a metric's name, the case all of it."""
    document = file.object_with("TorchBench's object with `name`, `environ` and an object `metrics`", metrics=dict)
    environment = mapping(document.get("environ"))
    draft = Draft()
    for where, key, value in _numbers(file, document["metrics"], draft):
        draft.readings.append(
            _metric(_last_words(key)).reading(
                (value,),
                where=where,
                benchmark=str(document.get("name") or "userbenchmark"),
                variant={"case": key},
                suite="torchbench",
                commit=sha_of(environment.get("pytorch_git_version")),
                environment=_plain(environment),
            )
        )
    return draft


def read_tritonbench(file: ResultFile, context: Context) -> Draft:
    """{name, env, metrics}: operator, direction, input and backend stand in each metric's name."""
    document = file.object_with("TritonBench's object with objects `env` and `metrics`", metrics=dict, env=dict)
    environment = document["env"]
    draft = Draft()
    for where, key, value in _numbers(file, document["metrics"], draft):
        found = TRITON.fullmatch(key)
        if found is None:
            benchmark, variant, metric = str(document.get("name") or "tritonbench"), {"case": key}, _last_words(key)
        else:
            parts = {name: text.strip() for name, text in found.groupdict().items() if text}
            benchmark, metric = parts.pop("op"), parts.pop("metric")
            variant = parts
        draft.readings.append(
            _metric(metric).reading(
                (value,),
                where=where,
                benchmark=benchmark,
                variant=variant,
                suite="tritonbench",
                commit=sha_of(environment.get("triton_commit")) or sha_of(environment.get("pytorch_commit")),
                environment=_plain(environment),
            )
        )
    return draft


def _numbers(file: ResultFile, metrics: Mapping[str, Any], draft: Draft) -> list[tuple[str, str, float]]:
    found = []
    for key, raw in metrics.items():
        where = f"{file.name} metrics[{json.dumps(key)}]"
        value = number(mapping(raw).get("value") if isinstance(raw, dict) else raw)
        if key.endswith(NO_MEASUREMENT):
            draft.note("entries that end with -pass or -target are left out: they measure nothing")
        elif value is None:
            draft.refuse(where, f"{raw!r} is no finite number")
        else:
            found.append((where, key, value))
    return found


def _metric(name: str) -> Metric:
    known = METRICS.get(name.lower())
    unit = next((unit for ending, unit in ENDINGS.items() if name.lower().endswith(ending)), "")
    return known or Metric(name, unit)


def _last_words(key: str) -> str:
    """What is measured, without which case: `…, latency` and `resnet50[x]-latency` are both `latency`."""
    for separator in (", ", "-", ":", "/", "]"):
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
