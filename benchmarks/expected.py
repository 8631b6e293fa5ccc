"""How long a process of each case takes: learnt from earlier runs, and estimated until one was seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.registry import Selected
from benchmarks.spec import Preset, slug_of

FILE = Path(__file__).with_name("expected_times.json")
"""Seconds by accelerator (or `cpu`), preset and case; `python -m benchmarks learn` writes it."""

CPU = "cpu"
"""Represents every CPU: for the cpu preset only the order of magnitude of seconds matters."""

START_S = {Preset.CPU: 3.0, Preset.SMOKE: 12.0, Preset.FULL: 30.0}
"""Estimate of one process: start of torch, check, warm-up, measuring, and the readings before and after."""
COMPILING_S = {"inductor": 50.0, "flex": 25.0, "best": 25.0}
"""Seconds that compiling adds, by backend."""
COMPILING_A_KERNEL_S = 20.0
AUTOTUNING_S = 150.0
SWEEP_S = 15.0
"""Seconds of a sweep of sizes over ranks besides those of each size."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds of one process, and whether a run has shown them."""

    seconds: float
    learnt: bool


Times = Mapping[str, Mapping[str, Mapping[str, float]]]


def load(path: Path = FILE) -> Times:
    """Load the expected times learnt so far."""
    found: Times = json.loads(path.read_text())
    return found


def expected(selected: Selected, preset: Preset, times: Times, machine: str) -> Expected:
    """Seconds of one process of this case on this machine."""
    seen = times.get(machine, {}).get(preset, {}).get(selected.name)
    return Expected(seen, True) if seen is not None else Expected(estimate(selected, preset), False)


def estimate(selected: Selected, preset: Preset) -> float:
    """Seconds of one process of a case that no run has shown yet."""
    config = selected.case.config
    if "seconds_per_size" in config:
        return START_S[preset] / 2 + SWEEP_S + float(config["seconds_per_size"]) * len(config["sizes"])
    if preset is Preset.CPU:
        return START_S[preset]
    tuned = str(config.get("compile", "")).startswith("max-autotune")
    compiling = AUTOTUNING_S if tuned else COMPILING_S.get(selected.case.backend, 0.0)
    if selected.benchmark.family == "kernel":
        compiling = min(compiling, COMPILING_A_KERNEL_S)
    # What measures compiling itself does it again with a warm cache.
    return START_S[preset] + compiling * (1.5 if selected.benchmark.mode == "compile" else 1.0)


def learn(times: Times, runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """The times with what these runs took in place of what was known of the same cases: the median process."""
    found = {machine: {preset: dict(cases) for preset, cases in known.items()} for machine, known in times.items()}
    seen: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        for result in run["results"]:
            machine = _machine_of(run, result)
            name = f"{result['benchmark']}/{slug_of(result['variant'])}"
            seconds = result.get("harness", {}).get("process_seconds", ())
            seen.setdefault((machine, result["preset"], name), []).extend(seconds)
    for (machine, preset, name), seconds in seen.items():
        if seconds:
            found.setdefault(machine, {}).setdefault(preset, {})[name] = round(median(seconds), 1)
    return found


def _machine_of(run: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    return CPU if result["preset"] == Preset.CPU else str(run["environment"].get("accelerator", CPU))
