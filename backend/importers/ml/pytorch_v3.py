"""Records of PyTorch's benchmark database, `oss_ci_benchmark_v3`."""

import json
from collections.abc import Mapping
from typing import Any

from backend.contract import Direction, Role
from backend.importers.file import ResultFile, Unreadable
from backend.importers.model import Context, Draft, Format, Reading
from backend.importers.values import is_scalar, listed, mapping, moment_of, numbers, sha_of, text_of


def detect(file: ResultFile) -> bool:
    return isinstance(file.first.get("metric"), dict)


def read(file: ResultFile, context: Context) -> Draft:
    """A JSON list, one object, or one object a line. Several values are samples."""
    draft = Draft()
    for where, record in file.rows:
        if isinstance(record, Unreadable):
            draft.refuse(where, str(record))
            continue
        if not isinstance(record, dict) or "metric" not in record:
            draft.refuse(where, "expected an object with `metric`, as benchmark database v3 has it")
            continue
        metric, benchmark = mapping(record.get("metric")), mapping(record.get("benchmark"))
        extra = mapping(metric.get("extra_info"))
        values = numbers(metric.get("benchmark_values"))
        if not isinstance(metric.get("name"), str) or not values:
            draft.refuse(where, "needs metric.name and metric.benchmark_values, a list of finite numbers")
            continue
        runner = mapping(next(iter(listed(record.get("runners"))), None))
        stated = extra.get("direction")
        draft.readings.append(
            Reading(
                where=where,
                benchmark=str(benchmark.get("name") or record.get("name") or "benchmark"),
                variant=_variant(record, benchmark, extra),
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
                environment=_environment(record, runner),
            )
        )
    return draft


def _variant(record: Mapping[str, Any], benchmark: Mapping[str, Any], of_metric: Mapping[str, Any]) -> dict[str, Any]:
    model = mapping(record.get("model"))
    found = {
        "model": model.get("name"),
        "backend": model.get("backend"),
        "mode": benchmark.get("mode"),
        "dtype": benchmark.get("dtype"),
    }
    for key, value in mapping(record.get("inputs")).items():
        found[key] = mapping(value).get("dtype") or json.dumps(mapping(value).get("extra_info") or "", sort_keys=True)
    for key, value in mapping(benchmark.get("extra_info")).items():
        found.setdefault(key, _plain(value))
    for key in ("input_shape", "aggregation"):  # TritonBench tells its inputs apart here
        found.setdefault(key, _plain(of_metric.get(key)))
    return {key: value for key, value in found.items() if value not in (None, "", '""', "null")}


def _plain(value: Any) -> Any:
    return value if value is None or is_scalar(value) else json.dumps(value, sort_keys=True)


def _environment(record: Mapping[str, Any], runner: Mapping[str, Any]) -> dict[str, Any]:
    versions = {
        key: str(mapping(value).get("version") or mapping(value).get("sha") or "")
        for key, value in mapping(record.get("dependencies")).items()
    }
    return {**versions, **{key: runner[key] for key in ("gpu_info", "gpu_count", "cpu_info") if runner.get(key)}}


FORMAT = Format(
    name="pytorch-v3",
    title="PyTorch benchmark database v3 records (JSON, or one object a line)",
    detect=detect,
    read=read,
    identity="the benchmark, with model, backend, mode, dtype, inputs and its further information",
    suffixes=(".json", ".jsonl"),
)
