"""Curves of a suite: a metric over a parameter of its variants, beside baselines, ceilings and published figures.

Where the parameter is a name (the rungs of a ladder, backends) there are bars, else lines. The dictionary goes to
Plotly as JSON.
"""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from textwrap import shorten, wrap
from typing import Any

from backend.services.reports.columns import natural
from backend.services.reports.suites import Curve, Sweep, SweepPoint, is_rung
from frontend import numbers
from frontend.figures.references import Published
from frontend.links import link
from frontend.render import visible

COLOURS = ("--v1", "--v2", "--v3", "--v4", "--v5", "--v6")
PATTERNS = ("", "/", ".", "x")  # of bars, where there are more variants than colours
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "pentagon", "star")
DASHES = ("solid", "dash", "dot", "dashdot")
OUTLINE_PX = 2.5
MARK_SHARE = 0.008  # of the tallest bar: how thick the mark of a baseline is
WIDE_RANGE = 8  # largest over smallest place from which the axis doubles instead of adding
TITLES = {"size_bytes": "message size", "ranks": "ranks", "length": "sequence length", "sequence": "sequence length"}
METRICS = {
    "tflops": "TFLOP/s",
    "tokens_per_s": "tokens a second",
    "busbw_gb_per_s": "bus bandwidth",
    "cache_gb_per_s": "bandwidth of the cache",
    "scaling_efficiency": "scaling efficiency",
}
# More names than these stand upright, on one line each, and the chart is as wide as that takes.
RUNGS_SIDE_BY_SIDE = 12
LONGEST_UPRIGHT = 22
UPRIGHT_PX = 15
SHARES = frozenset({"scaling_efficiency", "exposed_share"})  # fractions that people read as percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A measured limit of a testbed, in the unit of the figure."""

    name: str
    value: float


def curve_name(curve: Curve, sweep: Sweep) -> str:
    """The name of a curve: the parameters in which it differs from the others of its figure."""
    several = len({each.testbed for each in sweep.curves}) > 1
    names = {each.name for each in sweep.curves}
    parts = ([curve.testbed] if several else []) + ([curve.name] if len(names) > 1 or not several else [])
    return visible(", ".join(part for part in parts if part)) or sweep.metric


def curves_figure(
    sweep: Sweep, published: Sequence[Published] = (), ceilings: Sequence[Ceiling] = (), height: int = 320
) -> dict[str, Any]:
    """The figure as Plotly takes it."""
    show = _shower(sweep)
    data: list[dict[str, Any]] = []
    for index, curve in enumerate(sweep.curves):
        data += [_measured(curve, sweep, index, show), _before(curve, sweep, index)]
    data += [_published(each, sweep, index) for index, each in enumerate(published) if each.points]
    shapes, notes = [], []
    levels = [(each.name, each.level, "dash", "--ink-2") for each in published if each.level is not None]
    levels += [(each.name, each.value, "solid", "--ink-2") for each in ceilings]
    for name, value, dash, colour in levels:
        line = {"color": colour, "width": 1.2, "dash": dash}
        shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": line})
        notes.append(
            {
                "text": f"{html.escape(name)} {show(value)}",
                "x": 1,
                "xref": "paper",
                "y": value,
                "xanchor": "right",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"color": colour, "size": 11},
            }
        )
    data = [each for each in data if each["x"]]
    layout = _layout(sweep, levels, shapes, notes, height)
    layout["showlegend"] = sum(each.get("showlegend", True) for each in data) > 1
    return {"data": data, "layout": layout}


def _shower(sweep: Sweep) -> Callable[[float], str]:
    if sweep.metric in SHARES:
        return numbers.percent
    return lambda value: numbers.quantity(value, sweep.unit)


def _measured(curve: Curve, sweep: Sweep, index: int, show: Callable[[float], str]) -> dict[str, Any]:
    colour = COLOURS[index % len(COLOURS)]
    common = {
        "name": curve_name(curve, sweep),
        "x": [point.x for point in curve.points],
        "y": [point.value for point in curve.points],
        "hovertext": [_said(curve, at, sweep, show) for at in range(len(curve.points))],
        "hoverinfo": "text",
        "links": [link(f"/series/{point.series_id}", commit=point.sha) for point in curve.points],
    }
    # The fill names the variant, the outline tells the verdict: neither hides the other.
    worse = [point.verdict == "regression" for point in curve.points]
    outline = {"color": ["--reg" if each else colour for each in worse], "width": [OUTLINE_PX * each for each in worse]}
    if sweep.named:
        shown = [_short(point.value) for point in curve.points]
        outside = {"text": shown, "textposition": "outside", "textfont": {"color": "--ink-2"}, "cliponaxis": False}
        pattern = {"shape": PATTERNS[index // len(COLOURS) % len(PATTERNS)]}
        marker = {"color": colour, "line": outline, "pattern": pattern}
        return common | outside | {"type": "bar", "offsetgroup": str(index), "marker": marker}
    return common | {
        "type": "scatter",
        "mode": "lines+markers",
        "line": {"width": 1.8, "color": colour, "dash": DASHES[index // len(COLOURS) % len(DASHES)]},
        "marker": {"size": 8, "color": colour, "line": outline, "symbol": SYMBOLS[index % len(SYMBOLS)]},
    }


def _before(curve: Curve, sweep: Sweep, index: int) -> dict[str, Any]:
    """Where the same variants stood before: a mark each, across its own bar or around its own point."""
    known = [point for point in curve.points if point.baseline is not None]
    common: dict[str, Any] = {"name": f"{curve_name(curve, sweep)}, baseline", "hoverinfo": "skip", "showlegend": False}
    if sweep.named:
        # A mark of a scatter would stand in the middle of the group; a flat bar stands where its bar stands.
        flat = MARK_SHARE * max((point.value for each in sweep.curves for point in each.points), default=0.0)
        return common | {
            "type": "bar",
            "offsetgroup": str(index),
            "x": [point.x for point in known],
            "y": [flat for _ in known],
            "base": [(point.baseline or 0.0) - flat / 2 for point in known],
            "marker": {"color": "--ink", "line": {"color": "--surface", "width": 1}},
        }
    return common | {
        "type": "scatter",
        "mode": "markers",
        "x": [point.x for point in known],
        "y": [point.baseline for point in known],
        "marker": {
            "size": 11,
            "symbol": f"{SYMBOLS[index % len(SYMBOLS)]}-open",
            "color": COLOURS[index % len(COLOURS)],
            "line": {"width": 1.6},
        },
    }


def _published(each: Published, sweep: Sweep, index: int) -> dict[str, Any]:
    """Rungs are matched by their number: what follows it is a remark."""
    here = {rung_number(point.x): point.x for curve in sweep.curves for point in curve.points}
    known = [(here.get(x, x), y) for x, y in each.points if not sweep.named or x in here]
    return {
        "name": each.name,
        "type": "scatter",
        "mode": "lines+markers",
        "x": [x for x, _ in known],
        "y": [y for _, y in known],
        "hovertext": [html.escape(f"{each.name}: {numbers.grouped(f'{y:.0f}')}") for _, y in known],
        "hoverinfo": "text",
        "line": {"width": 1.2, "color": "--c-raw", "dash": DASHES[1 + index % 3]},
        "marker": {"size": 6, "color": "--c-raw", "symbol": "circle-open"},
    }


def rung_number(x: float | str) -> float | str:
    """r07 of r07_flash."""
    return x.partition("_")[0] if isinstance(x, str) else x


def _short(value: float) -> str:
    """A value in five characters: 12.4k, 1.05, 980."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= factor:
            return f"{numbers.significant(value / (1e3 if unit == 'k' else factor))}{unit}"
    return numbers.significant(value)


def _said(curve: Curve, at: int, sweep: Sweep, show: Callable[[float], str]) -> str:
    point = curve.points[at]
    lines = [f"<b>{show(point.value)}</b> at {html.escape(place(sweep, point.x))}"]
    if point.baseline is not None:
        lines.append(f"baseline {show(point.baseline)}, {point.verdict}")
    previous: SweepPoint | None = curve.points[at - 1] if at and is_rung(point.x) else None
    if previous is not None and previous.value > 0:
        lines.append(f"×{numbers.significant(point.value / previous.value)} of {html.escape(str(previous.x))}")
    return "<br>".join([*lines, html.escape(curve_name(curve, sweep))])


def place(sweep: Sweep, x: float | str) -> str:
    """A place on the axis as people write it: 4 MiB, 4k, 8."""
    if isinstance(x, str):
        return visible(x.replace("_", " "))
    if sweep.parameter == "size_bytes":
        for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if x >= factor:
                return f"{numbers.significant(x / factor)} {unit}"
        return f"{x:g} B"
    return f"{x / 1024:g}k" if x >= 1024 and x % 1024 == 0 else f"{x:g}"


def _layout(
    sweep: Sweep,
    levels: Sequence[tuple[str, float, str, str]],
    shapes: list[dict[str, Any]],
    notes: list[dict[str, Any]],
    height: int,
) -> dict[str, Any]:
    axis = {"gridcolor": "--line", "linecolor": "--line-2", "zeroline": False, "tickfont": {"color": "--ink-2"}}
    font = {"color": "--ink-2"}
    upright = width_of(sweep) is not None
    values = [point.value for curve in sweep.curves for point in curve.points] + [value for _, value, *_ in levels]
    y_axis = axis | {
        "title": {"text": html.escape(_unit(sweep)), "font": font},
        "rangemode": "tozero",
        "range": [0, 1.12 * max(values)] if values and max(values) > 0 else None,
        "fixedrange": True,
        "automargin": True,
    }
    if sweep.metric in SHARES:
        y_axis["tickformat"] = ".0%"
    return {
        "height": height,
        "margin": {"l": 54, "r": 20, "t": 40 if upright else 18, "b": 74 if sweep.named else 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "barmode": "group",
        "bargap": 0.35,
        "legend": {"orientation": "h", "font": {"color": "--ink-2"}} | (_ABOVE if upright else {"y": -0.24}),
        "hoverlabel": {"bgcolor": "--surface", "bordercolor": "--line-2", "font": {"color": "--ink"}, "align": "left"},
        "xaxis": axis
        | _places(sweep)
        | ({} if sweep.named else {"title": {"text": html.escape(parameter_title(sweep)), "font": font}}),
        "yaxis": {name: value for name, value in y_axis.items() if value is not None},
        "shapes": shapes,
        "annotations": notes,
    }


_ABOVE = {"y": 1.02, "yanchor": "bottom"}


def width_of(sweep: Sweep) -> int | None:
    """How wide the chart must be, in pixels, for upright names; None where they stand side by side in any width."""
    rungs = {point.x for curve in sweep.curves for point in curve.points}
    return 74 + UPRIGHT_PX * len(rungs) if sweep.named and len(rungs) > RUNGS_SIDE_BY_SIDE else None


def _unit(sweep: Sweep) -> str:
    if sweep.metric in SHARES:
        return sweep.metric.replace("_", " ")
    unit = "" if sweep.unit in numbers.UNITLESS else numbers.unit_text(sweep.unit)
    return {"1/s": "tokens/s" if sweep.metric == "tokens_per_s" else "per second"}.get(sweep.unit, unit) or sweep.metric


def metric_title(sweep: Sweep) -> str:
    return METRICS.get(sweep.metric, sweep.metric.replace("_", " "))


def parameter_title(sweep: Sweep) -> str:
    return TITLES.get(sweep.parameter, sweep.parameter.replace("_", " "))


def _places(sweep: Sweep) -> dict[str, Any]:
    """Every place that was measured has its tick; a wide range doubles from tick to tick."""
    common: dict[str, Any] = {"showgrid": False, "showline": True, "fixedrange": True}
    if sweep.named:
        rungs = list(dict.fromkeys(str(point.x) for curve in sweep.curves for point in curve.points))
        rungs.sort(key=natural)
        if len(rungs) > RUNGS_SIDE_BY_SIDE:
            upright = [html.escape(shorten(place(sweep, rung), LONGEST_UPRIGHT)) for rung in rungs]
            categories = {"type": "category", "categoryorder": "array", "categoryarray": rungs}
            ticks = {"tickvals": rungs, "ticktext": upright, "tickangle": -90, "tickfont": {"size": 10}}
            return common | categories | ticks | {"automargin": True}
        named = [html.escape("\n".join(wrap(place(sweep, rung), 11))).replace("\n", "<br>") for rung in rungs]
        categories = {"type": "category", "categoryorder": "array", "categoryarray": rungs}
        return common | categories | {"tickvals": rungs, "ticktext": named, "tickangle": 0}
    found = sorted({float(point.x) for curve in sweep.curves for point in curve.points})
    ticks = common | {"tickvals": found, "ticktext": [html.escape(place(sweep, x)) for x in found]}
    if found[0] > 0 and found[-1] / found[0] >= WIDE_RANGE:
        low, high = (log2(x) / log2(10) for x in (found[0] / 1.4, found[-1] * 1.4))
        return ticks | {"type": "log", "range": [low, high]}
    pad = (found[-1] - found[0]) * 0.08 or max(1.0, found[0] * 0.2)
    return ticks | {"range": [found[0] - pad, found[-1] + pad]}
