"""The texts of messages to people: as Markdown for chats, as HTML for mail. Pure.

Names of benchmarks and messages of commits are untrusted: they never become markup, mentions or links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from backend.services.base.metric_words import worse_word
from backend.services.notify.concerns import NOTIFIED_EVENTS
from backend.services.triage.detail import RegressionDetail
from backend.services.triage.views import Regression

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
GOOD = frozenset({"fixed", "withdrawn", "expected", "invalid"})
MARKUP = str.maketrans({"<": "‹", ">": "›", "@": "@\u200b", "[": "(", "]": ")", **dict.fromkeys("*`~|\\", " ")})
MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class NotifiedEvent:
    """A regression and the event to report."""

    event: str
    detail: RegressionDetail
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSection:
    """A list with a heading in a message."""

    title: str
    lines: tuple[tuple[str, str], ...]
    """Text and the address it links to (or none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMessage:
    """A message in both forms."""

    title: str
    markdown: str
    html: str


def of_test(project: str, rule: str, public_url: str) -> WrittenMessage:
    lead = "This is a test: messages from this rule arrive here."
    return _written(f"Tidemark: test of “{_line(rule)}”", lead, [("Project", project)], [], public_url, "Open Tidemark")


def of_event(event: NotifiedEvent, public_url: str) -> WrittenMessage:
    """One regression, with what a reader needs to decide whether to open it."""
    it = event.detail.regression
    commit = it.fixed_by if event.event == "fixed" and it.fixed_by else it.first_bad
    facts = [
        ("Change", _change(it)),
        ("Suite", f"{it.suite or 'gone'} on {', '.join(it.testbeds)}"),
        (
            "Cause",
            f"{it.cause or 'not known'}: {' '.join(event.detail.evidence)}" if event.detail.evidence else it.cause,
        ),
        (
            "Commit",
            f"{commit.sha[:10]} {commit.message}" + (f" ({commit.author})" if commit.author else "")
            if commit
            else None,
        ),
        ("Suspects", f"{it.suspect_commits} commits" if (it.suspect_commits or 0) > 1 else None),
        ("Affected", f"{it.series} series" if it.series > 1 else None),
        ("Owners", ", ".join(event.owners) or None),
        ("Reason", it.reason),
    ]
    title = f"{NOTIFIED_EVENTS[event.event]}: {_line(it.title)} (R-{it.id}, {_line(it.project)})"
    return _written(
        title,
        NOTIFIED_EVENTS[event.event],
        [(name, _line(value)) for name, value in facts if value],
        [],
        f"{public_url.rstrip('/')}/regressions/{it.id}",
        f"Open R-{it.id}",
        is_good=event.event in GOOD,
        headline=_line(it.title),
    )


def of_events(project: str, several: Sequence[NotifiedEvent], public_url: str) -> WrittenMessage:
    """Several at once, one line each."""
    lines = tuple(
        (f"{NOTIFIED_EVENTS[event.event]}: {_summary(event.detail.regression)}", _url(event, public_url))
        for event in several
    )
    title = f"{len(several)} changes in {_line(project)}"
    section = MessageSection(title="Changes", lines=_shortened(lines))
    return _written(title, title, [], [section], _list_url(project, public_url), "Open the list")


def of_digest(project: str, period: str, sections: Sequence[MessageSection], public_url: str) -> WrittenMessage:
    filled = [MessageSection(title=each.title, lines=_shortened(each.lines)) for each in sections if each.lines]
    lead = "What changed, and what is still bad." if filled else "Nothing changed, and nothing is slower than it was."
    return _written(f"{_line(project)}: {period}", lead, [], filled, _list_url(project, public_url), "Open the list")


def line_of(regression: Regression, public_url: str) -> tuple[str, str]:
    """A regression as a line of a list."""
    return _summary(regression), f"{public_url.rstrip('/')}/regressions/{regression.id}"


def _summary(it: Regression) -> str:
    return f"R-{it.id} {_line(it.title)}, on {it.testbed}"


def _url(event: NotifiedEvent, public_url: str) -> str:
    return f"{public_url.rstrip('/')}/regressions/{event.detail.regression.id}"


def _list_url(project: str, public_url: str) -> str:
    return f"{public_url.rstrip('/')}/regressions?project={project}"


def _shortened(lines: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    left = len(lines) - MOST_LINES
    return (*lines[:MOST_LINES], *([(f"and {left} more", "")] if left > 0 else []))


def _change(it: Regression) -> str | None:
    if it.change is None:
        return None
    values = (
        f", from {it.before:.4g} to {it.after:.4g} {it.unit}" if it.before is not None and it.after is not None else ""
    )
    return f"{100 * it.change:+.1f} % ({worse_word(it.unit, it.direction)}){values}"


def _line(text: str | None) -> str:
    """One line of plain text that no chat takes for markup, a mention or a link."""
    return " ".join((text or "").translate(MARKUP).replace("://", " ").split())[:300]


def _written(
    title: str,
    lead: str,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[MessageSection],
    url: str,
    button: str,
    *,
    is_good: bool = False,
    headline: str | None = None,
) -> WrittenMessage:
    lines = [f"**{headline}**" if headline else lead, *(f"{name}: {value}" for name, value in facts)]
    for section in sections:
        lines += ["", f"**{section.title}**"]
        lines += [f"- [{text}]({to})" if to else f"- {text}" for text, to in section.lines]
    html = TEMPLATES.get_template("mail.html").render(
        title=title,
        lead=lead,
        headline=headline,
        facts=facts,
        sections=sections,
        url=url,
        button=button,
        is_good=is_good,
    )
    return WrittenMessage(title=title, markdown="\n".join([*lines, "", f"[{button}]({url})"]), html=html)
