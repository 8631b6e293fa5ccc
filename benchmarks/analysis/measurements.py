"""From the reports of fresh processes to the measurements of a result. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.analysis import summary
from benchmarks.analysis.peaks import bf16_flop_per_s
from benchmarks.spec import Direction, Role

Report = Mapping[str, Any]


def of_reports(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Measurements of a variant, from one report per process, whichever way its workload measures."""
    if any("values" in report for report in reports):
        return _of_values(reports)
    if any(report.get("times", {}).get("clock") == "device_events" for report in reports):
        return _of_device_reports(reports)
    return _of_paired_reports(reports)


def _of_values(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Measurements of a workload that measures in its own way: every figure with one value per process."""
    by_metric: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        for value in report.get("values", ()):
            by_metric.setdefault(value["metric"], []).append(value)
    found = []
    for name, values in by_metric.items():
        first, levels = values[0], [value["value"] for value in values]
        samples = [value["samples"] for value in values] if first["samples"] else []
        made = measurement(
            name, first["unit"], Role(first["role"]), levels, samples=samples, direction=Direction(first["direction"])
        )
        if first["exact"] and len(set(levels)) == 1:
            made["exact"] = True
            del made["processes"]
        if first["formula"]:
            made["formula"] = first["formula"]
        found.append(made)
    return found + counters_of(reports)


def _of_device_reports(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Measurements of a step timed by events on an accelerator: here milliseconds are steady enough to be judged."""
    whole = [report for report in reports if "times" in report]
    times = [report["times"] for report in whole]
    step_ms = [[1000 * s for s in time["step_s"]] for time in times]
    levels = [median(values) for values in step_ms]
    work = next(report["work"] for report in reports if "work" in report)
    converged = all(time["settled"] for time in times)
    agreement = [time["events_over_wall"] for time in times]
    role = Role.GATE if events_agree(agreement) else Role.WATCH
    found = [
        measurement("step_ms", "ms", role, levels, samples=step_ms, converged=converged),
        derived(work["unit_metric"], work["unit_unit"], 1000 * work["units"] / median(levels), Direction.HIGHER),
    ]
    shares = [_shares(time["phases_s"]) for time in times]
    for name in dict.fromkeys(name for share in shares for name in share):
        values = [share.get(name, 0.0) * level for share, level in zip(shares, levels, strict=True)]
        found.append(measurement(f"{name}_ms", "ms", Role.PHASE, values))
    found += rates_of_phases(work, found)
    for name, role in MEMORY_ROLES.items():
        unit = "B" if name.endswith("bytes") else "1"
        found.append(measurement(name, unit, role, [report["memory"][name] for report in whole]))
    peak = bf16_flop_per_s(whole[0].get("environment", {}).get("accelerator", ""))
    if peak and work["flop"]:
        mfu = [work["flop"] / (level / 1000) / peak for level in levels]
        made = measurement("mfu", "ratio", Role.WATCH, mfu, direction=Direction.HIGHER)
        found.append(made | {"formula": f"{work['formula']}; of {peak / 1e12:g} TFLOP/s dense bf16"})
    found.append(measurement("events_over_wall", "ratio", Role.DERIVED, agreement))
    return found + counters_of(reports)


EVENTS_WITHIN_WALL = 0.01
"""How far the sum of all events may be from the wall clock's time for the same steps, as a fraction."""


def events_agree(events_over_wall: Sequence[float]) -> bool:
    """Whether events and the wall clock tell the same story in every process; else the step is shown, not judged."""
    return all(abs(quotient - 1) <= EVENTS_WITHIN_WALL for quotient in events_over_wall)


def rates_of_phases(work: Mapping[str, Any], measured: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """TFLOP/s of the phases whose arithmetic is known, from their milliseconds."""
    by_name = {m["metric"]: m["value"] for m in measured}
    known = {phase: flop for phase, flop in work.get("phase_flop", {}).items() if by_name.get(f"{phase}_ms")}
    return [
        derived(f"{phase}_tflops", "TFLOP/s", flop / by_name[f"{phase}_ms"] / 1e9, Direction.HIGHER)
        for phase, flop in known.items()
    ]


MEMORY_ROLES = {
    "peak_reserved_bytes": Role.GATE,
    "peak_allocated_bytes": Role.GATE,
    "alloc_retries": Role.GATE,
    "inactive_split_bytes": Role.DERIVED,
}
"""Memory of an accelerator: more of it is a cost; fragmentation is shown."""


def _shares(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Share of each phase in the steps of one process; all steps, because events leave no stragglers to leave out."""
    total = sum(sum(step.values()) for step in steps)
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: sum(step.get(name, 0.0) for step in steps) / total for name in names}


def _of_paired_reports(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Measurements of a variant timed against the yardstick, from one report per process.

    The quotient is judged; milliseconds and rates are shown, because on a shared machine they say more of the
    neighbours than of the code.
    """
    times = [report["times"] for report in reports if "times" in report]
    if not times:
        return counters_of(reports)
    step_s = [time["step_s"] for time in times]
    ratios = [[step / yard for step, yard in zip(time["step_s"], time["yardstick_s"], strict=True)] for time in times]
    ratio_of_process = [median(values) for values in ratios]
    step_ms_of_process = [1000 * median(values) for values in step_s]
    converged = all(time["settled"] for time in times)
    found = [
        measurement("step_over_yardstick", "ratio", Role.GATE, ratio_of_process, samples=ratios, converged=converged),
        measurement(
            "step_ms", "ms", Role.WATCH, step_ms_of_process, samples=[[1000 * s for s in values] for values in step_s]
        ),
    ]
    work = next(report["work"] for report in reports if "work" in report)
    rate = 1000 * work["units"] / median(step_ms_of_process)
    found.append(derived(work["unit_metric"], work["unit_unit"], rate, Direction.HIGHER))
    found.extend(_phases(times, ratio_of_process, step_ms_of_process))
    found.extend(rates_of_phases(work, found))
    found.extend(counters_of(reports))
    found.append(
        measurement("yardstick_ms", "ms", Role.DERIVED, [1000 * median(time["yardstick_s"]) for time in times])
    )
    found.append(measurement("peak_rss_bytes", "B", Role.DERIVED, [report["peak_rss_bytes"] for report in reports]))
    return found


def _phases(
    times: Sequence[Mapping[str, Any]], ratios: Sequence[float], step_ms: Sequence[float]
) -> list[dict[str, Any]]:
    """Every phase twice: in milliseconds, and over the yardstick, where runs of a noisy machine can be compared."""
    names = dict.fromkeys(name for time in times for name in time["phase_shares"])
    ordered = [name for name in names if name != "other"] + ["other"] * ("other" in names)
    found: list[dict[str, Any]] = []
    for unit, suffix, levels in (("ratio", "over_yardstick", ratios), ("ms", "ms", step_ms)):
        for name in ordered:
            values = [time["phase_shares"].get(name, 0.0) * level for time, level in zip(times, levels, strict=True)]
            found.append(measurement(f"{name}_{suffix}", unit, Role.PHASE, values))
    return found


def counters_of(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Exact counters, once each; a counter that two processes state differently is not exact, and is said to be so."""
    values: dict[str, list[float]] = {}
    shapes: dict[str, Mapping[str, Any]] = {}
    for report in reports:
        for counter in report.get("counters", ()):
            values.setdefault(counter["metric"], []).append(counter["value"])
            shapes[counter["metric"]] = counter
    found = []
    for name, seen in values.items():
        shape = shapes[name]
        made = {
            "metric": name,
            "unit": shape["unit"],
            "direction": shape["direction"],
            "role": shape["role"],
            "value": median(seen),
        }
        made["exact"] = bool(shape["exact"]) and len(set(seen)) == 1
        if shape.get("formula"):
            made["formula"] = shape["formula"]
        if len(set(seen)) > 1:
            made["processes"] = seen
        found.append(made)
    return found


def derived(metric: str, unit: str, value: float, direction: Direction) -> dict[str, Any]:
    """A figure computed from others."""
    return {"metric": metric, "unit": unit, "direction": direction, "role": Role.DERIVED, "value": value}


def measurement(
    metric: str,
    unit: str,
    role: Role,
    processes: Sequence[float],
    *,
    samples: Sequence[Sequence[float]] = (),
    direction: Direction = Direction.LOWER,
    converged: bool | None = None,
) -> dict[str, Any]:
    """One metric over its processes, with raw samples, spread, and what the repeats could show."""
    made: dict[str, Any] = {
        "metric": metric,
        "unit": unit,
        "direction": direction,
        "role": role,
        "value": median(processes),
        "processes": list(processes),
    }
    if samples:
        made["samples"] = [[summary.as_told(value) for value in summary.thin(values)] for values in samples]
        made["samples_taken"] = [len(values) for values in samples]
        made["bimodal"] = any(summary.is_bimodal(values) for values in samples)
    if converged is not None:
        made["converged"] = converged
    spread = summary.coefficient_of_variation(processes) if role in (Role.GATE, Role.WATCH) else None
    if spread is not None:
        made["cv_between_processes"] = spread
        made["minimum_detectable_change"] = summary.minimum_detectable_change(spread, len(processes))
    return made


def compute_ceiling(ceilings: Mapping[str, float], precision: str) -> float | None:
    """FLOP/s that this machine reached in that precision; where it was not measured, in the one that was."""
    measured = {name: value for name, value in ceilings.items() if name.endswith("_tflops")}
    tflops = measured.get(f"gemm_{precision}_tflops", next(iter(measured.values()), None))
    return None if tflops is None else tflops * 1e12


def roofline_of(
    work: Mapping[str, Any],
    step_s: float,
    compute_flop_per_s: float,
    bytes_per_s: float,
    activation_bytes: float = 0.0,
) -> dict[str, Any] | None:
    """Where the step sits under the measured ceilings; below 30 % of both, neither explains its time and latency does.

    Its traffic is `bytes`, the least it must cause whatever the implementation, and the activations that this
    implementation keeps, written once and read once. What is read again is not in it: the intensity is an upper bound.
    """
    if not work.get("flop") or not work.get("bytes") or step_s <= 0:
        return None
    traffic = work["bytes"] + 2 * activation_bytes
    intensity, achieved = work["flop"] / traffic, work["flop"] / step_s
    ridge = compute_flop_per_s / bytes_per_s
    of_compute, of_memory = achieved / compute_flop_per_s, traffic / step_s / bytes_per_s
    roof = min(compute_flop_per_s, intensity * bytes_per_s)
    if of_compute < 0.3 and of_memory < 0.3:
        bound = "latency"
    else:
        bound = "compute" if intensity > ridge else "memory"
    return {
        "flop_per_byte": intensity,
        "ridge_flop_per_byte": ridge,
        "achieved_tflops": achieved / 1e12,
        "bound": bound,
        "share_of_ceiling": achieved / roof,
    }
