"""Diagnostic experiments: the same step with something left out or made larger, to see what limits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.analysis import measurements
from benchmarks.registry import Selected, UnknownVariant
from benchmarks.running.launch import CPU_ENVIRONMENT, Launcher
from benchmarks.spec import Status

EXPERIMENTS = {
    "parts": "forward only, forward and backward, the full step",
    "batch": "batch sizes from half to four times: flat time means launch-bound, proportional means the device is full",
    "communication": "a distributed step with and without communication",
    "layer": "one layer against all of them: what lies outside of the layers",
    "overhead": "what marks, clock readings and events of the harness cost a step",
}

BATCH_FACTORS = (0.5, 1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOutcome:
    """One arm of an experiment."""

    name: str
    figures: Mapping[str, float]
    error: str | None = None


def run_experiment(name: str, selected: Selected, implementation: str | None) -> list[ArmOutcome]:
    """Runs every arm in a fresh process."""
    arms = _arms(name, selected)
    launcher = Launcher()
    return [_outcome(arm, config, selected, implementation, launcher, name) for arm, config in arms]


def _arms(name: str, selected: Selected) -> list[tuple[str, dict[str, Any]]]:
    config = dict(selected.case.config)
    if name == "batch":
        key = next((key for key in ("batch_size", "tokens") if key in config), None)
        if key is None:
            raise UnknownVariant(f"{selected.benchmark.id} has no batch size to vary")
        return [
            (f"{key}={v}", {**config, key: v})
            for v in dict.fromkeys(max(1, int(config[key] * f)) for f in BATCH_FACTORS)
        ]
    if name == "layer":
        if "n_layer" not in config:
            raise UnknownVariant(f"{selected.benchmark.id} has no layers to leave out")
        return [(f"n_layer={n}", {**config, "n_layer": n}) for n in (1, config["n_layer"])]
    if name == "communication" and "strategy" not in config:
        raise UnknownVariant(f"{selected.benchmark.id} does not communicate; gpt.ddp does")
    return [("step", config)]


def job_of(
    selected: Selected,
    config: Mapping[str, Any],
    tasks: Sequence[str],
    *,
    implementation: str | None = None,
    preset: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A measuring process outside of any run: one case, with sizes and tasks of the caller's own."""
    benchmark = selected.benchmark
    return {
        "benchmark": benchmark.id,
        "workload": benchmark.workload,
        "variant": dict(selected.case.variant),
        "config": dict(config),
        "preset": preset or ("cpu" if config.get("device", "cpu") == "cpu" else "full"),
        "implementation": implementation,
        "builtin": benchmark.builtin,
        "process": 0,
        "processes": 1,
        "seed": 1234,
        "tasks": list(tasks),
        "extra": dict(extra or {}),
    }


def environment_of(config: Mapping[str, Any]) -> Mapping[str, str]:
    """The variables that a measuring process of this case needs."""
    return CPU_ENVIRONMENT if config.get("device", "cpu") == "cpu" else {}


def _outcome(
    arm: str, config: Mapping[str, Any], selected: Selected, implementation: str | None, launcher: Launcher, name: str
) -> ArmOutcome:
    case = selected.case
    job = job_of(selected, config, ["overhead" if name == "overhead" else "time"], implementation=implementation)
    report = launcher.run(job, case.timeout_s, environment_of(config)).report
    if report["status"] != Status.OK:
        return ArmOutcome(name=arm, figures={}, error=f"{report['status']}: {report['error']}")
    if "overhead" in report:
        return ArmOutcome(name=arm, figures=report["overhead"])
    value = {m["metric"]: m["value"] for m in measurements.of_reports([report])}
    return ArmOutcome(name=arm, figures=_figures(name, value, report))


def _figures(name: str, value: Mapping[str, float], report: Mapping[str, Any]) -> dict[str, float]:
    if name == "communication":
        exposed = value["exposed_communication_ms"]
        silent = value["step_ms"] - exposed
        return {"with_ms": value["step_ms"], "without_ms": silent, "exposed_ms": exposed}
    if name == "parts":
        forward = value.get("forward_ms", 0.0) + value.get("data_wait_ms", 0.0)
        both = forward + value.get("backward_ms", 0.0)
        return {"forward_ms": forward, "forward_backward_ms": both, "full_step_ms": value["step_ms"]}
    units = float(report["work"]["units"])
    step_ms = value["step_ms"]
    figures = {"step_ms": step_ms, "units_per_s": 1000 * units / step_ms}
    if "step_over_yardstick" in value:
        figures["step_over_yardstick"] = value["step_over_yardstick"]
        figures["cost_per_unit"] = value["step_over_yardstick"] / units
    return figures
