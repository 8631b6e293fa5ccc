"""Regressions: the on-call's list (what needs a person first), and what people do about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from backend.regression.cause.attribution import CauseName
from backend.regression.regression_state import OPEN
from backend.services.base.errors import BadRequest
from backend.services.base.metric_words import worse_word
from backend.services.base.projects import check_regression
from backend.services.reports import history
from backend.services.triage import triage as triage_service
from backend.services.triage import views as service
from backend.services.triage.views import Regression, RegressionFilter
from frontend import numbers
from frontend.figures.small import sparkline
from frontend.frame import Visit, Visiting
from frontend.links import Here, link
from frontend.markup import EMPTY, html
from frontend.pages.board import moment
from frontend.render import render
from frontend.words import plural

router = APIRouter(include_in_schema=False)

CLOSED_FOR = timedelta(days=7)
PICTURES = 30  # rows with a sparkline; a longer list is read by its words
PICTURE_POINTS = 40
FILTERS = (
    ("cause", "Cause"),
    ("suite", "Suite"),
    ("benchmark", "Benchmark"),
    ("metric", "Metric"),
    ("testbed", "Testbed"),
    ("owner", "Owner"),
    ("min_change", "At least %"),
    ("since", "Since"),
    ("until", "Until"),
    ("commits", "Commits"),
)
STATES = (("Current", ""), ("Open", "open"), ("Suspects", "suspect"), ("Closed", "closed"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A regression as a row."""

    regression: Regression
    headline: str
    sub: str
    interval: str
    still: Markup
    spark: Markup
    suspects: str
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionGroup:
    title: str
    note: str
    items: list[Item]


@router.get("/regressions")
def regressions_page(visit: Visiting) -> Response:
    """The list of regressions; those that nobody has taken come first."""
    project, here = visit.project(), visit.here
    found, following = listed(visit, project)
    pictures = pictures_of(visit, project, found[:PICTURES])
    groups = grouped([item(each, pictures.get(each.id, EMPTY)) for each in found])
    return visit.page(
        "regressions.html",
        page="regressions",
        title="Regressions",
        description=describe(found, project),
        project=project,
        path="/regressions",
        groups=groups,
        next=following,
        states=[(label, here(state=value or None), here.get("state") == value) for label, value in STATES],
        active=[(name, label, here.get(name)) for name, label in FILTERS if here.get(name)],
        causes=[cause.value for cause in CauseName],
        api_query=f"{visit.config.public_url.rstrip('/')}/api/v1/regressions{here().removeprefix('/regressions')}",
        nothing=nothing(here, project),
        selectable=any(each.open for group in groups for each in group.items),
        done=done_of(here),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A bulk action just taken, which can be undone."""

    words: str
    ids: tuple[int, ...]


DONE_WORDS = {
    "acknowledge": "taken",
    "release": "released",
    "expected": "accepted as expected",
    "invalid": "called not real",
}


def done_of(here: Here) -> Done | None:
    """The deed in the address, such as `acknowledge~3~5`."""
    action, *ids = here.get("done").split("~")
    if action not in DONE_WORDS or not ids or not all(each.isdecimal() and len(each) < 10 for each in ids):
        return None
    chosen = tuple(map(int, ids))
    return Done(words=f"{plural(len(chosen), 'regression')} {DONE_WORDS[action]}.", ids=chosen)


def listed(visit: Visit, project: str | None) -> tuple[list[Regression], str | None]:
    """The regressions of this address. Without a state: those that are open, and what was closed this week."""
    if project is None:
        return [], None
    here = visit.here
    if here.get("state"):
        page = service.list_regressions(visit.c, filter_of(here, project, here.get("state"), 100))
        return list(page.items), page.next
    current = service.list_regressions(visit.c, filter_of(here, project, "suspect,open", 200))
    closed = service.list_regressions(visit.c, filter_of(here, project, "closed", 50))
    recent = [each for each in closed.items if each.closed_at and visit.now - each.closed_at < CLOSED_FOR]
    return [*current.items, *recent], current.next


def filter_of(here: Here, project: str, state: str, limit: int) -> RegressionFilter:
    return RegressionFilter(
        project=project,
        state=state,
        cause=here.get("cause") or None,
        suite=here.get("suite") or None,
        benchmark=here.get("benchmark") or None,
        metric=here.get("metric") or None,
        testbed=here.get("testbed") or None,
        owner=here.get("owner") or None,
        commits=here.get("commits") or None,
        since=moment(here.get("since"), "since"),
        until=moment(here.get("until"), "until", end=True),
        still_bad=True if here.get("still_bad") else None,
        min_change=_percent(here.get("min_change")),
        limit=limit,
        cursor=here.get("cursor") or None,
    )


def _percent(text: str) -> float | None:
    """People write percent; the service takes fractions."""
    if not text:
        return None
    try:
        return float(text.replace("%", "").strip()) / 100
    except ValueError:
        raise BadRequest.field("min_change", text, "a number of percent, such as 5") from None


def worsened(regression: Regression) -> str:
    """The change of the leading metric, in its own terms."""
    return worse_word(regression.unit, regression.direction)


def name_of(regression: Regression) -> str:
    variant = (regression.variant or "").replace(",", ", ")
    return f"{regression.benchmark or 'a series that is gone'} {variant}".strip()


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


def interval_of(regression: Regression, change: float | None) -> str:
    """The interval of a change; nothing where the stored one is that of another series and does not hold it."""
    low, high = regression.change_low, regression.change_high
    if change is None or low is None or high is None or not low <= change <= high:
        return ""
    return numbers.interval(low, high)


def still(regression: Regression, *, short: bool = False) -> Markup:
    """Is it still so? The first question of everybody who opens the list."""
    if regression.state == "fixed":
        by = f"by {regression.fixed_by.sha[:7]}" if regression.fixed_by and not short else ""
        return html('<span class="good">✓ recovered</span>{}', html('<div class="bd2">{}</div>', by) if by else EMPTY)
    if regression.state == "expected":
        return html('<span class="mut">new baseline</span>')
    if regression.state in ("invalid", "withdrawn"):
        return html('<span class="mut">not real</span>')
    if regression.still_bad:
        return html('<b class="bad">still</b>')
    return html('<span class="good">✓ recovered</span>')


def suspects(regression: Regression) -> str:
    if regression.fixed_by is not None:
        return f"fixed by {regression.fixed_by.sha[:7]}"
    number = regression.suspect_commits
    if number is None:
        return "from the first run on"
    return "this commit alone" if number == 1 else f"one of {plural(number, 'commit')}"


def pictures_of(visit: Visit, project: str | None, shown: Sequence[Regression]) -> dict[int, Markup]:
    """The newest points of each regression's leading series."""
    if project is None:
        return {}
    leading = {each.id: (each, each.series_id) for each in shown if each.series_id is not None}
    points = history.recent_points(visit.c, project, sorted({s for _, s in leading.values()}), PICTURE_POINTS)
    return {number: picture_of(each, *points[series]) for number, (each, series) in leading.items()}


def picture_of(regression: Regression, positions: Sequence[int], values: Sequence[float]) -> Markup:
    onset = regression.first_bad.position if regression.first_bad else None
    split = None
    if onset is not None and regression.still_bad:
        split = next((index for index, position in enumerate(positions) if position >= onset), None)
    return sparkline(list(values), split=split)


def grouped(items: list[Item]) -> list[RegressionGroup]:
    """Group the list; regressions that need a person come first."""
    unowned, in_hand, machine, suspected, over = [], [], [], [], []
    for each in items:
        regression = each.regression
        if regression.state not in OPEN:
            over.append(each)
        elif regression.held_back:
            machine.append(each)
        elif regression.state == "suspect":
            suspected.append(each)
        elif regression.state == "acknowledged" or regression.owner:
            in_hand.append(each)
        else:
            unowned.append(each)
    groups = (
        RegressionGroup(title="Nobody on it", note="confirmed, not taken", items=unowned),
        RegressionGroup(title="In hand", note="", items=in_hand),
        RegressionGroup(title="Suspects", note="more runs will tell; nobody was told", items=suspected),
        RegressionGroup(
            title="The machine or its environment, not the code", note="no cell is red because of it", items=machine
        ),
        RegressionGroup(title="Recovered and closed", note="", items=over),
    )
    return [group for group in groups if group.items]


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
    if any(here.get(name) for name, _ in FILTERS) or here.get("still_bad"):
        ways = (("Clear filters", here.page("/regressions", state=here.get("state"))),)
        return Nothing(sentence="No regression matches these filters.", instead="", ways=ways)
    if here.get("state"):
        ways = (("Show current", here(state=None)),)
        return Nothing(sentence=f"No regression is {here.get('state')}.", instead="", ways=ways)
    return Nothing(
        sentence="Nothing is slower than it was." if project else "There is no project yet.",
        instead="Suspects, open regressions and those closed within a week would stand here.",
        ways=(("Board", here.page("/board")), ("Closed ones", here(state="closed"))),
    )


# --- what people do --------------------------------------------------------------------------------------------------


def act(visit: Visit, chosen: list[int], action: str, csrf_token: str, reason: str, note: str) -> None:
    """Do what the form says to every regression chosen, in one transaction."""
    visit.check_action(csrf_token)
    for number in chosen:
        check_regression(visit.c, number, visit.principal)
    triage_service.lock_series(visit.c, chosen)
    for number in chosen:
        triage_service.triage(
            visit.c, number, action, visit.principal.name, now=visit.now, reason=reason or None, note=note or None
        )


@router.post("/regressions/triage")
def triage_several(
    visit: Visiting,
    action: Annotated[str, Form(max_length=40)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
    id: Annotated[list[int] | None, Form(max_length=500)] = None,
    reason: Annotated[str, Form(max_length=2000)] = "",
    back: Annotated[str, Form(max_length=4000)] = "/regressions",
) -> Response:
    """The bar below the list: the same word for every row that is ticked."""
    if not id:
        raise BadRequest.field("id", None, "at least one regression; tick its box")
    act(visit, id, action, csrf_token, reason, "")
    # Only ever back to our own list: the field could say anything.
    if back == "/" or back.startswith("/?"):
        return RedirectResponse(back, status_code=303)
    target = back if back.startswith("/regressions") else "/regressions"
    if action in DONE_WORDS:
        target += f"{'&' if '?' in target else '?'}done={'~'.join([action, *map(str, id)])}"
    return RedirectResponse(target, status_code=303)


@router.post("/regressions/{regression_id}/triage")
def triage_one(
    visit: Visiting,
    regression_id: int,
    action: Annotated[str, Form(max_length=40)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
    reason: Annotated[str, Form(max_length=2000)] = "",
    note: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    act(visit, [regression_id], action, csrf_token, reason, note)
    return RedirectResponse(f"/regressions/{regression_id}", status_code=303)


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
