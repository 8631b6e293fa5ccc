"""The history of a regression, a line for each event."""

from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from backend.services.triage.detail import RegressionEvent
from frontend.markup import EMPTY, html
from frontend.render import visible
from frontend.words import plural

EVENT_WORDS = {
    "suspected": "Suspected",
    "confirmed": "Confirmed",
    "relocated": "Onset moved",
    "fixed": "Fixed",
    "withdrawn": "Withdrawn: later runs disagree",
    "infra_alarm": "Infra alarm instead of a regression",
    "acknowledged": "Acknowledged",
    "released": "Released, unassigned",
    "expected": "Accepted as expected",
    "invalid": "Called not real",
    "reopened": "Reopened",
    "undone": "The last decision was undone",
    "split": "Split",
    "merged": "Merged",
    "session": "Base and head measured in turn",
    "bisecting": "Bisection begun",
    "bisected": "Bisected",
    "note": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    at: datetime
    actor: str
    text: Markup
    css: str


def line_of(event: RegressionEvent) -> HistoryLine:
    words, place = EVENT_WORDS.get(event.kind, event.kind.replace("_", " ").capitalize()), "at"
    if event.kind == "relocated":
        place = "to"
        if event.detail.get("from") == event.detail.get("position"):
            words, place = "Another last good commit", "before"
    text = html("<b>{}</b>", words) if words else EMPTY
    commit = event.detail.get("commit")
    if isinstance(commit, str) and commit:
        text += html(' {} <span class="mono">{}</span>', place, visible(commit)[:7])
    owner = (event.detail.get("became") or {}).get("owner")
    if event.kind == "acknowledged" and owner not in (None, event.actor):
        text += html(" for <bdi>{}</bdi>", visible(owner))
    text += moved_of(event)
    if event.note:
        text += html(" <bdi>“{}”</bdi>", visible(event.note))
    person = event.actor not in ("", "tidemark", "Tidemark")
    return HistoryLine(
        at=event.at,
        actor=event.actor or "Tidemark",
        text=text,
        css="hot" if event.kind in ("confirmed", "infra_alarm") else "man" if person else "",
    )


def moved_of(event: RegressionEvent) -> Markup:
    """The way that change points went in a split or a merge."""
    moved = event.detail.get("moved")
    if moved is None:
        return EMPTY
    ends = [html('<a href="/regressions/{0}">R-{0}</a>', moved[end]) for end in ("from", "to")]
    return html(": {} from {} to {}", plural(len(moved["points"]), "change"), *ends)
