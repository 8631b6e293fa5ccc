"""A report for another project: the same suite got slower with a newer torch, driver or library, not with our
commits. Drafted as Markdown with what maintainers ask for first: versions, a minimal command, figures, phases and
kernels that changed. A person reads it before it is sent anywhere.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import Conflict
from backend.services.base.metric_words import worse_word
from backend.services.github.text import percent, untied, value
from backend.services.reports.notices import Difference, differences
from backend.services.runs import profiles
from backend.services.runs.profiles import Variant
from backend.services.triage.detail import AffectedSeries, RegressionDetail, get_regression
from backend.store.judging import onsets as store

RUNS_BESIDE = 4
MAX_SERIES = 20
MAX_KERNELS = 10
CAUSE = "environment"
# Who looks after what, by the name in the environment's fingerprint, in the order in which one is asked first.
UPSTREAM: Mapping[str, str] = {
    "torch": "pytorch/pytorch",
    "triton": "triton-lang/triton",
    "nccl": "NVIDIA/nccl",
    "cudnn": "the cuDNN team at NVIDIA",
    "cuda": "the CUDA team at NVIDIA",
    "driver": "the driver team at NVIDIA",
    "python": "python/cpython",
}
INSTALLED = ("torch", "triton", "numpy")
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamReport:
    """`upstream`: whom it is for; `text`: the report, in Markdown."""

    regression_id: int
    upstream: str
    title: str
    changed: tuple[Difference, ...]
    text: str


def is_upstream(cause: str | None) -> bool:
    """Whether there is something to report to another project."""
    return cause == CAUSE


def draft(c: Connection, config: ServiceConfig, regression_id: int) -> UpstreamReport:
    """The report of a regression whose cause is the environment; 409 where it is another."""
    detail = get_regression(c, regression_id)
    it = detail.regression
    if not is_upstream(it.cause) or it.series_id is None or it.first_bad is None or it.first_bad.position is None:
        raise Conflict(
            f"the cause of R-{it.id} is {it.cause or 'not known yet'}; "
            "there is something to report upstream only when it is the environment"
        )
    onset = it.first_bad.position
    rows = store.runs_around(c, it.series_id, onset, before=RUNS_BESIDE, after=RUNS_BESIDE)
    before = next((row for row in reversed(rows) if row.position < onset and row.fingerprint), None)
    after = next((row for row in rows if row.position >= onset and row.fingerprint), None)
    if before is None or after is None:
        raise Conflict(f"the environment on one side of R-{it.id} is not stored any more")
    changed = differences(before.fingerprint, after.fingerprint)
    lead = detail.affected[0]
    variant = Variant(benchmark=lead.benchmark, variant_key=lead.variant, preset=lead.preset)
    kernels = profiles.around(c, config, it.series_id, variant, onset).kernels
    named = upstream_of(changed)
    newer = _versions(changed, 1) or "a newer environment"
    title = f"{_cell(lead.benchmark)} {percent(lead.change)} {worse_word(lead.unit, lead.direction)} with {newer}"
    text = "\n".join(
        [
            f"# {title}",
            "",
            _summary(detail, lead, changed),
            "",
            *_table_of_versions(before.fingerprint, after.fingerprint, changed),
            *_figures(detail),
            *_phases(detail),
            *_kernels(kernels),
            *_steps(detail, lead, before.fingerprint, after.fingerprint, changed),
            *_same_code(detail),
            f"_Measured by Tidemark {config.version}; R-{it.id} there._",
            "",
        ]
    )
    return UpstreamReport(regression_id=it.id, upstream=named, title=title, changed=changed, text=text)


def upstream_of(changed: Sequence[Difference]) -> str:
    """Whom to ask first."""
    names = {it.name.lower(): it for it in changed}
    for name, upstream in UPSTREAM.items():
        if any(known == name or known.startswith(f"{name}_") for known in names):
            return upstream
    return "the maintainers of what changed"


def _versions(changed: Sequence[Difference], most: int) -> str:
    known = sorted(changed, key=lambda it: list(UPSTREAM).index(it.name) if it.name in UPSTREAM else len(UPSTREAM))
    return ", ".join(
        f"{_cell(it.name)} {_cell(it.after or 'none')} (was {_cell(it.before or 'none')})" for it in known[:most]
    )


def _summary(detail: RegressionDetail, lead: AffectedSeries, changed: Sequence[Difference]) -> str:
    it = detail.regression
    return (
        f"On {_cell(it.testbed)}, {_cell(f'{lead.benchmark} {lead.variant}')} takes {percent(lead.change)} more "
        f"({_cell(lead.metric)}: "
        f"{_value(lead, lead.before)} → {_value(lead, lead.after)}) since {_versions(changed, 3)}. "
        f"{'It is so to this day.' if it.still_bad else 'The newest runs do not show it any more.'}"
    ).replace("  ", " ")


def _table_of_versions(before: Mapping[str, Any], after: Mapping[str, Any], changed: Sequence[Difference]) -> list[str]:
    moved = {it.name for it in changed}
    names = [*[it.name for it in changed], *(name for name in UPSTREAM if name in after and name not in moved)]
    names += [name for name in ("accelerator", "machine", "os", "cpu") if name in after and name not in moved]
    rows = [f"| {_cell(n)} | {_cell(before.get(n, ''))} | {_cell(after.get(n, ''))} |" for n in names]
    return ["## Versions", "", "| | before | after |", "|---|---|---|", *rows, ""]


def _figures(detail: RegressionDetail) -> list[str]:
    shown = [row for row in detail.affected if row.state != "withdrawn" and row.role in ("gate", "watch")][:MAX_SERIES]
    rows = [
        f"| {_cell(f'{row.benchmark} {row.variant}')} | {_cell(row.metric)} | {_value(row, row.before)} "
        f"| {_value(row, row.after)} | {percent(row.change)} | {'' if not row.noise else percent(row.noise)} |"
        for row in shown
    ]
    return [
        "## Figures", "", "| benchmark | metric | before | after | worse by | noise |", "|---|---|--:|--:|--:|--:|",
        *rows, "",
    ]  # fmt: skip


def _phases(detail: RegressionDetail) -> list[str]:
    known = [phase for phase in detail.phases if phase.difference is not None]
    if not known:
        return ["## Phases", "", "Not recorded for this benchmark.", ""]
    rows = [
        f"| {_cell(phase.metric)} | {phase.before:.4g} | {phase.after:.4g} "
        f"| {phase.difference:+.3g} {_cell(phase.unit)} |"
        for phase in sorted(known, key=lambda phase: -abs(phase.difference or 0.0))
    ]
    return ["## Phases", "", "| phase | before | after | moved by |", "|---|--:|--:|--:|", *rows, ""]


def _kernels(found: Any) -> list[str]:
    if found is None:
        return ["## Kernels", "", "No run near the onset was profiled on both sides.", ""]
    rows = [
        f"| {_cell(it.phase)} | `{_code(it.name)}` | {it.before_us:.4g} | {it.after_us:.4g} | {it.before_calls:.4g} "
        f"→ {it.after_calls:.4g} | {_cell(it.words)} |"
        for it in found.changes[:MAX_KERNELS]
    ]
    head = ["| phase | kernel | before, µs | after, µs | calls | |", "|---|---|--:|--:|---|---|"]
    return ["## Kernels", "", *head, *rows, ""]


def _steps(
    detail: RegressionDetail,
    lead: AffectedSeries,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    changed: Sequence[Difference],
) -> list[str]:
    """The shortest way to see it: one commit, measured in both environments."""
    moved = {it.name for it in changed}
    sides = []
    for name, environment in (("before", before), ("after", after)):
        versions = [
            shlex.quote(f"{package}=={environment[package]}")
            for package in INSTALLED
            if package in moved and VERSION.match(str(environment.get(package) or ""))
        ]
        install = f"pip install {' '.join(versions)} && " if versions else f"# in the environment of {name}:\n"
        sides.append(f"{install}{_command(detail, lead, f'{name}.json')}")
    lines = ["## To see it", "", "````sh", *(side.replace("````", "") for side in sides)]
    return [*lines, "tidemark compare before.json after.json", "````", ""]


def _command(detail: RegressionDetail, lead: AffectedSeries, out: str) -> str:
    """Of the commands that reproduce it, the one that measures, writing to this file."""
    for line in detail.reproduce.splitlines():
        if "../head.json" in line:
            return line.partition(" && ")[2].replace("../head.json", out)
    return f"python -P -m benchmarks run {shlex.quote(lead.benchmark)} --out {out}"


def _same_code(detail: RegressionDetail) -> list[str]:
    between = [suspect for suspect in detail.suspects if suspect.skipped_reason is None]
    if len(between) <= 1:
        said = "One commit lies between the two; the evidence speaks for the environment:"
    else:
        said = f"{len(between)} commits lie between the two; the evidence speaks for the environment:"
    return ["## Why not our code", "", said, "", *(f"- {_cell(sentence)}" for sentence in detail.evidence), ""]


def _value(row: AffectedSeries, number: float | None) -> str:
    return "?" if number is None else value(number, row.unit)


def _cell(text: object) -> str:
    """A stranger's text, also in a cell of a table: no markup, no link, no mention."""
    said = " ".join(untied(str(text)).split()).replace("\\", "\\\\").replace("`", "'")
    return said.replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")


def _code(text: str) -> str:
    """The same between backticks, where an escape would be shown as it is."""
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")
