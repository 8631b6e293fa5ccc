"""Diagnosis: what limits one result, and what explains the difference of two. Pure; standard library only.

The bands are the published seed's table and tree read as warn and fail, where the two disagree.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.analysis.kernels import KernelChange, difference

Result = Mapping[str, Any]

BOOTSTRAP_ROUNDS = 2000
CONFIDENCE = 0.95
EXPLAINED_ENOUGH = 0.8
IDLE_GREW = 0.04
"""Fraction of the step that the device must wait longer before the host is blamed; a profile is not steadier."""
SCALED_ALIKE = 0.25
"""Kernels "scaled alike" when nine in ten changed by a factor within this fraction of the median change."""


@dataclass(frozen=True, slots=True)
class Band:
    """Thresholds of one question: worth a look, and a fault. `worse` says which way."""

    warn: float
    fail: float
    worse: str = "above"

    def level(self, value: float) -> str:
        """ok, warn or fail."""
        sign = 1 if self.worse == "above" else -1
        if sign * value > sign * self.fail:
            return "fail"
        return "warn" if sign * value > sign * self.warn else "ok"


BANDS = {
    "data": Band(0.05, 0.10),
    "busy": Band(0.80, 0.50, "below"),
    "comm": Band(0.15, 0.20),
    "roof": Band(0.80, 0.50, "below"),
    "memory": Band(0.95, 1.0),
    "scaling": Band(0.80, 0.70, "below"),
    "net": Band(0.80, 0.50, "below"),
}
"""Question -> band: data wait of a step, device busy, exposed communication of a step, share of the best roof, reserved
of total memory, scaling efficiency, bus bandwidth of the link's limit."""

VERDICTS = {
    "data": "data_bound",
    "busy": "launch_bound",
    "comm": "communication_bound",
    "memory": "memory_pressure",
    "scaling": "scaling_loss",
    "net": "network",
}


def classify(
    result: Result, *, total_memory_bytes: float | None = None, link_gb_per_s: float | None = None
) -> dict[str, Any]:
    """The class of one result, the questions in the order data, busy, communication, roof, memory, scaling, network.

    The first question that fails names the class; those that only warn become flags. Without a failure the roofline
    decides between compute, memory and latency.
    """
    answers = _answers(result, total_memory_bytes, link_gb_per_s)
    tree = [f"{question} {BANDS[question].level(value)} ({value:.0%})" for question, value in answers.items()]
    flags = [question for question, value in answers.items() if BANDS[question].level(value) == "warn"]
    failed = [q for q, value in answers.items() if BANDS[q].level(value) == "fail" and q in VERDICTS]
    if failed:
        found = VERDICTS[failed[0]]
        flags += failed[1:]
    else:
        roofline = result.get("roofline") or {}
        found = f"{roofline['bound']}_bound" if "bound" in roofline else "unclassified"
    return {"class": found, "flags": flags, "tree": tree}


def _answers(result: Result, total_memory: float | None, link: float | None) -> dict[str, float]:
    """Answers that this result allows; a question without data is left out, not answered with zero."""
    value = {m["metric"]: float(m["value"]) for m in result.get("measurements", ())}
    step = value.get("step_ms")
    answers: dict[str, float] = {}
    if step:
        if "data_wait_ms" in value:
            answers["data"] = value["data_wait_ms"] / step
        if "device_busy" in value:
            answers["busy"] = value["device_busy"]
        if "exposed_communication_ms" in value:
            answers["comm"] = value["exposed_communication_ms"] / step
    roofline = result.get("roofline") or {}
    if "share_of_ceiling" in roofline:
        answers["roof"] = float(roofline["share_of_ceiling"])
    if total_memory and "peak_reserved_bytes" in value:
        # Retries say that the allocator already had to give memory back and ask again.
        answers["memory"] = 1.01 if value.get("alloc_retries") else value["peak_reserved_bytes"] / total_memory
    if "scaling_efficiency" in value:
        answers["scaling"] = value["scaling_efficiency"]
    if link and "busbw_gb_per_s" in value:
        answers["net"] = value["busbw_gb_per_s"] / link
    return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDelta:
    """One phase in two results: its change with an interval, and its share of the step's change."""

    phase: str
    unit: str
    base: float
    head: float
    low: float
    high: float
    share: float

    @property
    def change(self) -> float:
        """Head less base."""
        return self.head - self.base

    @property
    def significant(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceReport:
    """Explanation of the difference of two results."""

    metric: str
    base: float
    head: float
    phases: tuple[PhaseDelta, ...]
    kernels: tuple[KernelChange, ...]
    counters: tuple[tuple[str, float, float], ...]
    explained: float | None
    cause: str
    reason: str

    @property
    def change(self) -> float:
        """The step's change as a fraction of the base."""
        return self.head / self.base - 1


def explain(
    base: Result,
    head: Result,
    *,
    base_kernels: Mapping[str, Any] | None = None,
    head_kernels: Mapping[str, Any] | None = None,
    base_run: Mapping[str, Any] | None = None,
    head_run: Mapping[str, Any] | None = None,
) -> DifferenceReport:
    """Compares two results of one variant by the best metric of both: the quotient to the yardstick, else the step."""
    ours, theirs = _by_metric(head), _by_metric(base)
    shared = [name for name in ("step_over_yardstick", "step_ms") if name in ours and name in theirs]
    if not shared:
        raise ValueError("the two results have no step time in common; nothing can be explained")
    metric = shared[0]
    suffix = "_over_yardstick" if metric == "step_over_yardstick" else "_ms"
    before, after = theirs[metric], ours[metric]
    step_change = after["value"] - before["value"]
    phases = _phases(theirs, ours, suffix, step_change)
    explained = sum(p.change for p in phases if p.significant) / step_change if step_change else None
    kernels = difference(base_kernels, head_kernels) if base_kernels and head_kernels else []
    counters = _counters(theirs, ours)
    moved = {name: (old, new) for name, old, new in counters}
    for name in ("alloc_retries", "device_busy"):
        if name in theirs and name in ours:
            moved[name] = (theirs[name]["value"], ours[name]["value"])
    cause, reason = _cause(
        _Evidence(
            phases=phases,
            kernels=kernels,
            moved=moved,
            base_run=base_run or {},
            head_run=head_run or {},
            profiled=bool(base_kernels and head_kernels),
        )
    )
    return DifferenceReport(
        metric=metric,
        base=before["value"],
        head=after["value"],
        phases=phases,
        kernels=tuple(kernels),
        counters=counters,
        explained=explained,
        cause=cause,
        reason=reason,
    )


def _by_metric(result: Result) -> dict[str, Mapping[str, Any]]:
    return {m["metric"]: m for m in result.get("measurements", ())}


def _phases(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]], suffix: str, step_change: float
) -> tuple[PhaseDelta, ...]:
    """Every phase of the step's own unit, ranked by how much of the step's change it carries."""
    found = []
    for name in dict.fromkeys([*before, *after]):
        parts = [side[name] for side in (before, after) if name in side]
        if not name.endswith(suffix) or parts[0]["role"] != "phase":
            continue
        base = _processes(before.get(name))
        head = _processes(after.get(name))
        low, high = interval_of_difference(base, head)
        change = median(head) - median(base)
        found.append(
            PhaseDelta(
                phase=name.removesuffix(suffix),
                unit=parts[0]["unit"],
                base=median(base),
                head=median(head),
                low=low,
                high=high,
                share=change / step_change if step_change else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda phase: -abs(phase.change)))


def _processes(measurement: Mapping[str, Any] | None) -> Sequence[float]:
    """A phase that one side has not costs nothing there."""
    if measurement is None:
        return [0.0]
    return measurement.get("processes") or [measurement["value"]]


def interval_of_difference(base: Sequence[float], head: Sequence[float]) -> tuple[float, float]:
    """Bootstrap interval of the difference of medians of process values; the seed is fixed, so the answer is too."""
    rng = random.Random(20260101)
    differences = sorted(
        median(rng.choices(head, k=len(head))) - median(rng.choices(base, k=len(base))) for _ in range(BOOTSTRAP_ROUNDS)
    )
    cut = int(BOOTSTRAP_ROUNDS * (1 - CONFIDENCE) / 2)
    return differences[cut], differences[-1 - cut]


def _counters(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, float, float], ...]:
    """Exact counters that differ."""
    return tuple(
        (name, before[name]["value"], after[name]["value"])
        for name in before
        if name in after and before[name].get("exact") and before[name]["value"] != after[name]["value"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """Input of the rules."""

    phases: Sequence[PhaseDelta]
    kernels: Sequence[KernelChange]
    moved: Mapping[str, tuple[float, float]]
    base_run: Mapping[str, Any]
    head_run: Mapping[str, Any]
    profiled: bool

    @property
    def leading(self) -> PhaseDelta | None:
        """The phase that surely grew most."""
        return next((phase for phase in self.phases if phase.significant and phase.change > 0), None)


Finding = tuple[str, str] | None


def _cooler_clock(e: _Evidence) -> Finding:
    clocks = [run.get("telemetry", {}).get("sm_clock_mhz", {}).get("p50") for run in (e.base_run, e.head_run)]
    if not all(clocks) or clocks[1] >= 0.98 * clocks[0] or not _scaled_alike(e.kernels):
        return None
    return "hardware", f"clock {clocks[0]:.0f} → {clocks[1]:.0f} MHz, all kernels scaled alike: power or heat, not code"


def _more_stops(e: _Evidence) -> Finding:
    for name, said in (
        ("graph_breaks", "the compiler lost part of the step"),
        ("recompiles", "the compiler meets shapes it did not expect, again and again"),
        ("host_syncs", "the host waits more often"),
        ("alloc_retries", "memory is short, and the allocator gives back and asks again"),
    ):
        old, new = e.moved.get(name, (0.0, 0.0))
        if new > old:
            return "code", f"{name} {old:.0f} → {new:.0f}: {said}"
    return None


def _nothing_sure(e: _Evidence) -> Finding:
    return ("noise", "no phase surely grew: every interval leaves room for zero") if e.leading is None else None


def _idle_device(e: _Evidence) -> Finding:
    """A device that waits more, while its kernels take no longer, waits for the host."""
    before, after = e.moved.get("device_busy", (1.0, 1.0))
    grown = sum(change.us_per_step for change in e.kernels)
    if before - after <= IDLE_GREW or e.leading is None or grown * 1e-3 > 0.5 * sum(p.change for p in e.phases):
        return None
    return "code", f"the device was busy {before:.0%} and is {after:.0%}, its kernels flat: the host cannot keep up"


_TELLING_PHASES = {
    "data_wait": "data wait grew: the loader, not the model",
    "idle": "idle time grew with kernels flat: the host cannot keep up",
}


def _telling_phase(e: _Evidence) -> Finding:
    said = _TELLING_PHASES.get(e.leading.phase) if e.leading else None
    return ("code", said) if said else None


def _communication(e: _Evidence) -> Finding:
    """Kernels tell whether the collectives themselves take longer, or are only hidden less."""
    if e.leading is None or e.leading.phase != "exposed_communication":
        return None
    if not e.profiled:
        return "code", "exposed communication grew: overlap lost, or more to send (a profile of both shows which)"
    slower = sum(change.us_per_step for change in e.kernels if "nccl" in change.name.lower())
    if slower * 1e-3 > 0.5 * e.leading.change and e.leading.unit == "ms":
        return "code", f"the collectives themselves take {slower:+.0f} us a step: algorithm, topology, or more to send"
    return "code", "exposed communication grew and the collectives did not: overlap lost"


def _products_only(e: _Evidence) -> Finding:
    """Several products slower and nothing else: not the model, but what multiplies for it."""
    slower = [change for change in e.kernels if change.us_per_step > 0]
    products = [change for change in slower if _PRODUCT.search(change.name) and change.verdict == "slower"]
    if len(products) < 2 or len(products) < len(slower):
        return None
    total = sum(change.us_per_step for change in products)
    return "code", f"only matrix products are slower, {total:+.0f} us a step: library, shapes or precision"


_PRODUCT = re.compile(r"gemm|matmul|cutlass|xmma|(^|::|_)(addmm|bmm|mm)($|_)", re.IGNORECASE)


def _kernel(e: _Evidence) -> Finding:
    growing = [change for change in e.kernels if change.us_per_step > 0]
    worst = next((change for change in growing if change.replaces), None) or next(iter(growing), None)
    if worst is None:
        return None
    return "code", f"{worst.name} in {worst.phase}: {worst.verdict}, {worst.us_per_step:+.0f} us a step"


def _more_operations(e: _Evidence) -> Finding:
    old, new = e.moved.get("ops_per_step", (0.0, 0.0))
    if new <= old or e.leading is None:
        return None
    return "code", f"{e.leading.phase} grew, and the step dispatches {old:.0f} → {new:.0f} operations"


_RULES = (
    _cooler_clock,
    _more_stops,
    _nothing_sure,
    _telling_phase,
    _communication,
    _idle_device,
    _products_only,
    _kernel,
    _more_operations,
)


def _cause(evidence: _Evidence) -> tuple[str, str]:
    """The rules of the diagnosis, the first that fits; each names its evidence."""
    found = next((found for rule in _RULES if (found := rule(evidence))), None)
    if found is not None:
        return found
    assert evidence.leading is not None
    return "code", f"{evidence.leading.phase} grew; it carries {evidence.leading.share:.0%} of the step's change"


def _scaled_alike(kernels: Sequence[KernelChange]) -> bool:
    factors = [c.us_per_call[1] / c.us_per_call[0] for c in kernels if c.us_per_call[0] and c.us_per_call[1]]
    if len(factors) < 5:
        return False
    middle = median(factors)
    return sum(abs(f - middle) <= SCALED_ALIKE * abs(middle - 1) for f in factors) >= 0.9 * len(factors)


def as_text(explanation: DifferenceReport) -> str:
    """For a person: percent, a table of phases, the kernels that moved most."""
    e = explanation
    lines = [f"{e.metric}: {e.base:.4g} → {e.head:.4g} ({e.change:+.1%})", f"cause: {e.cause}: {e.reason}"]
    if e.explained is not None:
        enough = "" if e.explained >= EXPLAINED_ENOUGH else " (the rest is unexplained)"
        lines.append(f"phases that surely moved explain {e.explained:.0%} of the change{enough}")
    for phase in e.phases:
        sure = "" if phase.significant else "  (may be noise)"
        change = f"{phase.change:+.4g} [{phase.low:+.4g}, {phase.high:+.4g}] {phase.unit}"
        lines.append(f"  {phase.phase:24} {phase.base:9.4g} → {phase.head:9.4g}  {change}  {phase.share:.0%}{sure}")
    for kernel in e.kernels[:12]:
        lines.append(
            f"  {kernel.us_per_step:+9.1f} us  {kernel.phase:10} {kernel.name:40} {kernel.verdict} {kernel.shape[:60]}"
        )
    lines += [f"  {name}: {old:g} → {new:g}" for name, old, new in e.counters]
    return "\n".join(lines)
