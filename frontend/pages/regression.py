"""One regression: do I believe it, who caused it, what do I do?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from backend.regression.regression_state import OPEN
from backend.services.base.errors import BadRequest, Conflict
from backend.services.base.metric_words import change_word, worse_word
from backend.services.base.principal import Scope
from backend.services.github import outbox as github_outbox
from backend.services.github import upstream_report
from backend.services.github.upstream_report import UpstreamReport
from backend.services.people.members import assignable
from backend.services.plans.bisect import bisection_obstacle, cancel_bisection, start_bisection
from backend.services.plans.bisection_views import BisectionStep, BisectionView, bisection_of_regression
from backend.services.reports import explanations, history
from backend.services.runs import profiles
from backend.services.sessions.request import sessions_of_regression
from backend.services.triage import regroup
from backend.services.triage import views as service
from backend.services.triage.views import (
    AffectedSeries,
    ImprovedSeries,
    Regression,
    RegressionDetail,
    RegressionEvent,
    SuspectCommit,
)
from frontend import numbers
from frontend.evidence import kernel_panel, memory_panel, moved_in_time, phase_panel, roofline_panel, session_panel
from frontend.figures.of_points import trend_of
from frontend.figures.trend import trend_figure
from frontend.frame import Visit, Visiting
from frontend.links import diff_url, link, web_address
from frontend.markup import EMPTY, html, joined
from frontend.pages.regressions import interval_of, name_of, still, worsened
from frontend.render import script_json, tag, visible
from frontend.words import plural

router = APIRouter(include_in_schema=False)

SMALLEST_ODDS = 0.005  # a less likely commit of a bisection shows no figure
BEFORE, AFTER = 60, 40  # points of the trend around the onset
LIVE = ("suspect", "confirmed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCommit:
    sha: str
    message: str
    author: str
    at: datetime | None
    href: str
    guilty: bool
    mark: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionOnset:
    """Where gates of a regression began to show it: one place, else it may be two cases."""

    position: int
    name: str
    series: int
    is_its_own: bool
    """Where the regression as a whole is said to begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    at: datetime
    actor: str
    text: Markup
    css: str


@router.post("/regressions/{regression_id}/bisect")
def bisect_action(
    visit: Visiting,
    regression_id: int,
    action: Annotated[str, Form(max_length=20)] = "start",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Close the range between the last good and the first bad commit, or stop closing it."""
    visit.check_action(csrf_token, Scope.SUBMIT, regressions=[regression_id])
    known = bisection_of_regression(visit.c, regression_id)
    if action == "start":
        start_bisection(visit.c, regression_id, visit.principal.name, visit.config, visit.now)
    elif action == "cancel" and known is not None:
        cancel_bisection(visit.c, known.id, f"cancelled by {visit.principal.name}", visit.now)
    else:
        raise BadRequest.field("action", action, ["start", "cancel"])
    return RedirectResponse(f"/regressions/{regression_id}#commits", status_code=303)


@router.post("/regressions/{regression_id}/split")
def split(
    visit: Visiting,
    regression_id: int,
    onset: Annotated[int, Form(ge=0, le=2**31 - 1)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make what began at another commit a case of its own."""
    visit.check_action(csrf_token, Scope.WRITE, regressions=[regression_id])
    regroup.act_split(visit.c, visit.principal, regression_id, onset, visit.now)
    return RedirectResponse(f"/regressions/{regression_id}", status_code=303)


@router.post("/regressions/{regression_id}/merge")
def merge(
    visit: Visiting,
    regression_id: int,
    into: Annotated[int, Form(ge=1, le=2**31 - 1)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make it part of another case, whose page has the way back."""
    visit.check_action(csrf_token, Scope.WRITE, regressions=[regression_id, into])
    regroup.act_merge(visit.c, visit.principal, regression_id, into, visit.now)
    return RedirectResponse(f"/regressions/{into}", status_code=303)


@router.get("/regressions/{regression_id}")
def regression_page(visit: Visiting, regression_id: int) -> Response:
    detail = service.get_regression(visit.c, regression_id)
    it = detail.regression
    open_ones = service.list_regressions(
        visit.c, service.RegressionFilter(project=it.project, state="suspect,open", limit=200)
    ).items
    neighbours = [each.id for each in open_ones]
    place = neighbours.index(it.id) if it.id in neighbours else None
    face = face_of(detail)
    figure, label = trend(visit, it, face)
    timed = moved_in_time(detail)
    profiled = profiles_of(visit, it, face if timed else None)
    bisected = bisection_of_regression(visit.c, it.id)
    repository = visit.repository_url(it.project)
    good, bad = it.last_good, it.first_bad
    sentence = merged_sentence(it, detail.events) or sentence_of(it, detail.affected)
    return visit.page(
        "regression.html",
        page="regressions",
        title=f"R-{it.id} {name_of(it)}",
        description=sentence.striptags(),
        project=it.project,
        it=it,
        sentence=sentence,
        facts=facts(detail, face, visit.now),
        figure=figure,
        trend_label=label,
        face=face,
        lead_name=f"{face.benchmark} {face.variant.replace(',', ', ')}".strip() if face else name_of(it),
        series_href=link(f"/series/{face.series_id}", commit=it.commit) if face else None,
        evidence=detail.evidence,
        gained=gained(detail.traded_for),
        cause_title=cause_title(it),
        sustained_runs=sustained_runs(visit, it, face),
        commits=commits_of(detail, it, bisected),
        bisection_says=None if bisected is None else bisection_says(bisected),
        commits_note=commits_note(it),
        compare_href=link("/compare", project=it.project, base=good.sha, head=bad.sha, testbed=it.testbed)
        if good and bad
        else None,
        diff_href=diff_url(repository, good.sha, bad.sha) if good and bad else None,
        phases=phase_panel(detail, face) if timed else None,
        kernels=kernel_panel(profiled) if timed else None,
        roofline=roofline_panel(profiled) if timed else None,
        memory=None if timed else memory_panel(detail),
        bisection=bisected,
        obstacle=bisection_obstacle(visit.c, it.id) if it.state in OPEN and it.still_bad else None,
        is_open=it.state in OPEN and it.still_bad,
        sessions=session_panel(sessions_of_regression(visit.c, it.id), face),
        reproduce=detail.reproduce,
        upstream=upstream(visit, it),
        issue=issue_url(visit, it),
        affected=[each for each in detail.affected if each.role == "gate"] or detail.affected,
        detail_series=len(detail.affected),
        onsets=onsets_of(detail),
        mergeable=mergeable(it, open_ones),
        counted_early=counted_early(detail),
        beside=[each for each in detail.affected if each.role != "gate"]
        if any(each.role == "gate" for each in detail.affected)
        else [],
        activity=[line_of(event) for event in reversed(detail.events)],
        actions=detail.actions,
        people=assignable(visit.c) if visit.may(Scope.WRITE, it.project) else (),
        suggested=bad.author if bad is not None and not it.owner and it.state in OPEN else None,
        earlier=neighbours[place - 1] if place else None,
        later=neighbours[place + 1] if place is not None and place + 1 < len(neighbours) else None,
    )


def upstream(visit: Visit, it: Regression) -> UpstreamReport | None:
    """The draft for somebody else's project, where it is their newer version that is slower."""
    if not upstream_report.is_upstream(it.cause):
        return None
    try:
        return upstream_report.draft(visit.c, visit.config, it.id)
    except Conflict:
        return None  # too little is stored (any more)


def issue_url(visit: Visit, it: Regression) -> tuple[str, str] | None:
    """The issue that was opened for it: its number, and where it is."""
    number = github_outbox.issue_number(visit.c, it.project, it.id)
    web = web_address(visit.repository_url(it.project))
    return None if number is None or web is None else (number, f"{web}/issues/{number}")


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


VERBS = {
    "may": {"slower": "be", "more memory": "take", "more": "cost"},
    "now": {"slower": "is", "more memory": "takes", "more": "costs"},
    "then": {"slower": "was", "more memory": "took", "more": "cost"},
}


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


DECIDED = {
    "expected": ", which was accepted as expected.",
    "invalid": ", but somebody found that it is not real.",
    "withdrawn": ", but later runs disagreed; it was withdrawn.",
}


def ending(it: Regression) -> str:
    """How it stands, and whose doing it is."""
    if it.state in DECIDED:
        return DECIDED[it.state]
    if it.state == "fixed":
        return f", until {it.fixed_by.sha[:7]} fixed it." if it.fixed_by else ", and is fixed."
    if it.state == "suspect" and not it.held_back:
        return "; more runs will tell."
    still_so = " and still is" if it.still_bad else ""
    if it.cause == "code":
        return f"{still_so}; the cause is code{whose(it)}."
    return f"{still_so}; the cause is the {it.cause}, not the code." if it.cause else f"{still_so}."


def whose(it: Regression) -> str:
    """: j.tsai’s “router: top-k in fp32”, where one commit is left; nobody is named while several could be it."""
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


MERGE_CHOICES = 30


def onsets_of(detail: RegressionDetail) -> list[RegressionOnset]:
    """The onsets of the gates that still show it, the oldest first."""
    counts = Counter(each.onset_position for each in detail.affected if each.role == "gate" and each.state in LIVE)
    shas = {commit.position: commit.sha[:7] for commit in detail.suspects}
    bad = detail.regression.first_bad
    own = None if bad is None else bad.position
    if bad is not None and own is not None:
        shas[own] = bad.sha[:7]
    return [
        RegressionOnset(position=at, name=shas.get(at, f"position {at}"), series=count, is_its_own=at == own)
        for at, count in sorted(counts.items())
    ]


def mergeable(it: Regression, open_ones: Sequence[Regression]) -> list[tuple[int, str]]:
    """Other open regressions it may be part of, the nearest onset first."""
    here = it.first_bad.position if it.first_bad and it.first_bad.position is not None else None
    if it.state not in OPEN or here is None:
        return []
    others = [
        (abs(each.first_bad.position - here), each)
        for each in open_ones
        if each.id != it.id and each.first_bad is not None and each.first_bad.position is not None
    ]
    others.sort(key=lambda pair: (pair[0], pair[1].id))
    return [(each.id, f"R-{each.id} {visible(name_of(each))}") for _, each in others[:MERGE_CHOICES]]


def since(at: datetime | None, now: datetime) -> str:
    """How long ago; nothing where that would only say the date again."""
    said = numbers.ago(at, now) if at else ""
    return said if said.endswith("ago") else ""


def latest(face: AffectedSeries | None) -> str:
    """Where the series stands now."""
    if face is None or face.latest_change is None:
        return ""
    return f"{numbers.cost_change(face.latest_change)} in the latest run"


def trend(visit: Visit, it: Regression, face: AffectedSeries | None) -> tuple[Markup, str]:
    """The series around the onset."""
    if face is None:
        return EMPTY, ""
    points = history.load_points(visit.c, face.series_id, last=BEFORE + AFTER, now=visit.now)
    if not len(points):
        return EMPTY, ""
    gate = None if points.series.exact else gate_of(visit, it, points)
    before, after = numbers.quantity(face.before, face.unit), numbers.quantity(face.after, face.unit)
    onset = it.first_bad.sha[:7] if it.first_bad else "the onset"
    label = f"{face.metric} per commit: {before} before, {after} since {onset}"
    return script_json(trend_figure(trend_of(points, gate_change=gate), 320)), label


def sustained_runs(visit: Visit, it: service.Regression, face: AffectedSeries | None) -> int:
    """So many runs must agree before the series on show is a regression."""
    policies = visit.policies(it.project)
    if face is None:
        return policies.general.sustained_runs
    names = {"suite": face.suite, "benchmark": face.benchmark, "metric": face.metric, "testbed": it.testbed or ""}
    return policies.of(**names).sustained_runs


def profiles_of(visit: Visit, it: Regression, face: AffectedSeries | None) -> profiles.ProfileChange:
    """Kernels and roofline of the leading variant, before the onset and after it."""
    if face is None:
        return profiles.changed(None, None)
    variant = profiles.Variant(benchmark=face.benchmark, variant_key=face.variant, preset=face.preset)
    return profiles.around(visit.c, visit.config, face.series_id, variant, face.onset_position, face.fixed_position)


def gate_of(visit: Visit, it: Regression, points: history.SeriesPoints) -> float | None:
    """The smallest regression of the policy that judged the first bad point."""
    if it.commit is None or it.commit not in points.sha:
        return None
    return explanations.explain_point(visit.c, points.series.id, it.commit).numbers.get("min_change")


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


def commits_note(it: Regression) -> str:
    if it.suspect_commits is None:
        return "there is no good run before it"
    if it.suspect_commits == 1:
        return "the run before it was good"
    return f"{it.suspect_commits} between the last good and the first bad run"


def bisection_says(it: BisectionView) -> str:
    """How far it is, or what it found."""
    if it.state == "running":
        left = f", {numbers.rough_duration(it.eta_s)} left" if it.eta_s is not None else ""
        return (
            f"bisecting: {it.steps_done} of about {it.steps_done + it.steps_left} steps, "
            f"{plural(it.remaining, 'commit')} possible{left}"
        )
    if it.state == "done":
        sure = f", {numbers.percent(it.confidence)} sure" if it.confidence < 1 else ""
        culprit = f" to {it.culprit_sha[:7]}" if it.culprit_sha else ""
        return f"✓ bisected{culprit} in {plural(it.steps_done, 'step')}{sure}"
    return f"bisection {it.state.replace('_', ' ')}{f': {visible(it.reason)}' if it.reason else ''}"


def commits_of(detail: RegressionDetail, it: Regression, bisected: BisectionView | None) -> list[RangeCommit]:
    steps = {} if bisected is None else {step.sha: step for step in bisected.steps}
    odds = {} if bisected is None or bisected.state != "running" else dict(bisected.candidates)
    rows = [commit_row(each, it, steps.get(each.sha), odds.get(each.sha)) for each in detail.suspects]
    good = it.last_good
    if good is not None:
        rows.append(
            RangeCommit(
                sha=good.sha,
                message=good.message,
                author=good.author,
                at=good.committed_at,
                href=link("/compare", project=it.project, head=good.sha, testbed=it.testbed),
                guilty=False,
                mark=html('<span class="v s">✓ last good</span>'),
            )
        )
    return rows


STEP_LOOKS = {
    "waiting": (("w", "○"), "waits"),
    "running": (("g", "◔"), "being measured"),
    "good": (("s", "✓"), "good"),
    "bad": (("t", "▽"), "bad"),
    "skipped": (("s", "–"), "skipped"),
}


def step_mark(step: BisectionStep) -> Markup:
    """The mark of a bisection step: good, bad or open."""
    look, words = STEP_LOOKS.get(step.state, (("s", ""), step.state))
    said = f" {numbers.cost_change(step.change)}" if step.change is not None else ""
    mark = tag(look, f"{words}{said}")
    if step.run_id:
        mark = html('<a href="/runs/{}">{}</a>', step.run_id, mark)
    if step.reason:
        mark += html(' <span class="t1 mut wrap">{}</span>', visible(step.reason)[:120])
    return mark


def commit_row(
    commit: SuspectCommit, it: Regression, step: BisectionStep | None = None, odds: float | None = None
) -> RangeCommit:
    mark = html('<span class="dim">not benchmarked</span>')
    if commit.first_bad:
        mark = html('<span class="v r">▼ {}</span>', numbers.percent(it.change))
    elif commit.skipped_reason:
        mark = html('<span class="dim">{}</span>', visible(commit.skipped_reason))
    if step is not None and not (commit.first_bad and step.state == "bad"):
        mark = step_mark(step)
    if odds is not None and odds >= SMALLEST_ODDS:
        mark += html(
            ' <span class="t1 mut nw" title="how likely it is the first bad one">{}</span>', numbers.percent(odds)
        )
    return RangeCommit(
        sha=commit.sha,
        message=commit.message,
        author=commit.author,
        at=commit.committed_at,
        href=link("/compare", project=it.project, head=commit.sha, testbed=it.testbed),
        guilty=commit.first_bad,
        mark=mark,
    )


EVENT_WORDS = {
    "suspected": "Suspected",
    "confirmed": "Confirmed",
    "relocated": "Onset moved",
    "fixed": "Fixed",
    "withdrawn": "Withdrawn: later runs disagree",
    "infra_alarm": "Infra alarm instead of a regression",
    "acknowledged": "Acknowledged",
    "released": "Released, nobody owns it",
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


def moved_of(event: RegressionEvent) -> Markup:
    """The way that change points went in a split or a merge."""
    moved = event.detail.get("moved")
    if moved is None:
        return EMPTY
    ends = [html('<a href="/regressions/{0}">R-{0}</a>', moved[end]) for end in ("from", "to")]
    return html(": {} from {} to {}", plural(len(moved["points"]), "change"), *ends)


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
