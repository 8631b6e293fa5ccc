"""The commits that may have caused a regression, each with what is known of it, and how far a bisection is."""

from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from backend.services.plans.bisection_views import BisectionStep, BisectionView
from backend.services.triage.detail import RegressionDetail, SuspectCommit
from backend.services.triage.views import Regression
from frontend import numbers
from frontend.links import link
from frontend.markup import html
from frontend.render import tag, visible
from frontend.words import plural

SMALLEST_ODDS = 0.005  # a less likely commit of a bisection shows no figure


STEP_LOOKS = {
    "waiting": (("w", "○"), "waits"),
    "running": (("g", "◔"), "being measured"),
    "good": (("s", "✓"), "good"),
    "bad": (("t", "▽"), "bad"),
    "skipped": (("s", "–"), "skipped"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCommit:
    sha: str
    message: str
    author: str
    at: datetime | None
    href: str
    guilty: bool
    mark: Markup


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


def commits_note(it: Regression) -> str:
    if it.suspect_commits is None:
        return "there is no good run before it"
    first_bad, last_good = (None if place is None else place.position for place in (it.first_bad, it.last_good))
    between = it.suspect_commits if first_bad is None or last_good is None else first_bad - last_good
    if between > it.suspect_commits:
        others = "the other" if between == it.suspect_commits + 1 else f"the other {between - it.suspect_commits}"
        paths = f"paths of suite {visible(it.suite or '')} name nothing that {others} changed"
        return f"{it.suspect_commits} of {between} since the last good run: {paths}"
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
