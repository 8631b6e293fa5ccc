"""Series: how one behaves, why a point is red or not, how noisy it is, what another threshold would have flagged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Any

import numpy as np
from fastapi.responses import Response
from markupsafe import Markup
from sqlalchemy import Connection

from backend.regression.terms import Verdict
from backend.routing import Router
from backend.services.base import scope
from backend.services.base.errors import BadRequest
from backend.services.base.metric_words import worse_word
from backend.services.base.scope import time_range
from backend.services.base.tables import TableFormat
from backend.services.judging import what_if
from backend.services.judging.what_if import Preview
from backend.services.reports import explanations, history
from backend.services.reports.explanations import Explanation
from backend.services.reports.facets import passes
from backend.services.reports.history import NamedSeries, SeriesPoints, SeriesQuery
from backend.services.reports.trends import recent_values
from backend.store.reports.points import Sampled
from frontend import numbers
from frontend.board.details import conditions
from frontend.facets import GRANULARITIES, chosen_facets, facet_bar
from frontend.figures.of_points import moment_of, newest_open_change, trend_of
from frontend.figures.small import distribution, sparkline
from frontend.figures.trend import trend_figure
from frontend.frame import Visit, Visiting
from frontend.links import link, long_parameters, series_name
from frontend.markup import EMPTY, html, joined
from frontend.pages.board import moment
from frontend.reference import ChosenReference, reference_of, since
from frontend.render import script_json, verdict_tag
from frontend.words import plural

router = Router(include_in_schema=False)

RANGES = (("7 d", "7d"), ("30 d", "30d"), ("90 d", "90d"), ("1 y", "1y"), ("All", "all"))
TABLE_ROWS = 40
LISTED = 100
PICTURED = 200  # rows with a sparkline
VERDICTS = [each.value for each in Verdict]
SORTS = {"noise": "noise", "effect": "minimum_detectable_effect", "change": "change"}
VERDICT_NAMES = ((Verdict.REGRESSION, "Worse"), (Verdict.UNSTEADY, "Too unsteady"))
SORT_NAMES = (("noise", "Noisiest"), ("effect", "Least sensitive"), ("change", "Most changed"))
NEWEST = "a list of series shows the newest point of each"
IDLE = {"branch": NEWEST, "base": NEWEST, "head": NEWEST, "range": NEWEST, "granularity": NEWEST}
SLIDER_ENDS, SLIDER_MOST = 30, 1000  # percent
WHAT_IF_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRow:
    """A point in the table beside the chart."""

    sha: str
    message: str
    at: datetime
    value: str
    change: str
    verdict: Markup
    css: str
    chosen: bool
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Another threshold, and what it would report. `most`: the end of the slider, in percent; `kept`: the rest of
    the address."""

    tried: float
    days: int
    most: int
    kept: list[tuple[str, str]]
    says: Markup


@router.get("/series")
def series_list(visit: Visiting) -> Response:
    """Every series of the project with its newest point."""
    project, here = visit.project(), visit.here
    chosen, sort = chosen_facets(here), here.get("sort")
    if sort and sort not in SORTS:
        raise BadRequest.field("sort", sort, list(SORTS))
    verdict = here.get("verdict")
    whole = chosen or sort or verdict
    items, following = page_of(
        visit.c, visit, project, here.get("cursor") or None, history.MAX_LIST if whole else LISTED
    )
    if sort:
        items.sort(key=lambda each: (each[SORTS[sort]] is None, -abs(each[SORTS[sort]] or 0)))
    values = recent_values(visit.c, project, [each["id"] for each in items[:PICTURED]]) if project else {}
    roles = [(word, visit.here(role=word), visit.here.get("role", "gate") == word) for word in (*history.ROLES, "any")]
    return visit.page(
        "series_list.html",
        page="series",
        title="Series",
        description=f"Every series of {project}: its current level and how it was judged.",
        project=project,
        path="/series",
        facets=facet_bar(visit, project, unused=IDLE),
        items=items,
        sparks={number: sparkline(points) for number, points in values.items()},
        sorts=[(name, here(sort=None if sort == key else key), sort == key) for key, name in SORT_NAMES],
        verdicts=[(name, here(verdict=None if verdict == key else key), verdict == key) for key, name in VERDICT_NAMES],
        next=following,
        roles=roles,
    )


def page_of(
    c: Connection, visit: Visit, project: str | None, cursor: str | None, limit: int = history.MAX_LIST
) -> tuple[list[Mapping[str, Any]], str | None]:
    """The series of this address from a place in the list on; and where the list continues."""
    here, chosen, verdict = visit.here, chosen_facets(visit.here), visit.here.get("verdict")
    if verdict and verdict not in VERDICTS:
        raise BadRequest.field("verdict", verdict, VERDICTS)
    if project is None:
        return [], None
    page = history.list_series(
        c,
        SeriesQuery(
            project=project,
            testbed=here.get("testbed") or None,
            role=here.get("role", "gate") if here.get("role") != "any" else None,
            text=here.get("q"),
            limit=limit,
            cursor=cursor,
        ),
    )
    found = [
        each
        for each in page.items
        if passes(chosen, each["suite"], each["metric"], each["variant"]) and verdict in ("", each["verdict"])
    ]
    return found, page.next


@router.get("/series/{series_id}")
def series_page(visit: Visiting, series_id: int) -> Response:
    """One series."""
    here = visit.here
    series = history.load_series(visit.c, series_id)
    shown, points = points_asked_for(visit, series_id)
    chosen = chosen_sha(points, here.get("commit"))
    why, samples = None, tuple[Sampled, ...]()
    if chosen and shown.granularity == "commit":
        why, samples = explanations.explain_with_samples(visit.c, series_id, chosen)
    reference = reference_of(visit.c, series_id, here.get("against"))
    name = series_name(series.benchmark, series.variant)
    gate = why.numbers.get("min_change") if why is not None else None
    open_change = newest_open_change(points.change_points)
    return visit.page(
        "series.html",
        page="series",
        title=f"{name} {series.metric}",
        description=describe(name, points),
        project=series.project,
        series=series,
        name=name,
        long_parameters=long_parameters(series.variant),
        points=points,
        figure=figure_json(points, gate, reference),
        reference=reference,
        against=since(reference, points) if reference else "",
        label=describe(name, points),
        ranges=[
            (label, here(range=value, since=None, until=None, zoom=None), shown.name == value)
            for label, value in RANGES
        ],
        granularities=[
            (label, here(granularity=value, zoom=None), shown.granularity == value) for label, value in GRANULARITIES
        ],
        rows=rows_of(points, chosen),
        **explained(why, series),
        **sampled(samples, why, series.unit),
        profile=profile_rows(series),
        open_change=open_change,
        open_word=worse_word(points.series.unit, points.series.direction),
        whatif=what_if_of(visit, points),
        files=shown.files(series_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPoints:
    """The part of a series that is shown: a range by name, or from one moment to another."""

    granularity: str
    name: str | None
    begin: datetime | None
    until: datetime | None

    def files(self, series_id: int) -> dict[str, str]:
        """Where the same points are had as files, by format."""
        return {
            wanted.value: link(
                f"/api/v1/series/{series_id}/points",
                format=wanted.value,
                granularity=self.granularity,
                range=self.name,
                since=self.begin.isoformat() if self.begin else None,
                until=self.until.isoformat() if self.until else None,
            )
            for wanted in TableFormat
        }


def points_asked_for(visit: Visit, series_id: int) -> tuple[ShownPoints, SeriesPoints]:
    """The points that the address requests; if it requests none and the last 90 days have none, all of them."""
    here = visit.here
    begin, until = moment(here.get("since"), "since"), moment(here.get("until"), "until", end=True)
    name = here.get("range") or (None if begin or until else "90d")
    shown = ShownPoints(granularity=here.get("granularity") or "commit", name=name, begin=begin, until=until)
    within = time_range(name, begin, until, now=visit.now)
    points = history.load_points(visit.c, series_id, shown.granularity, within)
    if len(points) or here.get("range") or begin or until:
        return shown, points
    return replace(shown, name="all"), history.load_points(visit.c, series_id, shown.granularity)


def explained(why: Explanation | None, series: NamedSeries) -> dict[str, Any]:
    """Why the chosen point was judged as it was."""
    return {
        "why": why,
        "conditions": conditions(why) if why else [],
        "signed": numbers.cost_change(why.change) if why else "",
        "interval": numbers.interval(why.low, why.high) if why else "",
        "would_not": would_not(why, series.direction, series.unit),
    }


def sampled(samples: Sequence[Sampled], why: Explanation | None, unit: str) -> dict[str, Any]:
    """Everything that was measured at the chosen point."""
    every = [process for run in samples for process in run.samples]
    values = [value for run in samples for value in run.processes]
    return {
        "samples": samples,
        "histogram": distribution(every, values or ([why.value] if why else []), unit),
        "sample_count": sum(map(len, every)),
        "process_count": len(values),
    }


def figure_json(points: SeriesPoints, gate: float | None, reference: ChosenReference | None = None) -> Markup:
    """The figure as a data block; `</` cannot end it early."""
    if not len(points):
        return EMPTY
    trend = trend_of(points, threshold_change=gate)
    if reference is not None and reference.value is not None:
        trend = replace(trend, reference=(reference.value, reference.short))
    return script_json(trend_figure(trend, 360))


def chosen_sha(points: SeriesPoints, asked: str) -> str | None:
    """The point that the page is about: the requested one, else the newest."""
    if asked:
        if not scope.SHA.match(asked.lower()):
            raise BadRequest.field("commit", asked, "a sha of four digits or more")
        return asked
    return points.sha[-1] if len(points.sha) else None


def describe(name: str, points: SeriesPoints) -> str:
    """Describe the chart in a sentence."""
    series = points.series
    if not len(points):
        return f"{name} {series.metric} on {series.testbed}: no point in this range."
    last = numbers.quantity(float(points.value[-1]), series.unit)
    said = f"{name} {series.metric} on {series.testbed}: {last} now"
    change = newest_open_change(points.change_points)
    if change is not None and change.regression_state == "expected":
        return f"{said}, on a new baseline since {(change.sha or '')[:7]}; {len(points)} points."
    if change is not None:
        word = worse_word(series.unit, series.direction)
        return f"{said}, {numbers.percent(change.change)} {word} since {(change.sha or '')[:7]}; {len(points)} points."
    return f"{said}, {points.verdict[-1] if points.verdict else 'not judged'}; {len(points)} points."


def rows_of(points: SeriesPoints, chosen: str | None) -> list[PointRow]:
    """The newest points first."""
    rows, gained = [], {it.sha: it.change for it in points.change_points if it.change < 0}
    for index in range(len(points.sha) - 1, max(-1, len(points.sha) - 1 - TABLE_ROWS), -1):
        change, verdict = float(points.change[index]), points.verdict[index]
        onset = bool(points.onset[index])
        rows.append(
            PointRow(
                sha=points.sha[index],
                message=points.message[index].split("\n")[0],
                at=moment_of(points.committed_at[index]),
                value=numbers.quantity(float(points.value[index]), points.series.unit, 4),
                change="" if change != change else numbers.cost_change(change),  # noqa: PLR0124 (not a number)
                verdict=point_tag(verdict, onset=onset, gained=gained.get(points.sha[index])),
                css="bad b" if verdict == "regression" else "good" if verdict == "improvement" else "mut",
                chosen=chosen is not None and points.sha[index].startswith(chosen),
                run_id=points.run_id[index],
            )
        )
    return rows


def point_tag(verdict: str, *, onset: bool, gained: float | None) -> Markup:
    """The verdict; where a change point for the better begins, by how much it is better than before."""
    if verdict == "regression" and not onset:
        return html('<span class="v t">▽ still</span>')
    if gained is not None and verdict in ("improvement", "unchanged", "unsteady", "insufficient"):
        return html('<span class="v i">▲ {} better than before</span>', numbers.percent(gained))
    return verdict_tag(verdict)


def would_not(why: Explanation | None, direction: str, unit: str) -> str:
    """Conditions under which the verdict would have been another one."""
    gate = None if why is None else why.numbers.get("min_change")
    if why is None or why.baseline is None or gate is None:
        return ""
    edge = why.baseline * (1 + gate) if direction == "lower" else why.baseline / (1 + gate)
    side = "under" if direction == "lower" else "over"
    if why.verdict == "regression":
        return f"Would not be red if the value were {side} {numbers.quantity(edge, unit, 4)}."
    other = "over" if direction == "lower" else "under"
    return f"Would be measured again if the value were {other} {numbers.quantity(edge, unit, 4)}."


def profile_rows(series: history.NamedSeries) -> list[tuple[str, str]]:
    """The noise of a series as the judge knows it, and how often it was right, in words."""
    noise = series.profile
    assert noise is not None  # the page loads it
    needed = plural(noise.needed_runs, "more run")
    rows = [("Runs at this level", f"{noise.runs}: insufficient, {needed}" if noise.needed_runs else str(noise.runs))]
    if noise.noise is not None:
        rows.append(("Run to run (relative spread)", numbers.percent(noise.noise)))
    if noise.minimum_detectable_effect is not None:
        shown_by = f"Smallest change that {plural(noise.sustained_runs, 'run')} show"
        rows.append((shown_by, numbers.percent(noise.minimum_detectable_effect)))
    if noise.runs_to_show_min_change is not None:
        rows.append(("Runs until the smallest regression is clear", str(noise.runs_to_show_min_change)))
    if noise.autocorrelation is not None:
        rows.append(("Correlation with the run before", numbers.significant(noise.autocorrelation)))
    if noise.bimodal is not None and noise.mode_gap is not None:
        apart = f"yes, {numbers.percent(noise.mode_gap)} apart"
        rows.append(("Jumps between two levels", apart if noise.bimodal else "no"))
    elif noise.needed_for_modes:
        rows.append(("Jumps between two levels", f"insufficient, {plural(noise.needed_for_modes, 'more run')}"))
    told, wrong = series.alarms_confirmed, series.alarms_withdrawn
    rows.append(("Alarms confirmed, withdrawn", f"{told}, {wrong}" if told or wrong else "none reported yet"))
    asked = plural(noise.sustained_runs, "bad run")
    more = f", {noise.extra_runs} more for its false alarms" if noise.extra_runs else ""
    rows.append(("It asks for", f"{asked}{more}"))
    rows += [(f"Worker {it.worker} is calibrated", plural(it.needed_runs, "more run")) for it in noise.calibrating]
    return rows


def slider_end(points: SeriesPoints) -> int:
    """Where the slider of the threshold ends, in percent: at 30, or past the largest loss that is drawn."""
    changes = np.asarray(points.change, dtype=float)
    largest = float(np.nanmax(changes, initial=0.0, where=np.isfinite(changes)))
    return max(SLIDER_ENDS, min(SLIDER_MOST, ceil(largest * 10) * 10))


def what_if_of(visit: Visit, points: SeriesPoints) -> WhatIf | None:
    """What another threshold would have reported for the series; None if it has no such threshold: for counters, and
    for metrics that are only watched."""
    series = points.series
    if series.role != "gate" or series.exact or points.granularity != "commit" or not len(points):
        return None
    names = {"suite": series.suite, "benchmark": series.benchmark, "metric": series.metric, "testbed": series.testbed}
    present = visit.policies(series.project).of(**names).min_change
    tried = _tried(visit.here.get("gate"), present)
    found = what_if.preview_series(visit.c, series.project, series.id, tried, now=visit.now)
    return WhatIf(
        tried=tried,
        days=found.days,
        most=max(slider_end(points), ceil(tried * 100)),
        kept=visit.here.hidden("gate"),
        says=what_if_words(found, tried, present),
    )


def _tried(asked: str, present: float) -> float:
    """The threshold that is asked for, in percent, as a fraction."""
    if not asked:
        return present
    accepted = f"a number of percent from 0.1 to {SLIDER_MOST}"
    try:
        percent = float(asked)
    except ValueError:
        raise BadRequest.field("gate", asked, accepted) from None
    if not 0.1 <= percent <= SLIDER_MOST:
        raise BadRequest.field("gate", asked, accepted)
    return round(percent / 100, 5)


def what_if_words(found: Preview, tried: float, present: float) -> Markup:
    """At 3 %: 2 regressions instead of 1. Besides: ▼ 4.1 % since 1a2b3c4."""
    told = plural(found.then, "regression")
    if tried == present:
        return html("At {}, as it is now: {} of this series in {} days.", numbers.percent(tried), told, found.days)
    if not (found.added or found.removed):
        return html("At {}: {}, the same as at {}.", numbers.percent(tried), told, numbers.percent(present))
    said = html("At {}: {} instead of {}.", numbers.percent(tried), told, found.now)
    for word, flags in (("Besides", found.added), ("No longer", found.removed)):
        if flags:
            each = [
                html(
                    '{}▼ {} since <span class="mono">{}</span>',
                    html('<a href="/regressions/{0}">R-{0}</a> ', it.regression_id) if it.regression_id else EMPTY,
                    numbers.percent(it.change),
                    (it.sha or "")[:7],
                )
                for it in flags[:WHAT_IF_NAMED]
            ]
            rest = f", {len(flags) - len(each)} more" if len(flags) > len(each) else ""
            said += html(" {}: {}{}.", word, joined(each, ", "), rest)
    return said
