"""Whether a machine can be believed: its canary before and after, and strangers on its accelerator. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.analysis import summary
from benchmarks.spec import Preset

LEAST_NOISE = {Preset.CPU: 0.02, Preset.SMOKE: 0.003, Preset.FULL: 0.003}
"""No canary is believed to be quieter than this: shared cores move more than an accelerator of one's own."""

MINUTES_OVER_ROUNDS = 1.5
"""Readings minutes apart differ more than rounds of one minute do; found over 60 runs with and without load."""

CANARY_LIMIT = 5.0
"""How many times its own noise a canary may move before the machine, and so the run, is not believed."""

Reading = Mapping[str, Any]


def canary(before: Reading | None, after: Reading | None, preset: Preset) -> list[dict[str, Any]]:
    """Fixed workloads before and after; on a CPU the quotient of two, which load does not move and hardware does."""
    known = before or after
    return [_canary_of(name, before, after, preset) for name in (known["canary"] if known else {})]


def _canary_of(name: str, before: Reading | None, after: Reading | None, preset: Preset) -> dict[str, Any]:
    rounds: dict[str, Sequence[float]] = {
        which: reading["canary"][name] for which, reading in (("before", before), ("after", after)) if reading
    }
    # The standard error of a difference of two medians of this many rounds.
    noise = max(1.253 * summary.robust_sd(r) / median(r) * (2 / len(r)) ** 0.5 for r in rounds.values())
    levels = {which: median(rounds[which]) if which in rounds else None for which in ("before", "after")}
    return {"name": name, **levels, "own_noise": max(MINUTES_OVER_ROUNDS * noise, LEAST_NOISE[preset])}


def why_not(readings: Sequence[Mapping[str, Any]], telemetry: Mapping[str, Any]) -> str | None:
    """Why a run must not be judged, or None."""
    if telemetry.get("foreign_processes"):
        return f"{telemetry['foreign_processes']} foreign processes were on the accelerator"
    for reading in readings:
        before, after = reading["before"], reading["after"]
        if before and after and abs(after / before - 1) > CANARY_LIMIT * reading["own_noise"]:
            return f"the canary {reading['name']} moved from {before:.4g} to {after:.4g}"
    return None
