"""One regression: do I believe it, who caused it, what do I do?"""

from collections.abc import Sequence
from typing import Any

from fastapi.responses import Response
from markupsafe import Markup

from backend.regression.regression_state import OPEN
from backend.routing import Router
from backend.services.base.errors import Conflict
from backend.services.base.principal import Scope
from backend.services.github import outbox as github_outbox
from backend.services.github import upstream_report
from backend.services.github.upstream_report import UpstreamReport
from backend.services.people.members import assignable
from backend.services.plans.bisection_range import bisection_obstacle
from backend.services.plans.bisection_views import bisection_of_regression
from backend.services.reports import explanations, history
from backend.services.runs import profiles
from backend.services.sessions.views import sessions_of_regression
from backend.services.triage import detail as regression_detail
from backend.services.triage import views as service
from backend.services.triage.detail import AffectedSeries, RegressionDetail
from backend.services.triage.views import Regression
from frontend import numbers
from frontend.evidence import kernel_panel, memory_panel, moved_in_time, phase_panel, roofline_panel, session_panel
from frontend.figures.of_points import trend_of
from frontend.figures.trend import trend_figure
from frontend.frame import Visit, Visiting
from frontend.links import diff_url, link, web_address
from frontend.markup import EMPTY
from frontend.pages.regression.activity import line_of
from frontend.pages.regression.commits import bisection_says, commits_note, commits_of
from frontend.pages.regression.onsets import mergeable, onsets_of
from frontend.pages.regression.sentence import (
    cause_title,
    counted_early,
    face_of,
    facts,
    gained,
    merged_sentence,
    sentence_of,
)
from frontend.pages.regression.wording import name_of
from frontend.render import script_json

router = Router(include_in_schema=False)


BEFORE, AFTER = 60, 40  # points of the trend around the onset


@router.get("/regressions/{regression_id}")
def regression_page(visit: Visiting, regression_id: int) -> Response:
    detail = regression_detail.get_regression(visit.c, regression_id)
    it = detail.regression
    open_ones = service.list_regressions(
        visit.c, service.RegressionFilter(project=it.project, state="suspect,open", limit=200)
    ).items
    face = face_of(detail)
    bisected = bisection_of_regression(visit.c, it.id)
    gates = [each for each in detail.affected if each.role == "gate"]
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
        **series_on_show(visit, it, face),
        evidence=detail.evidence,
        gained=gained(detail.traded_for),
        cause_title=cause_title(it),
        commits=commits_of(detail, it, bisected),
        bisection_says=None if bisected is None else bisection_says(bisected),
        commits_note=commits_note(it),
        **before_and_after(visit, it),
        **panels(visit, detail, face),
        bisection=bisected,
        obstacle=bisection_obstacle(visit.c, it.id) if it.state in OPEN and it.still_bad else None,
        is_open=it.state in OPEN and it.still_bad,
        sessions=session_panel(sessions_of_regression(visit.c, it.id), face),
        reproduce=detail.reproduce,
        upstream=upstream(visit, it),
        issue=issue_url(visit, it),
        affected=gates or detail.affected,
        detail_series=len(detail.affected),
        onsets=onsets_of(detail),
        mergeable=mergeable(it, open_ones),
        counted_early=counted_early(detail),
        beside=[each for each in detail.affected if each.role != "gate"] if gates else [],
        activity=[line_of(event) for event in reversed(detail.events)],
        actions=detail.actions,
        people=assignable(visit.c) if visit.may(Scope.WRITE, it.project) else (),
        suggested=it.first_bad.author if it.first_bad is not None and not it.owner and it.state in OPEN else None,
        **neighbours(it.id, [each.id for each in open_ones]),
    )


def series_on_show(visit: Visit, it: Regression, face: AffectedSeries | None) -> dict[str, Any]:
    """The series that represents all that are affected: its name, its page, its trend around the onset."""
    figure, label = trend(visit, it, face)
    return {
        "face": face,
        "figure": figure,
        "trend_label": label,
        "lead_name": f"{face.benchmark} {face.variant.replace(',', ', ')}".strip() if face else name_of(it),
        "series_href": link(f"/series/{face.series_id}", commit=it.commit) if face else None,
        "sustained_runs": sustained_runs(visit, it, face),
    }


def before_and_after(visit: Visit, it: Regression) -> dict[str, Any]:
    """Where the commits before and after are compared: here, and as a diff where the repository lies."""
    if it.last_good is None or it.first_bad is None:
        return {"compare_href": None, "diff_href": None}
    base, head = it.last_good.sha, it.first_bad.sha
    return {
        "compare_href": link("/compare", project=it.project, base=base, head=head, testbed=it.testbed),
        "diff_href": diff_url(visit.repository_url(it.project), base, head),
    }


def panels(visit: Visit, detail: RegressionDetail, face: AffectedSeries | None) -> dict[str, Any]:
    """Where the time went; or what is allocated, where only memory moved."""
    if not moved_in_time(detail):
        return {"phases": None, "kernels": None, "roofline": None, "memory": memory_panel(detail)}
    profiled = profiles_of(visit, detail.regression, face)
    return {
        "phases": phase_panel(detail, face),
        "kernels": kernel_panel(profiled),
        "roofline": roofline_panel(profiled),
        "memory": None,
    }


def neighbours(number: int, listed: Sequence[int]) -> dict[str, Any]:
    """The open regressions before and after this one in the list."""
    place = listed.index(number) if number in listed else None
    later = None if place is None else place + 1
    return {
        "earlier": listed[place - 1] if place else None,
        "later": listed[later] if later is not None and later < len(listed) else None,
    }


def upstream(visit: Visit, it: Regression) -> UpstreamReport | None:
    """The draft for another project, if its newer version is slower."""
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


def trend(visit: Visit, it: Regression, face: AffectedSeries | None) -> tuple[Markup, str]:
    """The series around the onset."""
    if face is None:
        return EMPTY, ""
    points = points_with_onset(visit, it.project, face)
    if not len(points):
        return EMPTY, ""
    gate = None if points.series.exact else gate_of(visit, it, points)
    before, after = numbers.quantity(face.before, face.unit), numbers.quantity(face.after, face.unit)
    onset = it.first_bad.sha[:7] if it.first_bad else "the onset"
    label = f"{face.metric} per commit: {before} before, {after} since {onset}"
    return script_json(trend_figure(trend_of(points, threshold_change=gate), 320)), label


def points_with_onset(visit: Visit, project: str, face: AffectedSeries) -> history.SeriesPoints:
    """The newest points; where the onset is older than these, the points around it."""
    newest = history.load_points(visit.c, face.series_id, last=BEFORE + AFTER)
    if not len(newest) or newest.position[0] < face.onset_position:
        return newest
    place = (face.series_id, face.onset_position)
    positions, _ = history.points_around(visit.c, project, [place], AFTER).get(place, ((), ()))
    if not positions:
        return newest
    return history.load_points(visit.c, face.series_id, last=BEFORE + AFTER, up_to=int(positions[-1]))


def gate_of(visit: Visit, it: Regression, points: history.SeriesPoints) -> float | None:
    """The smallest regression of the policy that judged the first bad point."""
    if it.commit is None or it.commit not in points.sha:
        return None
    return explanations.explain_point(visit.c, points.series.id, it.commit).numbers.get("min_change")


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
