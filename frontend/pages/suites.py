"""Suites: every benchmark's current level, testbed by testbed, and its curves under ceilings and published figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from backend.regression.policy import PolicyBook
from backend.routing import Router
from backend.services.base.metric_words import change_word, worse_word
from backend.services.joint.status import joint_status
from backend.services.reports import suites as service
from backend.services.reports.suites import Machine, SuiteView, Sweep
from backend.store.reports.suites import SeriesStatus
from frontend import numbers
from frontend.figures.curves import SHARES, Ceiling, curves_figure, metric_title, parameter_title, width_of
from frontend.figures.references import beside
from frontend.figures.small import forest
from frontend.frame import Visiting
from frontend.links import link
from frontend.markup import html
from frontend.render import script_json, tag, verdict_tag
from frontend.words import plural

router = Router(include_in_schema=False)

LONG = 120  # rows of a benchmark; a longer table opens with what is not unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A metric of a variant at its newest point."""

    it: SeriesStatus
    variant: str
    change: str
    interval: str
    forest: Markup
    verdict: Markup
    css: str


CHART_PX = 460


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    id: str
    title: str
    note: str
    label: str
    figure: Markup
    width: int  # pixels that it needs; a narrower screen scrolls it
    published: tuple[str, ...]  # where published figures come from; also of those too far off to be drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPanel:
    """One benchmark."""

    benchmark: str
    href: str
    shared: str  # what all variants have in common
    rows: list[MetricRow]
    hidden: int
    chart: Chart | None


@router.get("/suites")
def suites_page(visit: Visiting) -> Response:
    """Where the suites used to stand: they are the strips of the Overview."""
    return RedirectResponse(visit.here.page("/"), status_code=308)


@router.get("/suites/{suite:path}")
def suite_page(visit: Visiting, suite: str) -> Response:
    """One suite, or with `benchmark=` one benchmark of it."""
    project, here = visit.project() or "", visit.here
    view = service.load_suite(visit.c, project, suite, here.get("benchmark") or None)
    whole = bool(here.get("all"))
    return visit.page(
        "suite.html",
        page="suites",
        title=view.benchmark or view.suite,
        description=describe(view),
        project=project,
        path="/suites",
        view=view,
        joint_status=joint_status(visit.c, project, visit.now),
        panels=panels(view, whole, visit.policies(project)),
        whole=whole,
        benchmarks=[("All", here(benchmark=None), view.benchmark is None)]
        + [(name, here(benchmark=name), view.benchmark == name) for name in view.benchmarks],
        several_testbeds=len(view.testbeds) > 1,
        alone=len(view.benchmarks) == 1 or view.benchmark is not None,
        gate=numbers.threshold(visit.policies(project).of(suite=suite).min_change),
        board_href=link("/board", project=project, suite=view.suite, lens="all"),
    )


def suite_href(project: str, suite: str, benchmark: str | None = None) -> str:
    return link(f"/suites/{quote(suite)}", project=project, benchmark=benchmark)


def panels(view: SuiteView, whole: bool, policies: PolicyBook) -> list[BenchmarkPanel]:
    """Each benchmark with its curve and its table."""
    curves = {sweep.benchmark: sweep for sweep in view.sweeps}
    by_benchmark: dict[str, list[SeriesStatus]] = {}
    for each in view.standings:
        by_benchmark.setdefault(each.benchmark, []).append(each)
    found = []
    for number, (benchmark, mine) in enumerate(by_benchmark.items()):
        shown = [each for each in mine if whole or telling(each, mine)] or mine
        if len(shown) > LONG and not whole:
            shown = [each for each in shown if each.verdict != "unchanged"]
        same = service.in_common(mine)
        chart = chart_of(curves[benchmark], view.machines, number) if benchmark in curves else None
        found.append(
            BenchmarkPanel(
                benchmark=benchmark,
                href=suite_href(view.project, view.suite, benchmark),
                shared=", ".join(f"{name}={value}" for name, value in same.items() if value != ""),
                rows=[
                    metric_row(
                        each,
                        same,
                        policies.of(
                            suite=view.suite, benchmark=benchmark, metric=each.metric, testbed=each.testbed
                        ).min_change,
                    )
                    for each in shown
                ],
                hidden=len(mine) - len(shown),
                chart=chart,
            )
        )
    return found


def chart_of(sweep: Sweep, machines: tuple[Machine, ...], number: int) -> Chart:
    largest = max(point.value for curve in sweep.curves for point in curve.points)
    near, far = beside(sweep.benchmark, sweep.metric, largest)
    limits = ceilings_of(sweep, machines, largest)
    title = f"{metric_title(sweep)} {'by' if sweep.named else 'over'} {parameter_title(sweep)}"
    said = [f"{each.name}: {each.source}" for each in near]
    for each in far:
        said.append(f"Not drawn, as it is far off: {each.name}, {spoken(sweep, each.largest)} ({each.source})")
    words = plural(sum(len(curve.points) for curve in sweep.curves), "point")
    better = "more is better" if sweep.direction == "higher" else "less is better"
    return Chart(
        id=f"curve-{number}",
        title=title,
        note=better,
        label=f"{sweep.benchmark}: {title}, {words} in {plural(len(sweep.curves), 'curve')}; the table has the numbers",
        figure=script_json(curves_figure(sweep, near, limits)),
        width=max(CHART_PX, width_of(sweep) or 0),
        published=tuple(said),
    )


def spoken(sweep: Sweep, value: float) -> str:
    return numbers.percent(value) if sweep.metric in SHARES else numbers.quantity(value, sweep.unit)


CEILING_OF_UNIT = {"TFLOP/s": "_tflops", "GB/s": "_gb_per_s"}
NEAR_CEILING = 8  # a ceiling this many times above everything measured would flatten the curve


def ceilings_of(sweep: Sweep, machines: tuple[Machine, ...], largest: float) -> list[Ceiling]:
    """The measured limits in the unit of this figure."""
    ending = CEILING_OF_UNIT.get(sweep.unit)
    here = {curve.testbed for curve in sweep.curves}
    found = []
    for machine in machines:
        if ending is None or machine.testbed not in here:
            continue
        for name, value in machine.ceilings.items():
            if name.endswith(ending) and value <= NEAR_CEILING * largest:
                words = name.removesuffix(ending).replace("_", " ")
                where = f" of {machine.testbed}" if len(here) > 1 else ""
                found.append(Ceiling(name=f"measured {words}{where}", value=value))
    return found


def telling(each: SeriesStatus, of: Sequence[SeriesStatus]) -> bool:
    """Gates; and where nothing with noise is one, as of a collective on a CPU, the figure that people quote."""
    if each.role == "gate":
        return True
    return each.metric in service.QUOTED and all(other.exact for other in of if other.role == "gate")


def metric_row(it: SeriesStatus, same: Mapping[str, Any], gate: float) -> MetricRow:
    varying = [(name, value) for name, value in it.variant.items() if name not in same]
    own = [str(value) if isinstance(value, str) else f"{name}={value}" for name, value in varying]
    own += [] if service.PRESET in same else [it.preset]
    interval = "" if it.low is None or it.high is None else numbers.interval(it.low, it.high)
    mark = verdict_tag(it.verdict)
    if it.verdict == "regression":
        now = f"{worse_word(it.unit, it.direction)} now"
        mark = tag(("t", "▽"), now) if it.red else tag(("k", "▽"), "worse, no gate")
    if it.role == "derived":
        mark = html('<span class="dim">computed</span>')
    css = "good" if it.verdict == "improvement" else "mut"
    return MetricRow(
        it=it,
        variant=", ".join(own) or it.benchmark.rpartition(".")[2],
        change=numbers.cost_change(it.change),
        interval=interval,
        forest=forest(
            it,
            gate,
            "" if it.change is None else change_word(it.unit, it.direction, it.change),
            it.verdict,
            width=150,
        ),
        verdict=mark,
        css="bad b" if it.red else css,
    )


def describe(view: SuiteView) -> str:
    """One sentence: the suite's status."""
    if not view.standings:
        return f"{view.suite}: nothing of it is judged on the default branch."
    gates = [each for each in view.standings if each.role == "gate"]
    slower = [each for each in gates if each.verdict == "regression"]
    name = view.benchmark or view.suite
    variants = len({(each.benchmark, each.variant_key) for each in view.standings})
    size = f"{plural(variants, 'variant')} on {', '.join(view.testbeds)}"
    if not slower:
        return f"{name}: {size}, nothing is slower than its baseline."
    worst = max(slower, key=lambda each: each.change or 0.0)
    of = f"{len(slower)} of {plural(len(gates), 'gate')} {'is' if len(slower) == 1 else 'are'} slower now"
    which = f"{worst.benchmark} {worst.variant_key.replace(',', ', ')}".strip()
    return f"{name}: {size}; {of}, most of all {which} by {numbers.percent(worst.change)}."
