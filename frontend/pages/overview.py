"""The front page: how are we doing, what needs a person, since when?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from backend.routing import Router
from backend.services.base.scope import RANGES
from backend.services.joint.status import joint_status
from backend.services.reports.trend_grid import Mean
from backend.services.reports.trends import TrendQuery, Trends, load_trends
from backend.services.triage import views as service
from backend.services.triage.views import Regression, RegressionFilter
from frontend import numbers
from frontend.facets import FacetBar, chosen_facets, facet_bar
from frontend.figures.strips import place_of, time_ticks, trend
from frontend.first_run import first_run_page
from frontend.frame import Visit, Visiting
from frontend.links import Here
from frontend.markup import EMPTY, html
from frontend.pages.board import moment
from frontend.pages.overview_strips import data_of, drawn, environments
from frontend.pages.regression.wording import interval_of, name_of, suspects
from frontend.pages.regressions import passing, pictures_of
from frontend.regression_groups import began, onset_of
from frontend.render import change_mark
from frontend.words import plural

router = Router(include_in_schema=False)

DEFAULT_RANGE = "30d"
ONSETS = 8  # shown of those that nobody has taken; the others are a click away
RECENT = timedelta(days=7)
CERTAIN = 0.01  # a mean has to be at least so much worse before it is called so
COVERED = 0.8  # of the variants compared: with fewer a mean speaks of a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure with its change against the base, what it is based on, and its line."""

    name: str
    what: str
    value: str
    change: Markup
    interval: str
    counts: str
    coverage: str
    partial: bool
    spark: Markup
    shares: tuple[tuple[str, int], ...] = ()
    """How many are worse, the same, better: the counts as one bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOnset:
    """Regressions of one onset, the largest first."""

    lead: Regression
    headline: str
    items: tuple[Regression, ...]
    interval: str
    suspects: str
    one_commit: bool
    series: int
    spark: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSection:
    title: str
    note: str
    onsets: list[SharedOnset]
    more: int = 0
    folded: bool = False


@router.get("/")
def overview_page(visit: Visiting) -> Response:
    """How the project is doing; or, until the first result is there, the steps towards it."""
    project, here = visit.project(), visit.here
    if project is None:
        return first_run_page(visit, None, None)
    mine = visit.summary(project)
    if mine is not None and mine.last_result_at is None:
        return RedirectResponse(here.page("/board", project=project), status_code=303)  # the steps to a first result
    query = query_of(here, project)
    trends, shown = load_trends(visit.c, query, now=visit.now), here.get("range") or DEFAULT_RANGE
    if trends.base is None and not any(here.get(name) for name in ("range", "since", "until", "base", "head")):
        # Commits may be old where results are new: an imported history, the demo.
        trends, shown = load_trends(visit.c, replace(query, range="all"), now=visit.now), "all"
    sections, alarms, fixed = sections_of(visit, trends)
    return visit.page(
        "overview.html",
        page="overview",
        title=f"{project} on {trends.testbed}",
        description=sentence(trends),
        project=project,
        path="/",
        facets=bar(visit, trends, shown),
        trends=trends,
        sentence=sentence(trends),
        note=note(sections),
        waiting=mine.waiting if mine is not None else 0,
        newest_range=newest_range(visit, query, shown) if not trends.at else None,
        tiles=tiles(trends),
        sections=sections,
        alarms=alarms,
        fixed=fixed,
        strips=[drawn(trends, strip, here) for strip in trends.strips],
        environments=environments(trends),
        base_at=place_of(trends.base.at, trends.at) if trends.base and not trends.one_commit else None,
        times=time_ticks(trends.at),
        zoomed=here(since=None, until=None) if here.get("since") or here.get("until") else None,
        data=data_of(trends),
        joint_status=joint_status(visit.c, project, visit.now),
    )


def query_of(here: Here, project: str) -> TrendQuery:
    return TrendQuery(
        project=project,
        testbed=here.get("testbed") or None,
        facets=chosen_facets(here),
        range=here.get("range") or None,
        since=moment(here.get("since"), "since"),
        until=moment(here.get("until"), "until", end=True),
        granularity=here.get("granularity") or None,
        base=here.get("base"),
        head=here.get("head"),
    )


def bar(visit: Visit, trends: Trends, shown: str) -> FacetBar | None:
    here = visit.here
    dated = here.get("since") or here.get("until")
    base, head = trends.base, trends.head
    return facet_bar(
        visit,
        trends.project,
        range_shown=None if dated else shown,
        granularity=trends.granularity,
        base=(_end_name(base.name, base.at, "start of the range") if base else "–", base.sha if base else None),
        head=(_end_name(head.name, head.at, "latest") if head else "–", head.sha if head else None),
        unused={"branch": "trends are kept of the default branch"},
    )


def newest_range(visit: Visit, query: TrendQuery, shown: str) -> tuple[str, str] | None:
    """Where a range ends after the newest commit: the same length up to that commit, as (words, address)."""
    whole = load_trends(visit.c, replace(query, range="all", since=None, until=None, base="", head=""), now=visit.now)
    if not whole.at:
        return None
    length, until = RANGES.get(shown) or timedelta(days=7), whole.at[-1] + timedelta(seconds=1)
    ends = {"since": f"{until - length:%Y-%m-%dT%H:%M:%SZ}", "until": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
    return f"The {length.days or 1} d up to {numbers.day(until)}", visit.here(range=None, **ends)


def _end_name(name: str, at: datetime, otherwise: str) -> str:
    return f"{name or otherwise} · {numbers.day(at)}"


# --- how are we doing ------------------------------------------------------------------------------------------------


def sentence(trends: Trends) -> str:
    """The answer in one sentence."""
    if trends.base is None:
        return "Nothing was measured in this range."
    against = (
        f"{trends.base.name} ago"
        if trends.base.name[-1:] in "dh" and trends.base.name[:1].isdigit()
        else (trends.base.name[:10] or numbers.day(trends.base.at))
    )
    if trends.one_commit:
        if trends.base.name:
            return "Base and head are the same commit: there is nothing to compare."
        return f"{plural(trends.variants, 'variant')} measured, at one commit so far: nothing to compare with yet."
    if not trends.compared:
        return f"No variant was measured both at {against} and now."
    what = f"of {plural(trends.compared, 'variant')}"
    if not trends.slower and not trends.faster:
        return f"None {what} moved against {against}."
    are = "is" if trends.slower < 2 else "are"
    return f"{trends.slower or 'None'} {what} {are} worse than {against}, {trends.faster or 'none'} better."


def note(sections: Sequence[RegressionSection]) -> str:
    """Regressions that need a person."""
    unowned = next((section for section in sections if section.title == "Unassigned"), None)
    number = sum(len(each.onsets) + each.more for each in sections if each.title in ("Unassigned", "Assigned"))
    if not number:
        return "No regression is open."
    alone = len(unowned.onsets) + unowned.more if unowned else 0
    return f"{plural(number, 'onset')} with open regressions, {alone or 'none'} of them unassigned."


def tiles(trends: Trends) -> list[Tile]:
    """Speed, pass rate, compile time, memory, utilisation: those that are measured."""
    compile_unit = next((each.unit for each in trends.strips if "compile" in each.metric), "ms")
    found = [
        _mean_tile("Speed", "geometric mean, up is faster", trends.speed, None),
        _pass_tile(trends),
        _mean_tile(
            "Compile time",
            "geometric mean",
            trends.compile_time,
            _quantity(trends.compile_ms, compile_unit),
        ),
        _mean_tile("Peak memory", "geometric mean, less is better", trends.memory, _quantity(trends.memory_bytes, "B")),
        _mean_tile(
            "MFU",
            "of the device’s peak",
            trends.utilisation,
            None if trends.utilisation_now is None else f"{trends.utilisation_now * 100:.1f} %",
        ),
    ]
    shown = [tile for tile in found if tile is not None]
    return [_uncompared(tile) for tile in shown] if trends.one_commit else shown


def _uncompared(tile: Tile) -> Tile:
    """A tile while base and head are one commit: what is known, and no comparison of it with itself."""
    if not tile.shares:
        return tile  # of the newest runs alone
    value = "–" if tile.value.endswith("×") else tile.value
    return replace(tile, value=value, change=EMPTY, interval="", counts="nothing to compare with", shares=())


def _quantity(value: float | None, unit: str) -> str | None:
    return None if value is None else numbers.quantity(value, unit)


def _mean_tile(name: str, what: str, mean: Mean | None, level: str | None) -> Tile | None:
    if mean is None:
        return None
    cost = None if mean.change is None else 1 / (1 + mean.change) - 1
    partial = mean.compared < COVERED * mean.series
    sure = mean.low is not None and mean.high is not None and (mean.low > 0 or mean.high < 0)
    firm = cost is not None and sure and abs(cost) >= CERTAIN and not partial
    spread = ""
    if mean.low is not None and mean.high is not None:
        spread = spread_of(1 / (1 + mean.high) - 1, 1 / (1 + mean.low) - 1)
    ratio = "–" if mean.change is None else f"{1 + mean.change:.3f} ×"
    same = mean.compared - mean.slower - mean.faster
    return Tile(
        name=name,
        what=what,
        value=level or ratio,
        change=change_mark(cost, firm=firm) if sure else html('<span class="mut">no change</span>'),
        interval=spread,
        counts=f"{mean.slower} worse · {same} same · {mean.faster} better",
        coverage=f"{mean.compared} of {mean.series} series at both ends",
        partial=partial,
        spark=trend(mean.line, marked=firm and (cost or 0) > 0),
        shares=(("r", mean.slower), ("s", same), ("i", mean.faster)),
    )


def spread_of(low: float, high: float) -> str:
    """The interval of a change of cost beside its triangle, which says the sign of all of it; signed where it may be
    either."""
    return numbers.interval(-high, -low) if high < 0 else numbers.interval(low, high)


def _pass_tile(trends: Trends) -> Tile | None:
    rate = trends.pass_rate
    if not rate.applicable:
        return None
    now = rate.passed / rate.applicable
    moved = 0.0 if rate.before is None else now - rate.before
    failed = rate.applicable - rate.passed
    mark = html('<span class="mut">±0</span>')
    if abs(moved) >= 0.0005:
        css, glyph = ("bad", "▼") if moved < 0 else ("good", "▲")
        mark = html('<span class="{} nw">{} {:.1f} pt</span>', css, glyph, abs(moved) * 100)
    return Tile(
        name="Pass rate",
        what="of what applies",
        value=f"{now * 100:.1f} %".replace("100.0", "100"),
        change=mark,
        interval="",
        counts=f"{failed} failed · {rate.passed} passed",
        coverage="the newest run of each suite",
        partial=False,
        spark=trend(rate.line, marked=moved < 0),
    )


# --- what needs a person ---------------------------------------------------------------------------------------------


def sections_of(visit: Visit, trends: Trends) -> tuple[list[RegressionSection], list[Regression], list[Regression]]:
    """Open regressions by onset, the unassigned first; alarms about machines; what was closed within a week."""
    chosen = chosen_facets(visit.here)

    wanted = RegressionFilter(project=trends.project, testbed=visit.here.get("testbed") or None)
    found = service.newest_by_state(visit.c, wanted, {"suspect,open": 200, "closed": 30})
    current = passing(found["suspect,open"], chosen)
    closed = [
        each
        for each in passing(found["closed"], chosen)
        if each.closed_at is not None and visit.now - each.closed_at < RECENT
    ]
    alarms = [each for each in current if each.held_back]
    kinds: dict[str, list[Regression]] = {"Unassigned": [], "Assigned": [], "Suspects": []}
    for each in current:
        if each.held_back:
            continue
        assigned = each.state == "acknowledged" or each.owner
        kinds["Suspects" if each.state == "suspect" else "Assigned" if assigned else "Unassigned"].append(each)
    notes = {"Unassigned": "newest first", "Suspects": "more runs will decide; no notification has been sent"}
    onsets = {title: by_onset(items) for title, items in kinds.items() if items}
    many = len(current) > ONSETS
    shown = {title: found if title == "Assigned" and not many else found[:ONSETS] for title, found in onsets.items()}
    pictures = pictures_of(visit, trends.project, [items[0] for found in shown.values() for items in found])
    sections = [
        RegressionSection(
            title=title,
            note=notes.get(title, ""),
            onsets=[_shared_onset(items, pictures) for items in found],
            more=len(onsets[title]) - len(found),
            folded=title == "Assigned" and many,
        )
        for title, found in shown.items()
    ]
    return sections, alarms, closed


def by_onset(items: Sequence[Regression]) -> list[list[Regression]]:
    """The regressions that began at one commit, the largest change of each first, the newest onset first."""
    groups: dict[tuple[str, object], list[Regression]] = {}
    for each in sorted(items, key=lambda each: -(each.change or 0.0)):
        groups.setdefault(onset_of(each), []).append(each)
    return sorted(groups.values(), key=lambda found: began(found[0]), reverse=True)


def _shared_onset(found: Sequence[Regression], pictures: Mapping[int, Markup]) -> SharedOnset:
    lead = found[0]
    return SharedOnset(
        lead=lead,
        headline=name_of(lead),
        items=tuple(found),
        interval=interval_of(lead, lead.change),
        suspects=suspects(lead),
        one_commit=lead.suspect_commits == 1,
        series=sum(each.series for each in found),
        spark=pictures.get(lead.id, EMPTY),
    )
