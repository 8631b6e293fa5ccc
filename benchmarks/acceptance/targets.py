"""The targets of the suite on one H200, and how far what was measured meets them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.acceptance.sessions import WANTED, MeasuredArms, Verdicts
from benchmarks.analysis.summary import coefficient_of_variation
from benchmarks.spec import Preset

Run = Mapping[str, Any]
Result = Mapping[str, Any]

FLASH_ATTENTION_3 = {512: (292, 316), 1024: (423, 424), 2048: (521, 501), 4096: (579, 542), 8192: (602, 559)}
FLASH_ATTENTION_3 |= {16384: (616, 561)}
"""Sequence -> TFLOP/s forward (causal) and backward that its paper has for an H100, fp16, head width 128."""
LADDER_GAIN, LADDER_TOKENS_PER_S = 11.35, 500_000
SPREAD, OVERHEAD = 0.003, 0.005
SHARE_OF_GEMM, OVER_LOOP, BEST_FOUND = 0.70, 2.0, 0.97
RIDGE_FLOP_PER_BYTE = 206.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceTarget:
    """One target: what was wanted and found. `value` is None where it was not measured."""

    name: str
    wanted: str
    limit: float
    value: float | None
    higher: bool = True
    bound: str = ""
    """The bound that explains a miss."""
    not_shown: str = ""
    """Why a value on the good side shows less than what was wanted."""

    @property
    def met(self) -> bool | None:
        """Whether it is met, or None where it was not measured, or not enough of it to say so."""
        if self.value is None:
            return None
        good = self.value >= self.limit if self.higher else self.value <= self.limit
        return None if good and self.not_shown else good

    @property
    def by(self) -> float | None:
        """How far the value is from the limit, as a fraction of it; positive is the good side."""
        if self.value is None or not self.limit:
            return None
        return (self.value / self.limit - 1) * (1 if self.higher else -1)


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """One case with all of its processes, and what the runs around it found the machine to do at most."""

    result: Result
    values: Mapping[str, Sequence[float]]
    ceilings: Mapping[str, float]

    def __getitem__(self, metric: str) -> float | None:
        """The median of its processes, or None."""
        values = self.values.get(metric)
        return median(values) if values else None

    @property
    def variant(self) -> Mapping[str, Any]:
        """The variant of the case."""
        variant: Mapping[str, Any] = self.result["variant"]
        return variant


def measured(runs: Mapping[str, Run], benchmark: str) -> list[MeasuredCase]:
    """Every case of a benchmark that ran well, in the order of the plan; smoke runs are never judged."""
    by_case: dict[str, list[tuple[Result, Run]]] = {}
    for run in runs.values():
        for result in run["results"]:
            if result["benchmark"] == benchmark and result["status"] == "ok" and result["preset"] != Preset.SMOKE:
                by_case.setdefault(str(sorted(result["variant"].items())), []).append((result, run))
    return [_of_processes(pairs) for pairs in by_case.values()]


def _of_processes(pairs: Sequence[tuple[Result, Run]]) -> MeasuredCase:
    values: dict[str, list[float]] = {}
    for result, _ in pairs:
        for m in result["measurements"]:
            values.setdefault(m["metric"], []).append(float(m["value"]))
    return MeasuredCase(pairs[0][0], values, pairs[0][1]["ceilings"])


def targets(
    runs: Mapping[str, Run],
    held: Sequence[MeasuredArms],
    verdicts: Verdicts | None,
    overhead: float | None,
    failed: int,
) -> list[AcceptanceTarget]:
    """Every target, measured or not, in the order of the plan; `failed` counts units that failed."""
    counted = float(failed) if runs or failed else None
    found = [
        AcceptanceTarget(name="failed units", wanted="none", limit=0, value=counted, higher=False),
        AcceptanceTarget(
            name="harness overhead", wanted="< 0.5 % of a step", limit=OVERHEAD, value=overhead, higher=False
        ),
    ]
    found += _of_the_ladder(measured(runs, "gpt.ladder"))
    found.append(_steady("gpt.train", [value for session in held for value in session.base]))
    found += [_steady(name, _processes(runs, name)) for name in ("attn.train", "moe.layer")]
    found += _of_sessions(verdicts)
    found += _best_backends(attention(runs))
    found += _of_moe(measured(runs, "moe.layer"))
    return found


def _of_the_ladder(rungs: Sequence[MeasuredCase]) -> list[AcceptanceTarget]:
    speed = {str(rung.variant["rung"])[:3]: rung["tokens_per_s"] for rung in rungs}
    first, last = speed.get("r00"), speed.get("r10")
    gain = last / first if first and last else None
    return [
        AcceptanceTarget(name="ladder, r10 over r00", wanted="≥ 11.35 times", limit=LADDER_GAIN, value=gain),
        AcceptanceTarget(
            name="ladder, r10 tokens/s",
            wanted="≥ 500,000 on one H200 (43 % MFU)",
            limit=LADDER_TOKENS_PER_S,
            value=last,
            bound="at 100 % of 989.5 TFLOP/s it would be 1,157,000; see the rungs' rooflines",
        ),
    ]


def _processes(runs: Mapping[str, Run], benchmark: str) -> Sequence[float]:
    """Values of the case that has most processes: what is judged of them."""
    cases = [case.values for case in measured(runs, benchmark)]
    judged = [values.get("step_over_yardstick") or values.get("step_ms", ()) for values in cases]
    return max(judged, key=len, default=())


def _steady(name: str, values: Sequence[float]) -> AcceptanceTarget:
    return AcceptanceTarget(
        name=f"{name}, spread between {len(values)} processes" if len(values) > 1 else f"{name}, spread of processes",
        wanted="CV ≤ 0.3 %",
        limit=SPREAD,
        value=coefficient_of_variation(values),
        higher=False,
        bound="clocks and temperature: see the telemetry of the runs",
    )


def _of_sessions(verdicts: Verdicts | None) -> list[AcceptanceTarget]:
    """Both are met only by as many sessions of their own as the target speaks of."""
    share = verdicts.found / verdicts.slowed if verdicts and verdicts.slowed and verdicts.honest else None
    raised = float(verdicts.raised) if verdicts and verdicts.honest else None
    permuted = "permutations of the slowed sessions' processes" if raised is not None else ""
    few = f"{verdicts.found} of {verdicts.slowed}" if verdicts and verdicts.slowed < WANTED else ""
    return [
        AcceptanceTarget(
            name="sessions in which nothing changed that raise something",
            wanted=f"none of {WANTED}",
            limit=0,
            value=raised,
            higher=False,
            not_shown=permuted,
        ),
        AcceptanceTarget(
            name="slowed sessions found", wanted=f"{WANTED} of {WANTED} at 2 %", limit=1, value=share, not_shown=few
        ),
    ]


def _of_moe(layers: Sequence[MeasuredCase]) -> Iterator[AcceptanceTarget]:
    """Per shape: grouped products against the product ceiling, and against the loop over experts."""
    for shape in dict.fromkeys(layer.variant.get("shape", "") for layer in layers):
        by_impl = {layer.variant["impl"]: layer for layer in layers if layer.variant.get("shape", "") == shape}
        grouped, loop = by_impl.get("grouped_mm"), by_impl.get("loop")
        if grouped is None:
            continue
        name, gemm, roof = (
            f"moe {shape}".strip(),
            grouped.ceilings.get("gemm_bf16_tflops"),
            grouped.result.get("roofline"),
        )
        if gemm and roof and roof["flop_per_byte"] > RIDGE_FLOP_PER_BYTE:
            yield AcceptanceTarget(
                name=f"{name}, grouped products over the product ceiling",
                wanted="≥ 70 %, compute-bound shapes",
                limit=SHARE_OF_GEMM,
                value=roof["achieved_tflops"] / gemm,
                bound="dispatch and combination: see forward_*_ms of the result",
            )
        fast, slow = grouped["tokens_per_s"], loop["tokens_per_s"] if loop else None
        faster = fast / slow if fast and slow else None
        yield AcceptanceTarget(name=f"{name}, grouped over the loop", wanted="≥ 2 times", limit=OVER_LOOP, value=faster)


def _best_backends(rows: Sequence[AttentionRow]) -> Iterator[AcceptanceTarget]:
    """`best` against the fastest of the forced backends, where both were measured at a length."""
    for length in dict.fromkeys(row.length for row in rows):
        both = {row.chosen is not None: row for row in rows if row.length == length}
        others = [_both_ways(row) for row in rows if row.length == length and row.chosen is None and row.forward]
        if True not in both or not others:
            continue
        yield AcceptanceTarget(
            name=f"attention at S {length}, `best` over the fastest backend",
            wanted="≥ 0.97: found by itself",
            limit=BEST_FOUND,
            value=_both_ways(both[True]) / max(others),
        )


def _both_ways(row: AttentionRow) -> float:
    """TFLOP/s of the forward and the backward pass together, which count 1 to 2.5."""
    if not row.forward or not row.backward:
        return 0.0
    return 3.5 / (1 / row.forward + 2.5 / row.backward)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRow:
    """One backend at one length, beside what is published for it."""

    length: int
    backend: str
    forward: float | None
    backward: float | None
    published: tuple[int, int] | None
    chosen: str | None


def attention(runs: Mapping[str, Run]) -> list[AttentionRow]:
    """Every attention case, by length; `best` with the backend it chose."""
    rows = [
        AttentionRow(
            length=int(case.variant["length"]),
            backend=str(case.variant["backend"]),
            forward=case["forward_tflops"],
            backward=case["backward_tflops"],
            published=FLASH_ATTENTION_3.get(int(case.variant["length"])) if case.variant["head_dim"] == 128 else None,
            chosen=case.result.get("notes", {}).get("chosen_backend"),
        )
        for case in measured(runs, "attn.train")
    ]
    return sorted(rows, key=lambda row: (row.length, row.backend))


def ceilings(runs: Mapping[str, Run]) -> dict[str, Sequence[float]]:
    """Every measured ceiling over all runs."""
    found: dict[str, list[float]] = {}
    for run in runs.values():
        for name, value in run["ceilings"].items():
            found.setdefault(name, []).append(value)
    return dict(found)
