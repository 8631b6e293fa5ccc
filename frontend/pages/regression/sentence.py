"""A regression in a sentence and seven facts: how much, since when, whether still, and its cause."""

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from backend.services.base.metric_words import change_word, worse_word
from backend.services.triage.detail import AffectedSeries, ImprovedSeries, RegressionDetail, RegressionEvent
from backend.services.triage.views import Regression
from frontend import numbers
from frontend.markup import EMPTY, html, joined
from frontend.pages.regression.wording import interval_of, name_of, still, worsened
from frontend.render import visible
from frontend.words import plural

VERBS = {
    "may": {"slower": "be", "more memory": "take", "more": "cost"},
    "now": {"slower": "is", "more memory": "takes", "more": "costs"},
    "then": {"slower": "was", "more memory": "took", "more": "cost"},
}


DECIDED = {
    "expected": ", which was accepted as expected.",
    "invalid": ", but a person marked it as not real.",
    "withdrawn": ", but later runs disagreed; it was withdrawn.",
}


def face_of(detail: RegressionDetail) -> AffectedSeries | None:
    """The series that the page shows: a measured gate before a counted one, as "slower" is what people ask about."""
    gates = [each for each in detail.affected if each.role == "gate" and each.state != "withdrawn"]
    measured = [each for each in gates if not each.exact and each.unit != "B"]
    return max(measured, key=lambda each: each.change, default=next(iter(gates or detail.affected), None))


def sizes_of(it: Regression, affected: tuple[AffectedSeries, ...]) -> Markup:
    """Is so much slower, and takes so much more memory: the largest change of each kind."""
    largest: dict[str, float] = {}
    for each in affected:
        if each.role == "gate" and each.state != "withdrawn":
            kind = worse_word(each.unit, each.direction)
            largest[kind] = max(largest.get(kind, 0.0), each.change)
    if not largest:
        largest = {worsened(it): it.change or 0.0}
    order = ("slower", "more memory", "more", "worse")
    said = [(largest[kind], kind) for kind in order if kind in largest]
    tense = "may" if it.state == "suspect" and not it.held_back else "now" if it.still_bad else "then"
    parts = [
        html(
            '{} <span class="bad">{} {}</span>',
            VERBS[tense].get(kind, VERBS[tense]["slower"]),
            numbers.percent(size),
            kind,
        )
        for size, kind in said
    ]
    return html("{}{}", "may " if tense == "may" else "", joined(parts, " and "))


def sentence_of(it: Regression, affected: tuple[AffectedSeries, ...]) -> Markup:
    """The answer first: what, how much, since when, still?, why."""
    since = EMPTY
    if it.first_bad is not None:
        link = html('<a class="mono" href="#commits">{}</a>', it.first_bad.sha[:7])
        sure = it.suspect_commits == 1
        since = html(" since {}", link) if sure else html(" since {} or shortly before", link)
    drift = ", by many small losses," if it.kind == "drift" else ""
    return html("{} {}{}{}{}", visible(name_of(it)), sizes_of(it, affected), drift, since, ending(it))


def merged_sentence(it: Regression, events: Sequence[RegressionEvent]) -> Markup:
    """Of a regression that became part of another: which; else nothing."""
    last = events[-1].detail if events else {}
    into = last.get("part_of", last.get("moved", {}).get("to"))
    if it.state != "withdrawn" or into is None:
        return EMPTY
    return html('{0} is part of <a href="/regressions/{1}">R-{1}</a>.', visible(name_of(it)), into)


def ending(it: Regression) -> str:
    """Its status, and its cause."""
    if it.state in DECIDED:
        return DECIDED[it.state]
    if it.state == "fixed":
        return f", until {it.fixed_by.sha[:7]} fixed it." if it.fixed_by else ", and is fixed."
    if it.state == "suspect" and not it.held_back:
        return "; more runs will decide."
    still_so = " and still is" if it.still_bad else ""
    if it.cause == "code":
        return f"{still_so}; the cause is code{whose(it)}."
    return f"{still_so}; the cause is the {it.cause}, not the code." if it.cause else f"{still_so}."


def whose(it: Regression) -> str:
    """: j.tsai’s “router: top-k in fp32”, if one commit is left; nobody is named while several could be it."""
    if it.suspect_commits is not None and it.suspect_commits > 1:
        return f": one of {plural(it.suspect_commits, 'commit')}, not yet bisected"
    if it.first_bad is None or not it.first_bad.message or it.suspect_commits is None:
        return ""
    author = f"{visible(it.first_bad.author)}’s " if it.first_bad.author else ""
    return f": {author}“{visible(it.first_bad.message)[:90]}”"


def facts(detail: RegressionDetail, face: AffectedSeries | None, now: datetime) -> list[tuple[str, Markup | str, str]]:
    """Seven facts, of the series that the page shows."""
    it = detail.regression
    bad = it.first_bad
    change, before, after, unit = it.change, it.before, it.after, it.unit
    if face is not None:
        change, before, after, unit = face.change, face.before, face.after, face.unit
    interval = interval_of(it, change)
    word = worsened(it) if face is None else worse_word(face.unit, face.direction)
    at = bad.committed_at if bad else None
    suites = ", ".join(sorted({each.suite for each in detail.affected}))
    return [
        (face.metric if face else it.metric or "Value", numbers.before_and_after(before, after, unit), ""),
        (f"{word.capitalize()} by", html('<span class="bad">▼ {}</span>', numbers.percent(change)), interval),
        ("Still so", still(it, short=True), latest(face)),
        ("Since", f"{numbers.stamp(at)} UTC" if at else "–", since(at, now)),
        (
            "Suspect",
            plural(it.suspect_commits, "commit") if it.suspect_commits else "–",
            "exact" if it.suspect_commits == 1 else "",
        ),
        ("Where", ", ".join(it.testbeds), ""),
        ("Affected", plural(len(detail.affected), "series", "series"), suites),
    ]


def since(at: datetime | None, now: datetime) -> str:
    """How long ago; nothing where that would only say the date again."""
    said = numbers.ago(at, now) if at else ""
    return said if said.endswith("ago") else ""


def latest(face: AffectedSeries | None) -> str:
    """The series' current level."""
    if face is None or face.latest_change is None:
        return ""
    return f"{numbers.cost_change(face.latest_change)} in the latest run"


GAINS_NAMED = 3


def gained(series: Sequence[ImprovedSeries]) -> str:
    """The largest improvement at the same commit, to be weighed against it; empty where there is none."""
    found = [
        f"{each.metric} of {each.benchmark} {each.variant.replace(',', ', ')}".strip()
        + f" got {numbers.percent(abs(each.change))} {change_word(each.unit, each.direction, each.change)}"
        for each in sorted(series, key=lambda each: each.change)[:GAINS_NAMED]
    ]
    if len(series) > GAINS_NAMED:
        found.append(f"{plural(len(series) - GAINS_NAMED, 'further metric')} got better")
    return f"At the same commit {'; '.join(found)}: weigh both." if found else ""


def counted_early(detail: RegressionDetail) -> str:
    """Why the evidence may count fewer or more series than are affected; nothing where it counts none."""
    same = f"{len(detail.affected)} of "
    if not any(" series of " in text and not text.startswith(same) for text in detail.evidence):
        return ""
    affected = plural(len(detail.affected), "series is", "series are")
    return (
        "The series that moved were counted in the one run that settled the cause, of its suite alone; "
        f"{affected} affected by now, counted over all runs since."
    )


def cause_title(it: Regression) -> str:
    titles = {
        "code": "Why it is the code",
        "environment": "Why it is the environment",
        "hardware": "Why it is the machine",
        "method": "Why it is the method",
        "noise": "Why it is noise",
    }
    return titles.get(it.cause or "", "What may have caused it")
