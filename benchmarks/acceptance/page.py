"""The results page: what was measured on what, and which targets were met, or missed by how much. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.acceptance.archive import Call, UnitRecord
from benchmarks.acceptance.sessions import MeasuredArms, Verdicts
from benchmarks.acceptance.targets import AcceptanceTarget, AttentionRow, measured
from benchmarks.acceptance.targets import MeasuredCase as Case

NO_CLAIM = (
    "**Measured on a CPU.** It shows that the command works from end to end. The targets are for one H200; nothing on "
    "this page says anything about them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """All that a page is made of."""

    calls: Sequence[Call]
    cpu: bool
    runs: Mapping[str, Mapping[str, Any]]
    records: Mapping[str, UnitRecord]
    targets: Sequence[AcceptanceTarget]
    attention: Sequence[AttentionRow]
    ceilings: Mapping[str, Sequence[float]]
    sessions: Sequence[MeasuredArms]
    verdicts: Verdicts
    archive: str
    missing: Sequence[str] = field(default=())
    """Units that were not measured, with the reason."""


def page(found: PageContent) -> str:
    """The page as Markdown."""
    environment: Mapping[str, Any] = next((run["environment"] for run in found.runs.values()), {})
    where = environment.get("accelerator") or environment.get("cpu", "an unknown machine")
    parts = [f"# Acceptance on {where}, {found.calls[-1].date[:10]}", ""]
    parts += [NO_CLAIM, ""] if found.cpu else [_in_short(found.targets), ""]
    parts += [*_facts(found, environment), "", "## Targets", "", *_targets(found), ""]
    parts += [*_ladder(measured(found.runs, "gpt.ladder")), *_attention(found.attention), *_ceilings(found.ceilings)]
    parts += [*_sessions(found), *_not_measured(found.missing), *_calls(found.calls), *_units(found)]
    return "\n".join(parts).rstrip() + "\n"


def _in_short(targets: Sequence[AcceptanceTarget]) -> str:
    met, missed = ([t for t in targets if t.met is wanted] for wanted in (True, False))
    rest = len(targets) - len(met) - len(missed)
    said = f"{len(met)} of {len(targets)} targets met, {len(missed)} missed, {rest} not measured."
    return said + (f" Missed: {', '.join(t.name for t in missed)}." if missed else "")


def _facts(found: PageContent, environment: Mapping[str, Any]) -> Iterator[str]:
    known = ("accelerator", "accelerator_count", "driver", "cuda", "rocm", "torch", "triton", "cudnn", "nccl", "python")
    told = [f"{name} {environment[name]}" for name in (*known, "cpu", "cpu_count") if environment.get(name)]
    yield f"- Machine: {', '.join(told) or 'nothing was measured'}"
    commits = sorted({str(run["commit"])[:12] for run in found.runs.values()})
    versions = sorted({str(run["suite_version"]) for run in found.runs.values()})
    codes = sorted({record.code for record in found.records.values()})
    yield f"- Commit: {', '.join(commits) or 'none'}; suite {', '.join(versions) or 'unknown'}, code {', '.join(codes)}"
    yield f"- Every run.json and log: `{found.archive}`"


def _targets(found: PageContent) -> Iterator[str]:
    yield "| target | wanted | found | |"
    yield "|---|---|---|---|"
    for target in found.targets:
        value = "" if target.value is None else f"{target.value:.4g}"
        yield f"| {target.name} | {target.wanted} | {value} | {_verdict(target, claims=not found.cpu)} |"


def _verdict(target: AcceptanceTarget, *, claims: bool) -> str:
    if target.value is None:
        return "not measured"
    if not claims:
        return "not claimed"
    if target.met is None:
        return f"not shown: {target.not_shown}"
    by = "" if target.by is None else f" by {abs(target.by):.1%}"
    if target.met:
        return f"met{by}"
    return f"**missed{by}**" + (f"; bound: {target.bound}" if target.bound else "")


def _ladder(rungs: Sequence[Case]) -> Iterator[str]:
    if not rungs:
        return
    yield "## Ladder"
    yield ""
    yield "| rung | tokens/s | over the rung before | MFU | peak reserved, GB | bound |"
    yield "|---|---|---|---|---|---|"
    before: float | None = None
    for rung in sorted(rungs, key=lambda one: str(one.variant["rung"])):
        speed, mfu, memory = (rung[name] for name in ("tokens_per_s", "mfu", "peak_reserved_bytes"))
        step = f"{speed / before:.3f}" if before and speed else ""
        bound = rung.result.get("roofline", {}).get("bound", "")
        shares = f"{mfu:.1%}" if mfu else "", f"{memory / 1e9:.1f}" if memory else ""
        shown = f"{speed:,.0f}" if speed else ""
        yield f"| {rung.variant['rung']} | {shown} | {step} | {' | '.join(shares)} | {bound} |"
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


def _sessions(found: PageContent) -> Iterator[str]:
    if not found.sessions:
        return
    spread = (
        "" if found.verdicts.spread is None else f" Their changes scatter by {found.verdicts.spread:.2%} around zero."
    )
    yield "## Interleaved sessions"
    yield ""
    yield "ABBA in fresh processes, the head slowed down; a change counts when it is further from zero than permuted"
    yield f"sessions allow by a chance of one in a thousand.{spread} **{found.verdicts.in_words}.**"
    yield ""
    yield "| call | slowed by | changes found, head over base |"
    yield "|---|---|---|"
    for call, slowed in sorted({(session.call, session.slow_down) for session in found.sessions}):
        same = [s for s in found.sessions if (s.call, s.slow_down) == (call, slowed)]
        yield f"| {call} | {slowed:.0%} | {', '.join(f'{s.change:+.2%}' for s in same)} |"
    yield ""


def _not_measured(missing: Sequence[str]) -> Iterator[str]:
    if not missing:
        return
    yield "## Not measured"
    yield ""
    yield from (f"- {one}" for one in missing)
    yield ""


def _calls(calls: Sequence[Call]) -> Iterator[str]:
    yield "## Calls"
    yield ""
    yield "| | began | command | seconds | ended |"
    yield "|---|---|---|---|---|"
    for number, call in enumerate(calls, 1):
        yield f"| {number} | {call.date} | `{call.command}` | {call.seconds:g} | {call.ended} |"
    yield ""


def _units(found: PageContent) -> Iterator[str]:
    """Every unit with what it took, so that the next plan knows; the first judged figure stands for all of them."""
    yield "## Units"
    yield ""
    yield "| unit | call | seconds | ended | |"
    yield "|---|---|---|---|---|"
    for name, record in found.records.items():
        told = _first_figure(found.runs.get(name))
        yield f"| {name} | {record.call} | {record.seconds:g} | {record.ended} | {told} |"


def _first_figure(run: Mapping[str, Any] | None) -> str:
    for m in run["results"][0].get("measurements", ()) if run else ():
        if m["role"] == "gate":
            return f"{m['metric']} {m['value']:.5g} {'' if m['unit'] in ('1', 'ratio') else m['unit']}".rstrip()
    return ""
