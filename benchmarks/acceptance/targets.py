"""The targets of the suite on one H200, and how far what was measured meets them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.acceptance.sessions import Verdicts, rate_below

Run = Mapping[str, Any]
Result = Mapping[str, Any]

FLASH_ATTENTION_3 = {512: (292, 316), 1024: (423, 424), 2048: (521, 501), 4096: (579, 542), 8192: (602, 559)}
FLASH_ATTENTION_3 |= {16384: (616, 561)}
"""Sequence -> TFLOP/s forward (causal) and backward that its paper has for an H100, fp16, head width 128."""
LADDER_GAIN, LADDER_TOKENS_PER_S = 11.35, 500_000
SPREAD, OVERHEAD, SMOKE_S = 0.003, 0.005, 120.0
SHARE_OF_GEMM, OVER_LOOP, BEST_FOUND = 0.70, 2.0, 0.97
RIDGE_FLOP_PER_BYTE = 206.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target: what was wanted and found. `value` is None where it was not measured."""

    name: str
    wanted: str
    limit: float
    value: float | None
    higher: bool = True
    bound: str = ""
    """What bounds it, where it is missed."""

    @property
    def met(self) -> bool | None:
        """Whether it is met, or None where it was not measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.higher else self.value <= self.limit

    @property
    def by(self) -> float | None:
        """How far the value is from the limit, as a fraction of it; positive is the good side."""
        if self.value is None or not self.limit:
            return None
        return (self.value / self.limit - 1) * (1 if self.higher else -1)


def targets(
    runs: Mapping[str, Run], verdicts: Verdicts | None, overhead: float | None, smoke_s: float | None
) -> list[Target]:
    """Every target, measured or not, in the order of the plan."""
    results = [result for run in runs.values() for result in run["results"]]
    bad = [result for result in results if result["status"] not in ("ok", "not_applicable")]
    found = [
        Target(name="failed results", wanted="none", limit=0, value=float(len(bad)) if results else None, higher=False),
        Target(name="smoke preset", wanted="< 120 s", limit=SMOKE_S, value=smoke_s, higher=False),
        Target(name="harness overhead", wanted="< 0.5 % of a step", limit=OVERHEAD, value=overhead, higher=False),
    ]
    found += _of_the_ladder(runs)
    found += [_steady(name, runs.get(f"steady-{name}")) for name in ("gpt.train", "moe.layer", "attn.train")]
    found += _of_sessions(verdicts)
    found += _best_backends(attention(runs))
    return found + _of_moe(runs)


def _of_the_ladder(runs: Mapping[str, Run]) -> list[Target]:
    first, last = (_tokens_per_s(runs.get(name)) for name in ("ladder-r00", "ladder-r10"))
    gain = last / first if first and last else None
    return [
        Target(name="ladder, r10 over r00", wanted="≥ 11.35 times", limit=LADDER_GAIN, value=gain),
        Target(
            name="ladder, r10 tokens/s",
            wanted="≥ 500,000 on one H200 (43 % MFU)",
            limit=LADDER_TOKENS_PER_S,
            value=last,
            bound="at 100 % of 989.5 TFLOP/s it would be 1,157,000; see the rungs' rooflines",
        ),
    ]


def _tokens_per_s(run: Run | None) -> float | None:
    ok = _ok(run)
    return metric(ok[0], "tokens_per_s") if ok else None


def _ok(run: Run | None) -> list[Result]:
    return [result for result in (run or {"results": []})["results"] if result["status"] == "ok"]


def metric(result: Result, name: str) -> float | None:
    """The value of one metric of a result, or None."""
    return next((float(m["value"]) for m in result.get("measurements", ()) if m["metric"] == name), None)


def _steady(name: str, run: Run | None) -> Target:
    spread = None
    for result in _ok(run):
        gates = [m for m in result["measurements"] if m["metric"] in ("step_ms", "step_over_yardstick")]
        spread = gates[0].get("cv_between_processes") if gates else None
    return Target(
        name=f"{name}, spread between processes",
        wanted="CV ≤ 0.3 %",
        limit=SPREAD,
        value=spread,
        higher=False,
        bound="clocks and temperature: telemetry of the run tells",
    )


def _of_sessions(verdicts: Verdicts | None) -> list[Target]:
    honest = verdicts.honest if verdicts else 0
    share = verdicts.found / verdicts.slowed if verdicts and verdicts.slowed else None
    said = f"none of 20 (of {honest}: a rate below {rate_below(honest):.0%} at best)" if honest else "none of 20"
    return [
        Target(
            name="A/A sessions that raise something",
            wanted=said,
            limit=0,
            value=float(verdicts.raised) if verdicts and honest else None,
            higher=False,
        ),
        Target(name="slowed sessions found", wanted="20 of 20 at 2 %", limit=1.0, value=share),
    ]


def _of_moe(runs: Mapping[str, Run]) -> list[Target]:
    found: list[Target] = []
    for name, run in runs.items():
        results = _ok(run)
        if not name.startswith("moe") or name == "moe-model":
            continue
        by_impl = {result["variant"].get("impl"): result for result in results}
        grouped, loop, gemm = by_impl.get("grouped_mm"), by_impl.get("loop"), run["ceilings"].get("gemm_bf16_tflops")
        if grouped is None:
            continue
        roof = grouped.get("roofline", {})
        if gemm and roof.get("flop_per_byte", 0) > RIDGE_FLOP_PER_BYTE:
            found.append(
                Target(
                    name=f"{name}, grouped products over the product ceiling",
                    wanted="≥ 70 %, compute-bound shapes",
                    limit=SHARE_OF_GEMM,
                    value=roof["achieved_tflops"] / gemm,
                    bound="dispatch and combination: forward_*_ms of the result tell",
                )
            )
        slow, fast = (metric(one, "tokens_per_s") if one else None for one in (loop, grouped))
        faster = fast / slow if fast and slow else None
        found.append(Target(name=f"{name}, grouped over the loop", wanted="≥ 2 times", limit=OVER_LOOP, value=faster))
    return found


def _best_backends(rows: Sequence[AttentionRow]) -> Iterator[Target]:
    """`best` against the fastest of the forced backends, where both were measured at a length."""
    for length in dict.fromkeys(row.length for row in rows):
        both = {row.chosen is not None: row for row in rows if row.length == length}
        others = [_both_ways(row) for row in rows if row.length == length and row.chosen is None and row.forward]
        if True not in both or not others:
            continue
        yield Target(
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
    """Every attention result, by length; `best` with the backend it chose."""
    rows = []
    for name, run in runs.items():
        if not name.startswith("attention"):
            continue
        for result in _ok(run):
            variant = result["variant"]
            rows.append(
                AttentionRow(
                    length=int(variant["length"]),
                    backend=str(variant["backend"]),
                    forward=metric(result, "forward_tflops"),
                    backward=metric(result, "backward_tflops"),
                    published=FLASH_ATTENTION_3.get(int(variant["length"])) if variant["head_dim"] == 128 else None,
                    chosen=result.get("notes", {}).get("chosen_backend"),
                )
            )
    return sorted(rows, key=lambda row: (row.length, row.backend))


def ceilings(runs: Mapping[str, Run]) -> dict[str, Sequence[float]]:
    """Every measured ceiling over all runs."""
    found: dict[str, list[float]] = {}
    for run in runs.values():
        for name, value in run["ceilings"].items():
            found.setdefault(name, []).append(value)
    return dict(found)
