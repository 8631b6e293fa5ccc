"""The results page: what was measured on what, and which targets were met, or missed by how much. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.acceptance.sessions import Session, Verdicts
from benchmarks.acceptance.targets import AttentionRow, Target, metric

NO_CLAIM = (
    "**Measured on a CPU.** It shows that the command works from end to end. The targets are for one H200; nothing on "
    "this page says anything about them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that a page is made of."""

    date: str
    command: str
    cpu: bool
    runs: Mapping[str, Mapping[str, Any]]
    targets: Sequence[Target]
    attention: Sequence[AttentionRow]
    ceilings: Mapping[str, Sequence[float]]
    sessions: Sequence[Session]
    verdicts: Verdicts
    missing: Sequence[str] = field(default=())
    """Units that were not measured, with the reason."""


def page(measured: Measured) -> str:
    """The page as Markdown."""
    environment: Mapping[str, Any] = next((run["environment"] for run in measured.runs.values()), {})
    where = environment.get("accelerator") or environment.get("cpu", "a machine that told nothing")
    parts = [f"# Acceptance on {where}, {measured.date}", ""]
    parts += [NO_CLAIM, ""] if measured.cpu else [_in_short(measured.targets), ""]
    parts += [*_facts(measured, environment), "", "## Targets", "", *_targets(measured), ""]
    parts += [*_ladder(measured.runs), *_attention(measured.attention), *_ceilings(measured.ceilings)]
    parts += [*_sessions(measured), *_not_measured(measured.missing)]
    return "\n".join(parts).rstrip() + "\n"


def _in_short(targets: Sequence[Target]) -> str:
    met, missed = ([t for t in targets if t.met is wanted] for wanted in (True, False))
    rest = len(targets) - len(met) - len(missed)
    said = f"{len(met)} of {len(targets)} targets met, {len(missed)} missed, {rest} not measured."
    return said + (f" Missed: {', '.join(t.name for t in missed)}." if missed else "")


def _facts(measured: Measured, environment: Mapping[str, Any]) -> Iterator[str]:
    yield f"- Command: `{measured.command}`"
    known = ("accelerator", "accelerator_count", "driver", "cuda", "rocm", "torch", "triton", "cudnn", "nccl", "python")
    told = [f"{name} {environment[name]}" for name in (*known, "cpu", "cpu_count") if environment.get(name)]
    yield f"- Machine: {', '.join(told) or 'nothing was measured'}"
    commits = sorted({str(run["commit"])[:12] for run in measured.runs.values()})
    versions = sorted({str(run["suite_version"]) for run in measured.runs.values()})
    yield f"- Commit: {', '.join(commits) or 'none'}; suite {', '.join(versions) or 'unknown'}"
    for name, run in measured.runs.items():
        yield f"- `{name}/run.json`: {run['status']}, {run['started_at']} to {run['finished_at']}"


def _targets(measured: Measured) -> Iterator[str]:
    yield "| target | wanted | found | |"
    yield "|---|---|---|---|"
    for target in measured.targets:
        value = "" if target.value is None else f"{target.value:.4g}"
        yield f"| {target.name} | {target.wanted} | {value} | {_verdict(target, claims=not measured.cpu)} |"


def _verdict(target: Target, *, claims: bool) -> str:
    if target.met is None:
        return "not measured"
    if not claims:
        return "not claimed"
    by = "" if target.by is None else f" by {abs(target.by):.1%}"
    if target.met:
        return f"met{by}"
    return f"**missed{by}**" + (f"; bound: {target.bound}" if target.bound else "")


def _ladder(runs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    rungs = []
    for name in sorted(name for name in runs if name.startswith("ladder-")):
        result = next((one for one in runs[name]["results"] if one["status"] == "ok"), None)
        if result is not None:
            rungs.append((result["variant"]["rung"], metric(result, "tokens_per_s"), result))
    if not rungs:
        return
    yield "## Ladder"
    yield ""
    yield "| rung | tokens/s | over the rung before | MFU | peak reserved, GB | bound |"
    yield "|---|---|---|---|---|---|"
    before: float | None = None
    for rung, speed, result in rungs:
        step = f"{speed / before:.3f}" if before and speed else ""
        mfu, memory = metric(result, "mfu"), metric(result, "peak_reserved_bytes")
        bound = result.get("roofline", {}).get("bound", "")
        shares = f"{mfu:.1%}" if mfu else "", f"{memory / 1e9:.1f}" if memory else ""
        yield f"| {rung} | {f'{speed:,.0f}' if speed else ''} | {step} | {' | '.join(shares)} | {bound} |"
        before = speed
    yield ""


def _attention(rows: Sequence[AttentionRow]) -> Iterator[str]:
    if not rows:
        return
    yield "## Attention, TFLOP/s"
    yield ""
    yield "| S | backend | forward | backward | FlashAttention-3 on H100, as published |"
    yield "|---|---|---|---|---|"
    for row in rows:
        name = f"{row.backend} → {row.chosen}" if row.chosen else row.backend
        forward, backward = (f"{v:.4g}" if v else "" for v in (row.forward, row.backward))
        published = f"{row.published[0]} forward, {row.published[1]} backward" if row.published else ""
        yield f"| {row.length} | {name} | {forward} | {backward} | {published} |"
    yield ""


def _ceilings(ceilings: Mapping[str, Sequence[float]]) -> Iterator[str]:
    if not ceilings:
        return
    yield "## Measured ceilings"
    yield ""
    yield "| ceiling | median | lowest | highest | runs |"
    yield "|---|---|---|---|---|"
    for name, values in ceilings.items():
        yield f"| {name} | {median(values):.4g} | {min(values):.4g} | {max(values):.4g} | {len(values)} |"
    yield ""


def _sessions(measured: Measured) -> Iterator[str]:
    if not measured.sessions:
        return
    verdicts = measured.verdicts
    yield "## Interleaved sessions"
    yield ""
    yield "ABBA in fresh processes; a change counts when it is further from zero than the other honest sessions allow"
    spread = "" if verdicts.spread is None else f" Honest changes scatter by {verdicts.spread:.2%} around zero."
    yield (
        f"by a chance of one in a thousand. Honest: {verdicts.raised} of {verdicts.honest} raised. Slowed: "
        f"{verdicts.found} of {verdicts.slowed} found.{spread}"
    )
    yield ""
    yield "| slowed by | changes found, head over base |"
    yield "|---|---|"
    for kind in sorted({session.slow_down for session in measured.sessions}):
        changes = ", ".join(f"{s.change:+.2%}" for s in measured.sessions if s.slow_down == kind)
        yield f"| {kind:.0%} | {changes} |"
    yield ""


def _not_measured(missing: Sequence[str]) -> Iterator[str]:
    if not missing:
        return
    yield "## Not measured"
    yield ""
    yield from (f"- {one}" for one in missing)
