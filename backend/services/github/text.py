"""Texts for GitHub, as Markdown: verdict first, only what changed, quiet when nothing did.

Pure: a report in, text out. Names of benchmarks and errors are untrusted, so every one is escaped.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape

from backend.regression.compare import CONFIDENCE
from backend.services.base.metric_words import worse_word
from backend.services.github.commit_report import CommitReport, MetricLine, Waiting
from backend.services.reports.commit_verdict import CommitVerdict
from backend.services.runs.steadiness import Steadiness

SHORT = 7
MAX_ROWS = 20
MAX_FOLDED = 30
MAX_CANARIES = 3
LEAST_SHARE = 0.01  # of what grew, to be named
MAX_ANNOTATIONS = 50  # GitHub takes so many at once
MAX_ERROR = 300
MAX_COMMENT = 60_000
MAX_STATUS = 140
RED = frozenset({CommitVerdict.REGRESSION})
# Red means slower: a run that failed is told, and fails nobody's check.
CONCLUSIONS = {
    CommitVerdict.REGRESSION: "failure",
    CommitVerdict.SUSPECT: "neutral",
    CommitVerdict.FAILED: "neutral",
}
SOURCE = re.compile(r"(?P<path>[^/\\:\x00-\x1f][^:\\\x00-\x1f]{0,299})(:(?P<line>[1-9][0-9]{0,6}))?")
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~])")
# Where GitHub, in the text as it is shown, would see somebody mentioned, an issue, or an address.
TIE = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
JOINER = "\u2060"  # has no width
SIGNS = {"regression": "▼", "suspect": "?", "improvement": "▲"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A sentence at a line of a file, next to the change under review."""

    path: str
    line: int
    level: str
    title: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check run: its status and, once it is finished, its conclusion."""

    status: str
    conclusion: str | None
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WasRed:
    """The last problem that a comment reported."""

    sha: str
    headline: str
    table: str


def plain(text: str, limit: int = 200) -> str:
    """Untrusted text in a line of Markdown: no markup, no link, no mention."""
    shortened = " ".join(text.split())
    shortened = shortened if len(shortened) <= limit else f"{shortened[: limit - 1]}…"
    return MARKDOWN.sub(r"\\\1", escape(untied(shortened), quote=False))


def untied(text: str) -> str:
    """Looks the same, but notifies nobody and links nowhere (GitHub looks for both after undoing escapes)."""
    return TIE.sub(JOINER, text)


def percent(change: float | None) -> str:
    return "?" if change is None else f"{abs(change):.1%}".replace("%", " %")


def signed(change: float | None) -> str:
    return "?" if change is None else f"{100 * change:.1f}".replace("-", "−")


def value(number: float, unit: str) -> str:
    """Four digits and the unit, if it has one."""
    shown = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
    return shown if unit == "1" else f"{shown} {plain(unit)}"


def name_of(line: MetricLine) -> str:
    return f"{line.benchmark} {line.variant}" if line.variant else line.benchmark


def marker(project: str) -> str:
    """The text by which the comment is found again; one for each project that watches the repository."""
    return f"<!-- tidemark:{escape(project)} -->"


# --- the comment -----------------------------------------------------------------------------------------------------


def comment(report: CommitReport, was_red: WasRed | None = None) -> str:
    """The comment on a pull request."""
    parts = [marker(report.project), *_body(report, was_red)]
    text = "\n".join(parts).rstrip() + "\n"
    if len(text) <= MAX_COMMENT:
        return text
    return f"{text[:MAX_COMMENT]}\n\n… shortened: [all of it]({report.url})\n"


def _body(report: CommitReport, was_red: WasRed | None) -> list[str]:
    if not (report.of("regression") or report.of("suspect") or report.failed or was_red):
        return [_quiet_line(report)]
    parts = [f"### {headline(report, was_red)}", _context(report), ""]
    parts += _table(report, report.worse)
    parts += _where(report)
    if report.steadiness is not None:
        parts += [machine(report.steadiness), ""]
    for run in report.failed:
        parts.append(f"**Did not run:** {plain(run.suite)} on {plain(run.testbed)}: {plain(run.error, MAX_ERROR)}")
    if parts[-1]:
        parts.append("")
    parts += _unknown(report)
    parts += [*_folded(report), *_before(report, was_red), _reproduce(report)]
    return parts


def headline(report: CommitReport, was_red: WasRed | None = None) -> str:
    """The verdict in one line."""
    slower = [line for line in report.lines if line.red]
    suspects = [line for line in report.of("suspect") if line.role == "gate"]
    if slower:
        more = f", and {len(slower) - 1} more" if len(slower) > 1 else ""
        return f"▼ {_sized(slower[0])}: {_named(slower[0])}{more}"
    if suspects:
        return f"? perhaps {_sized(suspects[0])}: {_named(suspects[0])}"
    if report.failed:
        runs = "a run" if len(report.failed) == 1 else f"{len(report.failed)} runs"
        return f"✕ {runs} failed; nothing is known to be slower"
    if was_red is not None and report.complete:
        return f"▲ fixed by {report.sha[:SHORT]}"
    return "measuring again" if not report.complete else "nothing that is judged is slower"


def _sized(line: MetricLine) -> str:
    return f"{percent(line.change)} {worse_word(line.unit, line.direction)}"


def _named(line: MetricLine) -> str:
    return f"{plain(name_of(line))} {plain(line.metric)}"


def _context(report: CommitReport) -> str:
    against = f" against its merge base `{report.base[:SHORT]}`" if report.base and report.pull_request else ""
    against = against or (f" against `{report.base[:SHORT]}`" if report.base else "")
    testbeds = ", ".join(dict.fromkeys(plain(line.testbed) for line in report.lines))
    where = f" on {testbeds}" if testbeds else ""
    lead = next(iter(report.worse), None)
    said = "" if lead is None else f" · {_agreement(lead)}"
    return f"`{report.sha[:SHORT]}`{against}{where}{said} · [open in Tidemark]({report.url})"


def _agreement(line: MetricLine) -> str:
    if line.verdict == "regression":
        return "the one run shows it" if line.runs == 1 else f"{line.worse} of {line.runs} runs show it"
    return f"{line.worse} of {line.runs} runs {'shows' if line.worse == 1 else 'show'} it, {line.needed} must agree"


def _quiet_line(report: CommitReport) -> str:
    counts = report.counts
    said = [f"Unchanged: {counts.get('unchanged', 0)} series"]
    if report.detectable is not None:
        said[0] += f", smallest change that would have been seen {percent(report.detectable)} (median)"
    if counts.get("improvement"):
        best = report.of("improvement")[0]
        said.append(f"▲ {percent(best.change)} better: {_named(best)}")
    said += _unknowns(report)
    if not report.lines and report.reason:
        said = [f"Not benchmarked: {plain(report.reason)}"]
    return f"{'; '.join(said)}. `{report.sha[:SHORT]}` · [open in Tidemark]({report.url})"


def _unknowns(report: CommitReport) -> list[str]:
    """Open questions of a report, each as part of a sentence."""
    said = []
    young = [line for line in report.lines if line.verdict == "insufficient"]
    if young:
        more = max(line.still_needed for line in young)
        wanted = f" ({more} more {'run' if more == 1 else 'runs'} of the branch)" if more else ""
        said.append(f"{len(young)} without a baseline yet{wanted}")
    if report.counts.get("unsteady"):
        said.append(f"{report.counts['unsteady']} too unsteady to judge")
    if report.waiting:
        listed = ", ".join(map(waiting_for, report.waiting[:MAX_FOLDED]))
        said.append(f"waiting for {listed}")
    return said


def waiting_for(run: Waiting) -> str:
    """A run that is not finished, with when it will be."""
    eta = "" if run.eta_s is None else f", about {minutes(run.eta_s)}"
    return f"{plain(run.suite)} on {plain(run.testbed)}{eta}"


def minutes(seconds: float) -> str:
    return "a minute" if seconds < 90 else f"{seconds / 60:.0f} min"


def _unknown(report: CommitReport) -> list[str]:
    said = _unknowns(report)
    return [f"**Not known yet:** {'; '.join(said)}.", ""] if said else []


def _table(report: CommitReport, lines: Sequence[MetricLine]) -> list[str]:
    if not lines:
        return []
    rows = [
        f"| benchmark | base | head | worse by | {CONFIDENCE:.0%} interval | |".replace("%", " %"),
        "|---|--:|--:|--:|--:|---|",
    ]
    for line in lines[:MAX_ROWS]:
        change = f"{SIGNS[line.verdict]} {percent(line.change)}"
        change = f"**{change}**" if line.red else change
        known = line.low is not None and line.high is not None
        interval = f"{signed(line.low)} … {signed(line.high)} %" if known else "exact" if line.exact else ""
        base = "" if line.base is None else value(line.base, line.unit)
        rows.append(
            f"| {plain(name_of(line))} · {plain(line.metric)} | {base} | {value(line.head, line.unit)} "
            f"| {change} | {interval} | {_status(report, line)} |"
        )
    if len(lines) > MAX_ROWS:
        rows.append(f"| … and {len(lines) - MAX_ROWS} more | | | | | |")
    return [*rows, ""]


def _status(report: CommitReport, line: MetricLine) -> str:
    """The last column: what is said of it, and what happens next."""
    if line.role == "watch":
        return f"{line.verdict}, only watched"
    if line.verdict != "suspect":
        return line.verdict
    again = next((it for it in report.waiting if (it.suite, it.testbed) == (line.suite, line.testbed)), None)
    if again is None:
        return "suspect"
    return "measuring again" + ("" if again.eta_s is None else f", about {minutes(again.eta_s)}")


def _where(report: CommitReport) -> list[str]:
    """Which parts of the step grew, of what is worst."""
    lead = next(iter(report.worse), None)
    if lead is None:
        return []
    grown = [phase for phase in report.phases if (phase.benchmark, phase.variant) == (lead.benchmark, lead.variant)]
    total = sum(phase.growth for phase in grown)
    if not grown or total <= 0:
        return []
    shown = [
        f"{plain(phase.name)} +{phase.growth:.3g} {plain(phase.unit)} ({phase.growth / total:.0%})".replace("%", " %")
        for phase in grown[:3]
        if phase.growth >= LEAST_SHARE * total
    ]
    return [f"**Where it went:** {', '.join(shown)}", ""]


def machine(found: Steadiness) -> str:
    """Is it the machine? What stayed steady, or what did not."""
    said = []
    for canary in found.canaries[:MAX_CANARIES]:
        if canary.moved:
            way = "slower" if canary.change > 0 else "faster"
            said.append(f"canary {plain(canary.name)} is {percent(canary.change)} {way}, which no commit can cause")
    if found.canaries and not any(canary.moved for canary in found.canaries):
        most = max(abs(canary.change) for canary in found.canaries)
        said.append(f"canary steady (±{percent(most)})")
    if found.environment:
        named = ", ".join(
            f"{plain(it.name)} {plain(it.before or 'none', 40)} → {plain(it.after or 'none', 40)}"
            for it in found.environment[:3]
        )
        said.append(f"the environment differs: {named}" + (" …" if len(found.environment) > 3 else ""))
    elif found.environment is not None:
        said.append("same environment on both sides")
    if found.throttle:
        said.append(f"throttled: {', '.join(map(plain, found.throttle))}")
    if found.unmoved:
        said.append(f"{found.unmoved} other series of the same run unmoved")
    if not found.canaries:
        said.append("no canary was measured")
    title = "Not the machine" if found.is_steady else "Is it the machine?"
    return f"**{title}{'' if title.endswith('?') else ':'}** {', '.join(said)}."


def _folded(report: CommitReport) -> list[str]:
    counts, faster = report.counts, report.of("improvement")
    said = [f"{counts.get('unchanged', 0)} unchanged", f"{len(faster)} faster"]
    if report.detectable is not None:
        said.append(f"smallest change that would have been seen {percent(report.detectable)} (median)")
    inside = [f"▲ {percent(line.change)} {_named(line)}" for line in faster[:MAX_FOLDED]]
    if not inside:
        return [", ".join(said) + ".", ""]
    return [f"<details><summary>{', '.join(said)}</summary>", "", " · ".join(inside), "", "</details>", ""]


def _before(report: CommitReport, was_red: WasRed | None) -> list[str]:
    """The folded account of an earlier red state, where it is red no more."""
    if was_red is None or report.of("regression") or was_red.sha == report.sha:
        return []
    summary = f"at {was_red.sha[:SHORT]}: {was_red.headline}"
    return [f"<details><summary>{summary}</summary>", "", was_red.table, "", "</details>", ""]


def _reproduce(report: CommitReport) -> str:
    suites = " && ".join(f"tidemark run {suite}" for suite in report.suites if re.fullmatch(r"[\w.+-]+", suite))
    again = "comment `/tidemark rerun`, or “Re-run” on the check" if report.pull_request else "“Re-run” on the check"
    return (f"Reproduce: `git checkout {report.sha[:12]} && {suites}` · " if suites else "") + f"run again: {again}"


def red_of(report: CommitReport) -> WasRed | None:
    """The red state that a later comment folds away; None if this report is not red."""
    red = report.of("regression")
    if not any(line.red for line in red):
        return None
    return WasRed(sha=report.sha, headline=headline(report), table="\n".join(_table(report, red)).rstrip())


# --- the check and the status ----------------------------------------------------------------------------------------


def check(report: CommitReport) -> CheckRun:
    """The check run of a commit."""
    if report.verdict is CommitVerdict.NOT_BENCHMARKED:
        reason = report.reason or "no suite of its tidemark.toml was requested"
        return CheckRun(status="completed", conclusion="skipped", title="Not benchmarked", summary=plain(reason, 1000))
    summary = "\n".join(_body(report, None))
    if not report.complete and report.verdict not in RED:
        status = "in_progress" if report.started else "queued"
        return CheckRun(status=status, conclusion=None, title=_pending(report), summary=summary)
    conclusion = CONCLUSIONS.get(report.verdict, "success")
    return CheckRun(
        status="completed",
        conclusion=conclusion,
        title=_title(report),
        summary=summary,
        annotations=tuple(annotations(report)),
    )


def annotations(report: CommitReport) -> Iterator[Annotation]:
    """Annotations of regressions, at the file of their benchmark if it names one."""
    shown = 0
    for line in report.worse:
        place = SOURCE.fullmatch(line.source or "")
        if place is None or ".." in place["path"].split("/") or shown == MAX_ANNOTATIONS:
            continue
        shown += 1
        interval = "" if line.low is None else f" ({signed(line.low)} … {signed(line.high)} %)"
        base = "" if line.base is None else f": {value(line.base, line.unit)} → {value(line.head, line.unit)}"
        yield Annotation(
            path=place["path"],
            line=int(place["line"] or 1),
            level="failure" if line.red else "warning",
            title=f"{_sized(line)}: {name_of(line)}"[:255],
            message=f"{line.metric}{base}, {line.verdict}{interval}"[:2000],
        )


def _pending(report: CommitReport) -> str:
    if len(report.waiting) == 1:
        return f"Measuring {report.waiting[0].suite} on {report.waiting[0].testbed}"
    etas = [run.eta_s for run in report.waiting if run.eta_s is not None]
    return f"{len(report.waiting)} runs to go" + (f", about {minutes(max(etas))}" if etas else "")


def _title(report: CommitReport) -> str:
    if report.of("regression") or report.of("suspect") or report.failed:
        return unescape(re.sub(r"\\(.)", r"\1", headline(report)))[:MAX_STATUS]  # a title is no Markdown
    faster = len(report.of("improvement"))
    return f"{report.counts.get('unchanged', 0)} unchanged" + (f", {faster} faster" if faster else "")


def commit_status(report: CommitReport) -> tuple[str, str]:
    """State and description of a commit status, for setups without an app."""
    said = check(report)
    states = {"success": "success", "skipped": "success", "neutral": "success", "failure": "failure", None: "pending"}
    state = "error" if report.verdict is CommitVerdict.FAILED else states[said.conclusion]
    return state, said.title[:MAX_STATUS]
