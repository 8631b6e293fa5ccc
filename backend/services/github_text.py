"""What Tidemark says on GitHub, as Markdown: verdict first, only what changed, quiet when nothing did.

Pure: a report in, text out. Names of benchmarks and errors come from strangers' files, so every one is escaped.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from backend.services.commit_report import CommitReport, Line
from backend.services.commit_verdict import CommitVerdict

SHORT = 7
MAX_ROWS = 20
MAX_FOLDED = 30
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
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~@])")
SIGNS = {"regression": "▼", "suspect": "?", "improvement": "▲"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check run: its status, and once it is over its conclusion."""

    status: str
    conclusion: str | None
    title: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WasRed:
    """The last thing a comment had to complain of."""

    sha: str
    headline: str
    table: str


def plain(text: str, limit: int = 200) -> str:
    """A stranger's text in a line of Markdown: no markup, no link, no mention."""
    shortened = " ".join(text.split())
    shortened = shortened if len(shortened) <= limit else f"{shortened[: limit - 1]}…"
    # A backslash before `@` does not keep GitHub from notifying people; an entity does.
    return MARKDOWN.sub(lambda found: "&#64;" if found[0] == "@" else f"\\{found[0]}", escape(shortened, quote=False))


def percent(change: float | None) -> str:
    return "?" if change is None else f"{abs(change):.1%}".replace("%", " %")


def signed(change: float | None) -> str:
    return "?" if change is None else f"{100 * change:.1f}".replace("-", "−")


def name_of(line: Line) -> str:
    return f"{line.benchmark} {line.variant}" if line.variant else line.benchmark


def marker(project: str) -> str:
    """By this the comment is found again; one for each project that watches the repository."""
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
    parts += _table([*report.of("regression"), *report.of("suspect")])
    parts += _where(report)
    for run in report.failed:
        parts.append(f"**Did not run:** {plain(run.suite)} on {plain(run.testbed)}: {plain(run.error, MAX_ERROR)}")
    if parts[-1]:
        parts.append("")
    parts += [*_folded(report), *_before(report, was_red), _reproduce(report)]
    return parts


def headline(report: CommitReport, was_red: WasRed | None = None) -> str:
    """The verdict in one line."""
    slower, suspects = report.of("regression"), report.of("suspect")
    if slower:
        more = f", and {len(slower) - 1} more" if len(slower) > 1 else ""
        return f"▼ {percent(slower[0].change)} slower: {plain(name_of(slower[0]))} {plain(slower[0].metric)}{more}"
    if suspects:
        first = suspects[0]
        return f"? perhaps {percent(first.change)} slower: {plain(name_of(first))} {plain(first.metric)}"
    if report.failed:
        runs = "a run" if len(report.failed) == 1 else f"{len(report.failed)} runs"
        return f"✕ {runs} failed; nothing is known to be slower"
    if was_red is not None and report.complete:
        return f"▲ fixed by {report.sha[:SHORT]}"
    return "measuring again" if not report.complete else "nothing is slower"


def _context(report: CommitReport) -> str:
    against = f" against `{report.base[:SHORT]}`" if report.base else ""
    testbeds = ", ".join(dict.fromkeys(plain(line.testbed) for line in report.lines))
    where = f" on {testbeds}" if testbeds else ""
    return f"`{report.sha[:SHORT]}`{against}{where} · [open in Tidemark]({report.url})"


def _quiet_line(report: CommitReport) -> str:
    counts = report.counts
    said = [f"Unchanged: {counts.get('unchanged', 0)} series"]
    if counts.get("improvement"):
        best = report.of("improvement")[0]
        said.append(f"▲ {percent(best.change)} faster: {plain(name_of(best))} {plain(best.metric)}")
    if counts.get("insufficient"):
        said.append(f"{counts['insufficient']} still without a baseline")
    if report.waiting:
        said.append(f"waiting for {', '.join(map(plain, report.waiting))}")
    if not report.lines and report.reason:
        said = [f"Not benchmarked: {plain(report.reason)}"]
    return f"{'; '.join(said)}. `{report.sha[:SHORT]}` · [open in Tidemark]({report.url})"


def _table(lines: Sequence[Line]) -> list[str]:
    if not lines:
        return []
    rows = [
        "| benchmark | base | head | slower by | interval | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for line in lines[:MAX_ROWS]:
        sign = SIGNS[line.verdict]
        change = f"{sign} {percent(line.change)}"
        change = f"**{change}**" if line.verdict == "regression" else change
        known = line.low is not None and line.high is not None
        interval = f"{signed(line.low)} … {signed(line.high)} %" if known else ""
        base = "" if line.base is None else f"{line.base:.4g} {plain(line.unit)}"
        rows.append(
            f"| {plain(name_of(line))} · {plain(line.metric)} | {base} | {line.head:.4g} {plain(line.unit)} "
            f"| {change} | {interval} | {line.verdict} |"
        )
    if len(lines) > MAX_ROWS:
        rows.append(f"| … and {len(lines) - MAX_ROWS} more | | | | | |")
    return [*rows, ""]


def _where(report: CommitReport) -> list[str]:
    """Which parts of the step grew, of what is worst."""
    lead = next(iter((*report.of("regression"), *report.of("suspect"))), None)
    if lead is None:
        return []
    grown = [phase for phase in report.phases if (phase.benchmark, phase.variant) == (lead.benchmark, lead.variant)]
    total = sum(phase.growth for phase in grown)
    if not grown or total <= 0:
        return []
    shown = [
        f"{plain(phase.name)} +{phase.growth:.3g} {plain(phase.unit)} ({phase.growth / total:.0%})".replace("%", " %")
        for phase in grown[:3]
    ]
    return [f"**Where it went:** {', '.join(shown)}", ""]


def _folded(report: CommitReport) -> list[str]:
    counts, faster = report.counts, report.of("improvement")
    said = [f"{counts.get('unchanged', 0)} unchanged", f"{len(faster)} faster"]
    if counts.get("insufficient"):
        said.append(f"{counts['insufficient']} without a baseline yet")
    if report.waiting:
        said.append(f"{len(report.waiting)} runs waiting")
    inside = [f"▲ {percent(line.change)} {plain(name_of(line))} {plain(line.metric)}" for line in faster[:MAX_FOLDED]]
    inside += [f"not measured yet: {plain(waiting)}" for waiting in report.waiting[:MAX_FOLDED]]
    if not inside:
        return [", ".join(said) + ".", ""]
    return [f"<details><summary>{', '.join(said)}</summary>", "", " · ".join(inside), "", "</details>", ""]


def _before(report: CommitReport, was_red: WasRed | None) -> list[str]:
    """What was red before, when it is not any more."""
    if was_red is None or report.of("regression") or was_red.sha == report.sha:
        return []
    summary = f"at {was_red.sha[:SHORT]}: {was_red.headline}"
    return [f"<details><summary>{summary}</summary>", "", was_red.table, "", "</details>", ""]


def _reproduce(report: CommitReport) -> str:
    suites = " && ".join(f"tidemark run {suite}" for suite in report.suites if re.fullmatch(r"[\w.+-]+", suite))
    again = "run again: “Re-run” on the check"
    return f"Reproduce: `git checkout {report.sha[:12]} && {suites}` · {again}" if suites else again.capitalize()


def remembered(report: CommitReport) -> WasRed | None:
    """What a later comment folds away, if this one is red."""
    if not report.of("regression"):
        return None
    return WasRed(sha=report.sha, headline=headline(report), table="\n".join(_table(report.of("regression"))).rstrip())


# --- the check and the status ----------------------------------------------------------------------------------------


def check(report: CommitReport) -> Check:
    """The check run of a commit."""
    if report.verdict is CommitVerdict.NOT_BENCHMARKED:
        reason = report.reason or "no suite of its tidemark.toml was requested"
        return Check(status="completed", conclusion="skipped", title="Not benchmarked", summary=plain(reason, 1000))
    summary = "\n".join(_body(report, None))
    if not report.complete and report.verdict not in RED:
        status = "in_progress" if report.started else "queued"
        return Check(status=status, conclusion=None, title=_pending(report), summary=summary)
    conclusion = CONCLUSIONS.get(report.verdict, "success")
    return Check(status="completed", conclusion=conclusion, title=_title(report), summary=summary)


def _pending(report: CommitReport) -> str:
    return f"{len(report.waiting)} runs to go" if len(report.waiting) != 1 else f"Measuring {report.waiting[0]}"


def _title(report: CommitReport) -> str:
    if report.of("regression") or report.of("suspect") or report.failed:
        return headline(report).replace("\\", "")[:MAX_STATUS]
    faster = len(report.of("improvement"))
    return f"{report.counts.get('unchanged', 0)} unchanged" + (f", {faster} faster" if faster else "")


def commit_status(report: CommitReport) -> tuple[str, str]:
    """State and description of a commit status, for those without an app."""
    said = check(report)
    states = {"success": "success", "skipped": "success", "neutral": "success", "failure": "failure", None: "pending"}
    state = "error" if report.verdict is CommitVerdict.FAILED else states[said.conclusion]
    return state, said.title[:MAX_STATUS]
