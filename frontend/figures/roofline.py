"""The roofline: work per byte against speed, both on scales that double, under the ceilings that a run measured."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from backend.services.runs.profiles import Ceilings, RooflinePoint
from frontend import numbers
from frontend.figures.curves import COLOURS, SYMBOLS
from frontend.render import visible

BOUNDS = {
    "compute": "bound by compute",
    "memory": "bound by memory",
    "latency": "far below both ceilings: latency",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A measured step. `group` has one colour and one symbol; `hollow` marks what was before."""

    group: str
    label: str
    point: RooflinePoint
    link: str
    hollow: bool = False


def said(dot: Dot) -> str:
    """A dot in words, as plain text."""
    point = dot.point
    roof = "its ceiling" if point.roof_tflops is None else f"the {numbers.significant(point.roof_tflops)} above it"
    share = "" if point.share_of_ceiling is None else f", {numbers.percent(point.share_of_ceiling)} of {roof}"
    return f"{dot.label}: {numbers.significant(point.achieved_tflops)} TFLOP/s{share}"


def roofline_figure(dots: Sequence[Dot], ceilings: Ceilings | None, height: int = 320) -> dict[str, Any]:
    """The figure as Plotly takes it."""
    groups: dict[tuple[str, bool], list[Dot]] = {}
    for dot in dots:
        groups.setdefault((dot.group, dot.hollow), []).append(dot)
    names = list(dict.fromkeys(dot.group for dot in dots))
    low, high = _reach([dot.point.flop_per_byte for dot in dots], ceilings)
    data: list[dict[str, Any]] = [] if ceilings is None else [_roof(ceilings, low, high)]
    for (group, hollow), mine in groups.items():
        data.append(_dots(group, hollow, mine, names.index(group)))
    notes = [] if ceilings is None else _roof_notes(ceilings, high)
    axis = {
        "type": "log",
        "gridcolor": "--line",
        "linecolor": "--line-2",
        "zeroline": False,
        "tickfont": {"color": "--ink-2"},
        "fixedrange": True,
        "minor": {"showgrid": False},
    }
    speeds = [dot.point.achieved_tflops for dot in dots] + ([ceilings.tflops] if ceilings else [])
    bottom, top = log10(min(speeds) / 2.5), log10(max(speeds) * 2)
    font = {"color": "--ink-2"}
    layout = {
        "height": height,
        "margin": {"l": 62, "r": 16, "t": 14, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "showlegend": len(groups) > 1,
        "legend": {"orientation": "h", "y": -0.22, "font": font},
        "hoverlabel": {"bgcolor": "--surface", "bordercolor": "--line-2", "font": {"color": "--ink"}, "align": "left"},
        "xaxis": axis
        | _doubling(low, high)
        | {"range": [log10(low), log10(high)], "title": {"text": "FLOP per byte", "font": font}},
        "yaxis": axis
        | _doubling(10**bottom, 10**top)
        | {"range": [bottom, top], "title": {"text": "TFLOP/s", "font": font}},
        "annotations": notes,
    }
    return {"data": data, "layout": layout}


def _reach(intensities: Sequence[float], ceilings: Ceilings | None) -> tuple[float, float]:
    places = [*intensities] + ([1000 * ceilings.tflops / ceilings.gb_per_s] if ceilings else [])
    return min(places) / 4, max(places) * 4


def _doubling(low: float, high: float) -> dict[str, Any]:
    """Ticks at 1, 2 and 5 of each power of ten, or at powers alone where there are many."""
    decades = range(int(log10(low)) - 1, int(log10(high)) + 2)
    steps = (1, 2, 5) if log10(high / low) <= 3 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _roof(ceilings: Ceilings, low: float, high: float) -> dict[str, Any]:
    ridge = 1000 * ceilings.tflops / ceilings.gb_per_s
    x = [low, ridge, high] if low < ridge < high else [low, high]
    return {
        "name": "ceiling",
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": [min(ceilings.tflops, each * ceilings.gb_per_s / 1000) for each in x],
        "hoverinfo": "skip",
        "showlegend": False,
        "line": {"width": 1.8, "color": "--ink-2"},
    }


def ceiling_words(ceilings: Ceilings) -> str:
    """Both limits, measured: gemm bf16 780 TFLOP/s, hbm copy 4 200 GB/s."""
    compute = ceilings.tflops_name.removesuffix("_tflops").replace("_", " ")
    memory = ceilings.gb_per_s_name.removesuffix("_gb_per_s").replace("_", " ")
    speeds = f"{numbers.significant(ceilings.tflops)} TFLOP/s", f"{numbers.significant(ceilings.gb_per_s)} GB/s"
    return f"{compute} {speeds[0]}, {memory} {speeds[1]}"


def _roof_notes(ceilings: Ceilings, high: float) -> list[dict[str, Any]]:
    name = ceilings.tflops_name.removesuffix("_tflops").replace("_", " ")
    text = f"measured {name} {numbers.significant(ceilings.tflops)}"
    place = {"x": log10(high), "y": log10(ceilings.tflops), "xanchor": "right", "yanchor": "bottom"}
    return [{"text": html.escape(visible(text)), "showarrow": False, "font": {"color": "--ink-2", "size": 11}} | place]


def _dots(group: str, hollow: bool, mine: Sequence[Dot], index: int) -> dict[str, Any]:
    colour, symbol = COLOURS[index % len(COLOURS)], SYMBOLS[index % len(SYMBOLS)]
    return {
        "name": visible(group),
        "type": "scatter",
        "mode": "markers",
        "x": [dot.point.flop_per_byte for dot in mine],
        "y": [dot.point.achieved_tflops for dot in mine],
        "hovertext": [
            f"{html.escape(visible(said(dot)))}<br>{html.escape(BOUNDS.get(dot.point.bound, dot.point.bound))}"
            for dot in mine
        ],
        "hoverinfo": "text",
        "links": [dot.link for dot in mine],
        "marker": {
            "size": 10,
            "color": colour,
            "symbol": f"{symbol}-open" if hollow else symbol,
            "line": {"width": 1.8 if hollow else 0, "color": colour},
        },
    }
