"""Export as PyTorch's benchmark database v3: one record per metric. What failed is left out, never written as 0."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any


def records(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of a run; unit, direction and role, which the schema lacks, go to the metric's extra_info."""
    for result in run["results"]:
        if result["status"] != "ok":
            continue
        for measurement in result.get("measurements", ()):
            yield _record(run, result, measurement)


def _record(run: Mapping[str, Any], result: Mapping[str, Any], measurement: Mapping[str, Any]) -> dict[str, Any]:
    environment, variant = run.get("environment", {}), result["variant"]
    started = run.get("started_at")
    return {
        "timestamp": int(datetime.fromisoformat(started).timestamp()) if started else 0,
        "schema_version": "v3",
        "name": run["suite"],
        "repo": run["project"],
        "head_branch": run.get("branch") or "",
        "head_sha": run["commit"],
        "workflow_id": 0,
        "run_attempt": run.get("attempt", 1),
        "job_id": 0,
        "runners": [_runner(run, environment)],
        "benchmark": {
            "name": result["benchmark"],
            "mode": result.get("mode") or "",
            "dtype": str(variant.get("dtype", result.get("config", {}).get("dtype", ""))),
            "extra_info": _texts(
                {"preset": result["preset"], "suite_version": run.get("suite_version", ""), **variant}
            ),
        },
        "model": {
            "name": str(variant.get("model", variant.get("rung", result["benchmark"]))),
            "type": "tidemark",
            "backend": result.get("backend") or "",
            "origins": [],
            "extra_info": {},
        },
        "inputs": {},
        "dependencies": {"pytorch": _pytorch(environment)},
        "metric": {
            "name": measurement["metric"],
            "benchmark_values": list(measurement.get("processes") or [measurement["value"]]),
            "target_value": None,
            "extra_info": _texts({name: measurement[name] for name in ("unit", "direction", "role")}),
        },
    }


def _runner(run: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": run.get("worker") or "",
        "type": run["testbed"],
        "cpu_info": environment.get("cpu", ""),
        "cpu_count": environment.get("cpu_count", 0),
        "gpu_info": environment.get("accelerator", ""),
        "gpu_count": environment.get("accelerator_count", 0),
        "gpu_mem_info": "",
        "extra_info": {"environment": str(environment.get("hash", ""))},
    }


def _pytorch(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "repo": "pytorch/pytorch",
        "branch": "",
        "sha": str(environment.get("torch_git", "")),
        "version": str(environment.get("torch", "")),
        "extra_info": {},
    }


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """The schema's extra_info maps text to text."""
    return {key: str(value) for key, value in values.items()}


def as_lines(run: Mapping[str, Any]) -> str:
    """One JSON record per line, as its uploader reads them."""
    return "".join(json.dumps(record, allow_nan=False) + "\n" for record in records(run))
