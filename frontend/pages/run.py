"""One run: how it goes or went, its log, what it measured, what was judged, where it ran."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from fastapi.responses import Response
from markupsafe import Markup

from backend.regression.cause.attribution import canary_moved
from backend.routing import Router
from backend.services.base.metric_words import worse_word
from backend.services.runs import profiles
from backend.services.runs import view as run_view
from backend.services.runs.reproducing import Subject, at_commit
from backend.services.runs.view import LogPage, RunResult, RunView
from frontend import numbers
from frontend.figures.phases import PhaseBar, phases_svg
from frontend.figures.roofline import Dot, ceiling_words, roofline_figure, said
from frontend.frame import Visiting
from frontend.links import series_name
from frontend.markup import html, joined
from frontend.render import CONTROL_SEQUENCE, render, rendered, script_json, tag, verdict_tag, visible
from frontend.words import PHASES, plural

router = Router(include_in_schema=False)

MANY_METRICS = 40  # from here on the page opens with the gates and what moved
FEW_RESULTS, PHASES_FIRST = 4, 3
GOING = ("queued", "leased", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One line of the timeline, with how long it lasted until the next."""

    state: str
    at: datetime
    note: str
    lasted_s: float | None


@router.get("/runs/{run_id}")
def run_page(visit: Visiting, run_id: str) -> Response:
    run = run_view.load_run(visit.c, run_id)
    metrics = sum(len(result.measurements) for result in run.results)
    whole, has_trace = bool(visit.here.get("all")), any(".trace.json" in artifact.name for artifact in run.artifacts)
    page = visit.page(
        "run.html",
        page="run",
        title=f"{run.suite} at {run.sha[:7]}",
        description=describe(run),
        project=run.project,
        run=run,
        going=run.state in GOING,
        timeline=timeline(run),
        status_html=rendered("run_status.html", status_context(run, visit.now)),
        log_html=log_html(run.log),
        phases=[
            (result, milliseconds_of(result), phase_picture(result, run))
            for result in sorted(run.results, key=moved_most)
            if milliseconds_of(result)
        ],
        roofline=roofline(run),
        folds=metrics > MANY_METRICS,
        whole=whole,
        tells=tells,
        shown_phases=len(run.results) if whole or len(run.results) <= FEW_RESULTS else PHASES_FIRST,
        has_trace=has_trace,
        flat=flat,
        metric_tag=metric_tag,
        phase_colour=lambda name: PHASES.get(name, ("", "--c-other"))[1],
        kept=environment_of(run),
        canaries=canaries_of(run),
        reproduce=reproduce(run),
        percent_done=percent_done(run.progress),
    )
    if has_trace:  # the page must be able to hand the trace to the window that it opens
        page.headers["Cross-Origin-Opener-Policy"] = "same-origin-allow-popups"
    return page


@router.get("/runs/{run_id}/live")
def run_live(visit: Visiting, run_id: str, after: int = 0) -> Response:
    """The live part of a run's page: its status, and log lines newer than those shown."""
    run = run_view.load_run(visit.c, run_id)
    page = run_view.load_log(visit.c, run_id, after=after) if after else run.log
    content = {
        "state": run.state,
        "status": render("run_status.html", status_context(run, visit.now)),
        "log": str(log_html(page)),
        "last": page.last or after,
    }
    return Response(orjson.dumps(content), media_type="application/json", headers={"Cache-Control": "no-store"})


def status_context(run: RunView, now: datetime) -> dict[str, Any]:
    return {
        "run": run,
        "now": now,
        "timeline": timeline(run),
        "percent_done": percent_done(run.progress),
        "going": run.state in GOING,
    }


def timeline(run: RunView) -> list[Timing]:
    """The steps with what each took."""
    lines = []
    for index, event in enumerate(run.timeline):
        following = run.timeline[index + 1].at if index + 1 < len(run.timeline) else None
        lines.append(
            Timing(
                state=event.step or event.state,
                at=event.at,
                note=event.note or "",
                lasted_s=None if following is None else (following - event.at).total_seconds(),
            )
        )
    return lines


def percent_done(progress: Mapping[str, Any]) -> int | None:
    """Whole percent, if the worker reported how much there is to do."""
    done, total = progress.get("done"), progress.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return None
    return max(0, min(100, round(100 * done / total)))


def log_html(page: LogPage) -> Markup:
    """Lines as text: escapes for terminals are dropped, everything else is shown."""
    return joined(
        html(
            '<span class="{}">{}</span>\n',
            "err" if line.stream == "stderr" else "",
            visible(CONTROL_SEQUENCE.sub("", line.text)),
        )
        for line in page.lines
    )


def tells(it: run_view.RunMetric) -> bool:
    """A gate, or a metric that moved."""
    return it.role == "gate" or it.verdict in ("regression", "improvement", "suspect")


def moved_most(result: RunResult) -> float:
    """For sorting: what got most expensive comes first; where nothing was judged, the order of the run."""
    return -max((it.change or 0.0 for it in result.measurements if it.verdict == "regression"), default=0.0)


def milliseconds_of(result: RunResult) -> list[run_view.RunPhase]:
    """The phases in milliseconds; the same relative to a yardstick are metrics of their own, not further phases."""
    return [phase for phase in result.phases if phase.unit == "ms"]


def phase_picture(result: RunResult, run: RunView) -> Markup:
    pieces = [PhaseBar(name=phase.name, before=phase.before, after=phase.value) for phase in milliseconds_of(result)]
    return phases_svg(pieces, run.previous.sha[:7] if run.previous else "", run.sha[:7])


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Every compute result of the run under the ceilings that the run measured."""

    figure: Markup
    label: str
    ceilings: str
    rows: list[tuple[str, profiles.RooflinePoint]]


def roofline(run: RunView) -> Roofline | None:
    ceilings = profiles.ceilings_of(run.ceilings)
    dots, rows = [], []
    for result in run.results:
        point = profiles.roofline_point(result.roofline, ceilings)
        if point is None or result.status != "ok":
            continue
        name = series_name(result.benchmark, result.variant)
        dots.append(Dot(group=result.benchmark, label=name, point=point, link=f"#result-{result.index}"))
        rows.append((name, point))
    if not dots:
        return None
    closest = max(dots, key=lambda dot: dot.point.share_of_ceiling or 0.0)
    return Roofline(
        figure=script_json(roofline_figure(dots, ceilings)),
        label=f"Roofline of {plural(len(dots), 'result')}; nearest to its ceiling is {said(closest)}",
        ceilings=ceiling_words(ceilings) if ceilings else "no ceiling was measured",
        rows=sorted(rows, key=lambda row: -(row[1].share_of_ceiling or 0.0)),
    )


def canary_says(change: float | None, noise: float | None) -> tuple[str, bool]:
    """steady, +0.1 %; moved, −13 %; and whether it moved, which is unknown if its noise is unknown."""
    if change is None:
        return "read once", False
    said = numbers.signed_percent(change)
    if not noise:
        return f"{said}, its noise is not known", False
    moved = canary_moved(change, noise)
    return f"{'moved' if moved else 'steady'}, {said}", moved


def canaries_of(run: RunView) -> list[tuple[str, str, str, bool]]:
    """Of each canary: its name, its readings, what they say, and whether it moved."""
    found = []
    for it in run.canary:
        ends = [value for value in (it.get("before"), it.get("after")) if isinstance(value, int | float)]
        change = ends[1] / ends[0] - 1 if len(ends) == 2 and ends[0] else None
        read = " → ".join(numbers.significant(value, 4) for value in ends) or numbers.DASH
        found.append((str(it.get("name")), read, *canary_says(change, it.get("own_noise"))))
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as lines: temperature_c.max 66."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += flat(value, f"{prefix}{name} ")
        elif isinstance(value, list | tuple):
            rows.append((f"{prefix}{name}", "; ".join(listed(each) for each in value) or "none"))
        elif name.endswith("_bytes") and isinstance(value, int | float):
            rows.append((f"{prefix}{name.removesuffix('_bytes')}", numbers.quantity(value, "B")))
        elif isinstance(value, float):
            rows.append((f"{prefix}{name}", numbers.significant(value, 4)))
        else:
            rows.append((f"{prefix}{name}", str(value)))
    return rows


def environment_of(run: RunView) -> list[tuple[str, str]]:
    """Runs with the same hash share what the first of them reported, so its checkout is not a fact about this one."""
    return flat({name: value for name, value in run.environment.items() if name not in ("hash", "git")})


def listed(value: Any) -> str:
    """One entry of a list, on one line."""
    if isinstance(value, Mapping):
        return " ".join(text if name == "name" else f"{name} {text}" for name, text in flat(value))
    return str(value)


def metric_tag(measured: run_view.RunMetric) -> Markup:
    """The verdict of a metric; what is no gate got worse without an alarm."""
    if measured.verdict == "regression" and not measured.red:
        return tag(("k", "▽"), "worse, no gate")
    if measured.verdict == "regression" and not measured.onset:
        return tag(("t", "▽"), f"still {worse_word(measured.unit, measured.direction)}")
    return verdict_tag(measured.verdict or "insufficient")


def reproduce(run: RunView) -> str:
    """A shell line that measures the same again, in a clone of the repository."""
    subject = Subject(
        name="run",
        project=run.project,
        sha=run.sha,
        suite=run.suite,
        testbed=run.testbed,
        benchmarks=[str(name) for name in run.spec.get("benchmarks", ())],
    )
    return at_commit(run.spec, subject)


def describe(run: RunView) -> str:
    """One sentence for people and for pasted links."""
    place = f"{run.suite} at {run.sha[:7]} on {run.testbed}"
    if run.state == "queued":
        return f"{place} waits for a worker."
    if run.state in GOING:
        return f"{place} is running on {run.worker or 'a worker'}."
    if run.error:
        return f"{place} {run.status or run.state}: {visible(run.error)[:160]}"
    counted = Counter(each.verdict for result in run.results for each in result.measurements if each.role == "gate")
    judged = ", ".join(
        plural(number, verdict) if verdict in ("regression", "improvement") else f"{number} {verdict}"
        for verdict, number in sorted(counted.items(), key=str)
        if verdict
    )
    took = f" in {numbers.duration(run.duration_s)}" if run.duration_s is not None else ""
    return f"{place}: {plural(len(run.results), 'result')}{took}" + (f"; gates: {judged}." if judged else ".")
