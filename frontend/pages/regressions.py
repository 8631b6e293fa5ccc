"""Regressions: the on-call's list, what needs a person first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from fastapi.responses import Response
from markupsafe import Markup
from sqlalchemy import Connection

from backend.regression.cause.attribution import CauseName
from backend.regression.regression_state import OPEN
from backend.routing import Router
from backend.services.base.errors import BadRequest
from backend.services.reports import history
from backend.services.reports.facets import FACETS, passes, variant_of
from backend.services.triage import views as service
from backend.services.triage.views import MAX_LIMIT, Regression, RegressionFilter
from frontend import numbers
from frontend.facets import chosen_facets, facet_bar
from frontend.figures.strips import CASE_POINTS, case_line
from frontend.frame import Visit, Visiting
from frontend.links import Here, link
from frontend.markup import EMPTY
from frontend.pages.board import moment
from frontend.pages.regression.triage import done_of
from frontend.pages.regression.wording import interval_of, name_of, still, suspects, worsened
from frontend.regression_groups import By, Item, Sort, grouped
from frontend.render import render
from frontend.words import plural

router = Router(include_in_schema=False)

CLOSED_FOR = timedelta(days=7)
FILTERS = (
    ("cause", "Cause"),
    ("benchmark", "Benchmark"),
    ("owner", "Owner"),
    ("min_change", "At least %"),
    ("since", "Since"),
    ("until", "Until"),
    ("commits", "Commits"),
)
UNUSED = {
    "branch": "regressions are those of the default branch",
    "base": "each regression has its own base and head",
    "head": "each regression has its own base and head",
    "range": "open ones are shown however old they are; Filter… has dates",
    "granularity": "a regression begins at a commit",
}
STATES = (("Current", ""), ("Open", "open"), ("Suspects", "suspect"), ("Closed", "closed"))


@router.get("/regressions")
def regressions_page(visit: Visiting) -> Response:
    """The list of regressions; unassigned ones come first."""
    project, here = visit.project(), visit.here
    by, sort = _one_of(By, here.get("by"), "by"), _one_of(Sort, here.get("sort"), "sort")
    found, following = listed(visit.c, visit, project, here.get("cursor") or None)
    found = passing(found, chosen_facets(here))
    pictures = pictures_of(visit, project, found)
    groups = grouped([item(each, pictures.get(each.id, EMPTY)) for each in found], by, sort)
    counts = service.count_by_state(visit.c, project) if project else {}
    return visit.page(
        "regressions.html",
        page="regressions",
        title="Regressions",
        description=describe(found, project),
        project=project,
        path="/regressions",
        groups=groups,
        next=following,
        states=[
            (
                f"{label} {counts.get(value, 0)}" if value else label,
                here(state=value or None),
                here.get("state") == value,
            )
            for label, value in STATES
        ],
        facets=facet_bar(visit, project, base=("–", None), head=("–", None), unused=UNUSED, any_testbed=True),
        by=[
            (each.value.capitalize(), here(by=each.value if each is not By.ONSET else None), each is by) for each in By
        ],
        sorts=[(each.value, each is sort) for each in Sort],
        active=[(name, label, here.get(name)) for name, label in FILTERS if here.get(name)],
        causes=[cause.value for cause in CauseName],
        api_query=f"{visit.config.public_url.rstrip('/')}/api/v1/regressions{here().removeprefix('/regressions')}",
        nothing=nothing(here, project),
        selectable=any(each.open for group in groups for each in group.items),
        done=done_of(here),
    )


Choice = TypeVar("Choice", bound=StrEnum)


def _one_of(kind: type[Choice], value: str, name: str) -> Choice:
    """The choice of an address, the first one where it makes none."""
    if value and value not in set(kind):
        raise BadRequest.field(name, value, [each.value for each in kind])
    return kind(value) if value else next(iter(kind))


def page_of(
    c: Connection, visit: Visit, project: str | None, cursor: str | None
) -> tuple[list[Regression], str | None]:
    """The regressions of this address from a place in its list on; and where the list continues."""
    found, following = listed(c, visit, project, cursor, MAX_LIMIT)
    return passing(found, chosen_facets(visit.here)), following


def listed(
    c: Connection, visit: Visit, project: str | None, cursor: str | None, limit: int = 100
) -> tuple[list[Regression], str | None]:
    """The regressions of this address. Without a state: those that are open, and what was closed this week."""
    if project is None:
        return [], None
    asked = filter_of(visit.here, project)
    if asked.state:
        page = service.list_regressions(c, replace(asked, limit=limit, cursor=cursor))
        return list(page.items), page.next
    current = service.list_regressions(
        c, replace(asked, state="suspect,open", limit=min(2 * limit, MAX_LIMIT), cursor=cursor)
    )
    if cursor is not None:  # what was closed lately stands on the first page
        return list(current.items), current.next
    closed = service.list_regressions(c, replace(asked, state="closed", limit=50))
    recent = [each for each in closed.items if each.closed_at and visit.now - each.closed_at < CLOSED_FOR]
    return [*current.items, *recent], current.next


def filter_of(here: Here, project: str) -> RegressionFilter:
    return RegressionFilter(
        project=project,
        state=here.get("state") or None,
        cause=here.get("cause") or None,
        benchmark=here.get("benchmark") or None,
        testbed=here.get("testbed") or None,
        owner=here.get("owner") or None,
        commits=here.get("commits") or None,
        since=moment(here.get("since"), "since"),
        until=moment(here.get("until"), "until", end=True),
        still_bad=True if here.get("still_bad") else None,
        min_change=_percent(here.get("min_change")),
    )


def _percent(text: str) -> float | None:
    """People write percent; the service takes fractions."""
    if not text:
        return None
    try:
        return float(text.replace("%", "").strip()) / 100
    except ValueError:
        raise BadRequest.field("min_change", text, "a number of percent, such as 5") from None


def item(regression: Regression, picture: Markup) -> Item:
    kind = "drifted" if regression.kind == "drift" else ""
    maybe = "maybe " if regression.state == "suspect" and not regression.held_back else ""
    size = numbers.percent(regression.change)
    was = "was " if regression.state == "fixed" else ""
    headline = " ".join(
        part for part in (f"{name_of(regression)}:", kind, f"{was}{maybe}{size} {worsened(regression)}") if part
    )
    others = regression.series - 1
    return Item(
        regression=regression,
        headline=headline,
        sub=f"{regression.metric or ''}" + (f" and {others} more" if others > 0 else ""),
        interval=interval_of(regression, regression.change),
        still=still(regression),
        spark=picture,
        suspects=suspects(regression),
        open=regression.state in OPEN,
    )


def pictures_of(visit: Visit, project: str | None, shown: Sequence[Regression]) -> dict[int, Markup]:
    """The points around each onset, which is at the same place and on the same scale in every row."""
    onsets = {
        each.id: (each.series_id, each.first_bad.position)
        for each in shown
        if each.series_id is not None and each.first_bad is not None and each.first_bad.position is not None
    }
    if project is None or not onsets:
        return {}
    points = history.points_around(visit.c, project, sorted(set(onsets.values())), CASE_POINTS)
    found = {each.id: (each, points[onsets[each.id]]) for each in shown if onsets.get(each.id) in points}
    return {number: picture_of(each, *around) for number, (each, around) in found.items()}


def picture_of(regression: Regression, positions: Sequence[int], values: Sequence[float]) -> Markup:
    """Up is better, whichever way the metric points."""
    onset = regression.first_bad.position if regression.first_bad else None
    lower = regression.direction != "higher"
    performance = [1 / value if lower and value else value for value in values]
    split = None if onset is None else next((i for i, position in enumerate(positions) if position >= onset), None)
    return case_line(performance, split)


def passing(found: Sequence[Regression], chosen: Mapping[str, Sequence[str]]) -> list[Regression]:
    """Those whose leading series has one of the chosen values of every facet that is set."""
    return [each for each in found if _passes(each, chosen)]


def _passes(each: Regression, chosen: Mapping[str, Sequence[str]]) -> bool:
    return passes(chosen, each.suite or "", each.metric or "", variant_of(each.variant or ""))


def describe(found: list[Regression], project: str | None) -> str:
    """One sentence for pasted links."""
    told = [each for each in found if each.state in ("confirmed", "acknowledged")]
    if not told:
        return f"{project or 'No project'}: nothing is slower than it was."
    worst = max(told, key=lambda each: each.change or 0.0)
    largest = f"the largest {numbers.percent(worst.change)} in {name_of(worst)}"
    return f"{project}: {plural(len(told), 'open regression')}, {largest}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    sentence: str
    instead: str
    ways: tuple[tuple[str, str], ...]


def nothing(here: Here, project: str | None) -> Nothing:
    """An empty list says whether that is good news."""
    if any(here.get(name) for name in (*(name for name, _ in FILTERS), *FACETS, "testbed", "still_bad")):
        ways = (("Clear filters", link("/regressions", project=project, state=here.get("state"))),)
        return Nothing(sentence="No regression matches these filters.", instead="", ways=ways)
    if here.get("state"):
        ways = (("Show current", here(state=None)),)
        return Nothing(sentence=f"No regression is {here.get('state')}.", instead="", ways=ways)
    return Nothing(
        sentence="Nothing is slower than it was." if project else "There is no project yet.",
        instead="Suspects, open regressions and those closed within a week appear here.",
        ways=(("Board", here.page("/board")), ("Closed ones", here(state="closed"))),
    )


@router.get("/regressions.atom")
def atom(visit: Visiting) -> Response:
    """The Atom feed of opened and changed regressions."""
    project = visit.project()
    page = service.list_regressions(visit.c, RegressionFilter(project=project, limit=50))
    base = visit.config.public_url.rstrip("/")
    newest = max((each.updated_at for each in page.items), default=visit.now)
    context = {
        "project": project,
        "base": base,
        "address": link(f"{base}/regressions.atom", project=project),
        "updated": iso(newest),
        "entries": [(each, iso(each.updated_at), suspects(each)) for each in page.items],
    }
    return Response(render("feed.xml", context), media_type="application/atom+xml")


def iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
