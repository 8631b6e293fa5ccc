"""The popover of a cell: three facts, a picture, and the way on."""

from typing import Any

from markupsafe import Markup, escape

from backend.services.base.errors import BadRequest
from backend.services.base.metric_words import change_word
from backend.services.board.cell_detail import CellDetail, ResultDetail, load_cell, load_result
from backend.services.reports.explanations import Explanation
from backend.services.runs import view as run_view
from frontend import numbers
from frontend.figures.small import Levels, cell_trend
from frontend.frame import Visit
from frontend.links import link, series_name
from frontend.markup import html
from frontend.render import plain, tag
from frontend.words import RUN_STATES, VERDICTS, plural

MOST_FACTS, MOST_LETTERS = 3, 120


def cell_details(visit: Visit) -> dict[str, Any]:
    """The context of cell.html. `about` is s<series> or r<run>."""
    about, commit = visit.here.get("about"), visit.here.get("commit")
    if about.startswith("s") and about[1:].isdecimal() and len(about) < 11:
        return of_series(load_cell(visit.c, int(about[1:]), commit), visit)
    if about.startswith("r") and len(about) > 1:
        return {"kind": "run", "run": run_view.load_run(visit.c, about[1:]), "now": visit.now}
    if about.startswith("k") and len(about) > 1:
        project = visit.project()
        if project is not None:
            return of_result(load_result(visit.c, project, visit.here.get("testbed") or None, about[1:], commit), visit)
    raise BadRequest.field("about", about, "s and a series, r and a run, or k and a column of the board")


def of_result(detail: ResultDetail, visit: Visit) -> dict[str, Any]:
    """A variant that was never measured: why."""
    look, words = RUN_STATES.get(detail.status, ("f", "✕")), detail.status.replace("_", " ")
    return {"kind": "result", "detail": detail, "headline": tag(look, words), "now": visit.now}


def of_series(detail: CellDetail, visit: Visit) -> dict[str, Any]:
    """A judged point, or why there is none."""
    series, why = detail.series, detail.why
    return {
        "kind": "series",
        "detail": detail,
        "why": why,
        "name": series_name(series.benchmark, series.variant),
        "headline": tag(*headline(detail)),
        "facts": [] if why is None else facts(detail, why),
        "picture": picture(detail),
        "series_href": link(f"/series/{series.id}", commit=detail.sha),
        "compare_href": link("/compare", project=series.project, head=detail.sha, testbed=series.testbed),
        "now": visit.now,
    }


def headline(detail: CellDetail) -> tuple[tuple[str, str], str]:
    """(look, words) of the tag: how much slower or faster, or the verdict."""
    why, unit, direction = detail.why, detail.series.unit, detail.series.direction
    if why is None:
        look = RUN_STATES.get(detail.status or "", ("f", "✕"))
        return look, (detail.status or "not measured").replace("_", " ")
    if detail.gained is not None and why.verdict in ("unchanged", "unsteady", "insufficient", "improvement"):
        word = change_word(unit, direction, -detail.gained)
        return VERDICTS["improvement"], f"{numbers.percent(detail.gained)} {word} than before"
    look = VERDICTS[why.verdict]
    if why.verdict == "regression" and not why.onset:
        look = ("t", "▽")
    if why.verdict == "unsteady":
        return look, f"too unsteady, sees {numbers.percent(why.numbers.get('sees', 0.0))}"
    if why.change is None or why.verdict in ("unchanged", "insufficient"):
        return look, why.verdict if why.verdict != "insufficient" else f"{why.have} of {why.need} runs"
    return look, f"{numbers.percent(why.change)} {change_word(unit, direction, why.change)}"


def facts(detail: CellDetail, why: Explanation) -> list[tuple[str, Markup]]:
    """Three at most: how much, where in the step or how sure, and whose. The headline's size is not said again."""
    told = [("Value", _value(detail, why))]
    if detail.grown is not None:
        grown, share = detail.grown, detail.grown.share
        size = f"{'+' if grown.difference > 0 else numbers.MINUS}{numbers.quantity(abs(grown.difference), grown.unit)}"
        part = (
            ""
            if share is None or share > 1
            else f", {share:.0%} of what the phases moved".replace("%", f"{numbers.THIN}%")
        )
        told.append(("Where", html("<b>{} {}</b>{}", grown.metric.removesuffix("_ms").replace("_", " "), size, part)))
    if detail.regression is not None:
        told.append(("Cause", _cause(detail, why)))
    elif why.verdict in ("suspect", "insufficient", "unsteady"):
        told.append(("Why", escape(why.text)))
    elif why.noise:
        sees = why.minimum_detectable_effect
        more = f", sees {numbers.percent(sees)} and more" if sees else ""
        told.append(("Noise", html("±{}{}", numbers.percent(why.noise), more)))
    if len(told) < MOST_FACTS:
        told.append(("Commit", _commit(detail)))
    return told


def _value(detail: CellDetail, why: Explanation) -> Markup:
    unit = detail.series.unit
    was = "" if why.baseline is None else f"was {numbers.quantity(why.baseline, unit)} over {plural(why.have, 'run')}"
    interval = numbers.interval(why.low, why.high) if why.verdict not in ("unchanged", "insufficient") else ""
    said = ", ".join(part for part in (was, interval) if part)
    return html('<b>{}</b> <span class="mut">{}</span>', numbers.quantity(why.value, unit), said)


def _cause(detail: CellDetail, why: Explanation) -> Markup:
    """The class, and of an onset the commit; of what is still so, who has it."""
    case = detail.regression
    assert case is not None  # asked for by the caller
    cause = case.cause or "not settled yet"
    if why.onset:
        return html("<b>{}</b> · {}", cause, _commit(detail))
    hands = f"assigned to {case.owner}" if case.owner else "unassigned" if case.state == "confirmed" else ""
    return html("<b>{}</b> · {}", cause, ", ".join(part for part in (case.state, hands) if part))


def _commit(detail: CellDetail) -> Markup:
    message = detail.message.split("\n")[0][:MOST_LETTERS]
    return html("{}: {}", plain(detail.author), plain(message))


def conditions(why: Explanation) -> list[tuple[bool, str]]:
    """The conditions for a red cell, and whether each held here: from the stored numbers, in words."""
    rows: list[tuple[bool, str]] = []
    threshold = why.numbers.get("min_change", why.numbers.get("exact_min_change"))
    if why.change is not None and threshold is not None:
        reached = why.change >= threshold
        rows.append(
            (
                reached,
                f"{numbers.cost_change(why.change)} {'≥' if reached else '<'} {numbers.threshold(threshold)} threshold",
            )
        )
    if why.change is not None and why.noise:
        times = abs(why.change) / why.noise
        rows.append(
            (why.verdict in ("regression", "improvement"), f"{numbers.significant(times, 2)} × this series’ noise")
        )
    if why.verdict == "regression":
        rows.append((True, "sustained"))
    elif (runs := why.numbers.get("suspect_runs", 0)) and (needed := why.numbers.get("sustained_runs")):
        rows.append((runs >= needed, f"{min(runs, needed):.0f} of {needed:.0f} runs agree"))
    if why.minimum_detectable_effect:
        rows.append(
            (
                threshold is None or why.minimum_detectable_effect <= threshold,
                f"sees {numbers.percent(why.minimum_detectable_effect)} and more",
            )
        )
    return rows


def picture(detail: CellDetail) -> str:
    line, series = detail.sparkline, detail.series
    if not line.sha:
        return ""
    said = f"{series.metric} of {len(line.sha)} commits up to {line.sha[-1][:7]}"
    return cell_trend(line, levels(detail), unit=series.unit, said=said)


def levels(detail: CellDetail) -> Levels:
    """The baseline, its band and the threshold that the cell was judged by."""
    why = detail.why
    if why is None:
        return Levels()
    band = None if why.band_low is None or why.band_high is None else (why.band_low, why.band_high)
    size, threshold = why.numbers.get("min_change"), None
    if why.baseline is not None and size:
        threshold = why.baseline * (1 + size) if detail.series.direction == "lower" else why.baseline / (1 + size)
    return Levels(baseline=why.baseline, band=band, threshold=threshold)
