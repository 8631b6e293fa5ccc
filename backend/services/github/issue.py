"""The issue on GitHub of one confirmed regression of the default branch, as Markdown. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.services.github.text import percent, plain, value
from backend.services.triage.detail import AffectedSeries, RegressionDetail

MAX_SERIES = 20
MAX_SUSPECTS = 20
MAX_EVENTS = 20
MAX_BODY = 60_000
# GitHub's word for why an issue is closed; what is not here is open.
CLOSED: Mapping[str, str] = {
    "fixed": "completed",
    "expected": "not_planned",
    "invalid": "not_planned",
    "withdrawn": "not_planned",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """An issue in its intended state on GitHub."""

    title: str
    body: str
    state: str
    state_reason: str | None


def marker(project: str, regression_id: int) -> str:
    """The text by which an issue is found again if its creation was not confirmed to us."""
    return f"<!-- tidemark:{plain(project)}:regression:{regression_id} -->"


def issue(detail: RegressionDetail, public_url: str) -> Issue:
    """The issue text of a regression in its current state."""
    it = detail.regression
    body = "\n".join(
        [
            marker(it.project, it.id),
            f"**{_status(detail)}** [R-{it.id} in Tidemark]({public_url.rstrip('/')}/regressions/{it.id})",
            "",
            *_series(detail),
            *_where(detail),
            *_cause(detail),
            *_suspects(detail),
            *_reproduce(detail),
            *_history(detail),
        ]
    )
    commit = f" since {it.commit[:7]}" if it.commit else ""
    reason = CLOSED.get(it.state)
    return Issue(
        title=f"{plain_title(it.title)}{commit} (R-{it.id})",
        body=body[:MAX_BODY],
        state="open" if reason is None else "closed",
        state_reason=reason,
    )


def plain_title(text: str) -> str:
    """Titles are not Markdown, and mention nobody."""
    return " ".join(text.split()).replace("@", "(at)")[:200]


def _status(detail: RegressionDetail) -> str:
    it = detail.regression
    match it.state:
        case "fixed":
            return f"Fixed by {it.fixed_by.sha[:12]}." if it.fixed_by else "Fixed."
        case "expected":
            return f"Accepted: {plain(it.reason or 'without a reason', 500)}."
        case "invalid":
            return f"Not real: {plain(it.reason or 'without a reason', 500)}."
        case "withdrawn":
            return "Withdrawn: later runs do not show it."
    owner = f" {plain(it.owner)} is on it." if it.owner else ""
    return ("Still so at the newest commit." if it.still_bad else "The newest runs do not show it.") + owner


def _series(detail: RegressionDetail) -> list[str]:
    shown = [row for row in detail.affected if row.state != "withdrawn"][:MAX_SERIES]
    if not shown:
        return []
    rows = ["| series | before | after | worse by | |", "|---|--:|--:|--:|---|"]
    for row in shown:
        name = f"{plain(row.benchmark)} {plain(row.variant)}".strip()
        rows.append(
            f"| {name} · {plain(row.metric)} on {plain(detail.regression.testbed)} | {_value(row, row.before)} "
            f"| {_value(row, row.after)} | {percent(row.change)} | {row.state} |"
        )
    more = len(detail.affected) - len(shown)
    return [*rows, *([f"| … and {more} more | | | | |"] if more > 0 else []), ""]


def _value(row: AffectedSeries, number: float | None) -> str:
    return "" if number is None else value(number, row.unit)


def _where(detail: RegressionDetail) -> list[str]:
    grown = sorted(
        (phase for phase in detail.phases if phase.difference and phase.difference > 0 and phase.share),
        key=lambda phase: -(phase.share or 0.0),
    )[:3]
    if not grown:
        return []
    named = [
        f"{plain(it.metric.removesuffix('_ms'))} +{it.difference:.3g} {plain(it.unit)} ({percent(it.share)})"
        for it in grown
    ]
    return [f"**Where it went:** {', '.join(named)}", ""]


def _cause(detail: RegressionDetail) -> list[str]:
    if not detail.regression.cause:
        return []
    evidence = [f"- {plain(sentence, 500)}" for sentence in detail.evidence]
    return [f"**Cause: {detail.regression.cause}**", *evidence, ""]


def _suspects(detail: RegressionDetail) -> list[str]:
    if not detail.suspects:
        return []
    shown = [
        f"- {suspect.sha} {plain(suspect.message, 100)} ({plain(suspect.author)})"
        + (" **← first bad**" if suspect.first_bad else "")
        for suspect in detail.suspects[:MAX_SUSPECTS]
    ]
    more = len(detail.suspects) - len(shown)
    return ["**Suspect commits**", *shown, *([f"- … and {more} more"] if more > 0 else []), ""]


def _reproduce(detail: RegressionDetail) -> list[str]:
    # Four backticks: a command could hold three.
    return ["**Reproduce**", "````sh", detail.reproduce.replace("````", ""), "````", ""] if detail.reproduce else []


def _history(detail: RegressionDetail) -> list[str]:
    lines = [
        f"- {event.at:%Y-%m-%d %H:%M} UTC {plain(event.kind)} by {plain(event.actor)}"
        + (f": {plain(event.note, 300)}" if event.note else "")
        for event in detail.events[-MAX_EVENTS:]
    ]
    return ["<details><summary>What happened</summary>", "", *lines, "", "</details>"] if lines else []
