"""The trend of a series: raw points, smoothed line, baseline band, threshold, anchor, change points, changes around it.

The horizontal axis is the position on the branch, because that is the order commits have; for hours, days and weeks it
is time. The dictionary goes to Plotly as JSON: building it costs a fraction of a millisecond, where figure objects
cost twenty.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from frontend import numbers
from frontend.render import SPECIAL, visible

GREY, LINE, RED, CYAN, AMBER, VIOLET, BAND = (
    "--c-raw",
    "--c-line",
    "--reg",
    "--imp-line",
    "--sus-line",
    "--qua-line",
    "--c-band",
)
MAX_TICKS = 9
TOP, BOTTOM = 48, 30  # margins, in pixels
LABEL_PX = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Something at a place of the axis: a change of the environment between two points."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMark:
    """A change point: where it begins, how big, and the range in which it may have begun."""

    at: float
    range_from: float
    label: str
    worse: bool
    before: float | None = None
    after: float | None = None
    doubtful: bool = False  # a suspect, or held back as a machine's doing: nobody was told of a regression
    accepted: bool = False  # the level after it is the baseline: a person said so, or it began by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A series, column by column; None where a point has no such value."""

    unit: str
    metric: str
    x: Sequence[float | datetime]
    value: Sequence[float]
    ticks: Sequence[str]
    hover: Sequence[str]
    links: Sequence[str]
    state: Sequence[str]  # "regression", "improvement", "suspect", "quarantined" or anything else, which is grey
    smoothed: Sequence[float | None] = ()
    band_low: Sequence[float | None] = ()
    band_high: Sequence[float | None] = ()
    baseline: Sequence[float | None] = ()
    anchor: float | None = None
    reference: tuple[float, str] | None = None  # the value at the commit that the reader holds it against, its name
    threshold: float | None = None
    steps: Sequence[ChangeMark] = ()
    markers: Sequence[Marker] = ()
    after: float | None = None  # from here on the smoothed line is red: the open regression's onset
    low: Sequence[float | None] = field(default=())  # spread of a bucket, for hours, days and weeks
    high: Sequence[float | None] = field(default=())


def hover_text(*lines: str) -> str:
    """Plotly reads a few HTML tags in hover text: foreign text must be escaped here too."""
    return "<br>".join(escaped_all([line for line in lines if line]))


def escaped_all(texts: Sequence[str]) -> list[str]:
    """The texts for hovering: one look at all of them, and a second only at a column that has anything to escape."""
    if SPECIAL.search("".join(texts)) is None:
        return list(texts)
    return [html.escape(visible(text)) for text in texts]


def trend_figure(trend: Trend, height: int = 340) -> dict[str, Any]:
    """The figure as Plotly takes it."""
    factor, unit = numbers.scale_of(_typical(trend.value), trend.unit)
    x = [_plain(each) for each in trend.x]
    data = [
        *_band(trend, x, factor),
        *_spread(trend, x, factor),
        *_raw(trend, x, factor),
        *_smoothed(trend, x, factor),
    ]
    shapes, notes = _lines(trend, factor, height)
    return {"data": data, "layout": _layout(trend, x, unit, shapes, notes, height)}


def _typical(values: Sequence[float]) -> float:
    ordered = sorted(abs(value) for value in values)
    return ordered[len(ordered) // 2] if ordered else 0.0


def _plain(x: float | datetime) -> float | str:
    return x.isoformat() if isinstance(x, datetime) else x


def _scaled(values: Sequence[float | None], factor: float) -> list[float | None]:
    return [None if value is None else value / factor for value in values]


def _band(trend: Trend, x: list[float | str], factor: float) -> list[dict[str, Any]]:
    """Baseline and its noise. Breaks where the baseline restarts, so that no band leads from one level to the next."""
    if not any(value is not None for value in trend.band_low):
        return []
    pieces = _pieces(trend.baseline)
    quiet = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "connectgaps": False}
    traces: list[dict[str, Any]] = []
    for start, end in pieces:
        xs = x[start:end]
        low, high = _scaled(trend.band_low[start:end], factor), _scaled(trend.band_high[start:end], factor)
        traces += [
            quiet | {"name": "baseline", "x": xs, "y": low, "line": {"width": 0, "color": BAND, "shape": "hvh"}},
            quiet
            | {
                "name": "baseline",
                "x": xs,
                "y": high,
                "line": {"width": 0, "color": BAND, "shape": "hvh"},
                "fill": "tonexty",
                "fillcolor": BAND,
            },
            quiet
            | {
                "name": "baseline",
                "x": xs,
                "y": _scaled(trend.baseline[start:end], factor),
                "line": {"width": 1, "color": f"{LINE}/0.45", "shape": "hvh"},
            },
        ]
    return traces


def _pieces(baseline: Sequence[float | None], jump: float = 0.02) -> list[tuple[int, int]]:
    """Stretches with one level: a new piece begins where there was no baseline or it moved by more than `jump`."""
    pieces: list[tuple[int, int]] = []
    start: int | None = None
    previous: float | None = None
    for index, value in enumerate(baseline):
        broken = value is None or (previous is not None and abs(value - previous) > jump * abs(previous))
        if start is not None and broken:
            pieces.append((start, index))
            start = None
        if value is not None and start is None:
            start = index
        previous = value
    if start is not None:
        pieces.append((start, len(baseline)))
    return pieces


def _spread(trend: Trend, x: list[float | str], factor: float) -> list[dict[str, Any]]:
    if not trend.low:
        return []
    line = {"mode": "lines", "hoverinfo": "skip", "name": "spread", "line": {"width": 0, "color": f"{GREY}/0.2"}}
    return [
        line | {"x": x, "y": _scaled(trend.low, factor)},
        line | {"x": x, "y": _scaled(trend.high, factor), "fill": "tonexty", "fillcolor": f"{GREY}/0.18"},
    ]


def _raw(trend: Trend, x: list[float | str], factor: float) -> list[dict[str, Any]]:
    """One trace: markers keep their index, so that a click finds its link."""
    colours = {"regression": RED, "improvement": CYAN, "suspect": AMBER, "quarantined": VIOLET}
    return [
        {
            "name": "runs",
            "type": "scatter",
            "mode": "markers",
            "x": x,
            "y": [value / factor for value in trend.value],
            "hovertext": list(trend.hover),
            "hoverinfo": "text",
            "links": list(trend.links),
            "marker": {
                "size": [8 if state == "quarantined" else 6 for state in trend.state],
                "opacity": 0.85,
                "line": {"width": 0},
                "color": [colours.get(state, GREY) for state in trend.state],
                "symbol": ["diamond" if state == "quarantined" else "circle" for state in trend.state],
            },
        }
    ]


def _smoothed(trend: Trend, x: list[float | str], factor: float) -> list[dict[str, Any]]:
    """Two lines: the level before, and red from the onset on. They don't touch, because a step is no slope."""
    if not any(value is not None for value in trend.smoothed):
        return []
    y = _scaled(_settled(trend), factor)
    cuts = sorted({0, len(x), *(i for i, each in enumerate(trend.x) for step in trend.steps if each == step.at)})
    traces = []
    for start, end in pairwise(cuts):
        first = trend.x[start]
        red = trend.after is not None and isinstance(first, int | float) and first >= trend.after
        traces.append(
            {
                "name": "smoothed",
                "mode": "lines",
                "x": x[start:end],
                "y": y[start:end],
                "hoverinfo": "skip",
                "line": {"width": 1.8, "color": RED if red else LINE},
            }
        )
    return traces


def _settled(trend: Trend) -> list[float | None]:
    """The smoothed line without its late start: just after an onset it still remembers the level before."""
    values = list(trend.smoothed)
    for step in trend.steps:
        if step.before is None or step.after is None:
            continue
        for index, at in enumerate(trend.x):
            value = values[index]
            if value is None or not isinstance(at, int | float) or at < step.at:
                continue
            if abs(value - step.after) <= abs(value - step.before):
                break
            values[index] = None
    return values


Drawn = dict[str, Any]


def _lines(trend: Trend, factor: float, height: int) -> tuple[list[Drawn], list[Drawn]]:
    """Shapes and labels: threshold, anchor, reference, environment changes, change points with their suspect range."""
    drawn = [*_levels(trend, factor, height), *map(_marker, trend.markers), *map(_step, trend.steps)]
    return [shape for shapes, _ in drawn for shape in shapes], [note for _, note in drawn]


def _levels(trend: Trend, factor: float, height: int) -> Iterator[tuple[list[Drawn], Drawn]]:
    """Lines from edge to edge, named at their end; names that would run into each other stand apart."""
    up = lift(trend, height)
    if trend.threshold is not None:
        shapes, note = _level("threshold", trend.threshold / factor, "--reg-text", "--reg-text", "dash")
        yield shapes, note | {"yshift": up}
    if trend.anchor is not None:
        shapes, note = _level("anchor", trend.anchor / factor, CYAN, "--ink-2", "dot")
        yield shapes, note | {"yshift": -up}
    if trend.reference is not None:
        value, name = trend.reference
        shapes, note = _level(html.escape(name), value / factor, "--accent", "--accent", "longdash")
        # At the other end than threshold and anchor, which may lie on the same level.
        yield shapes, note | {"x": 0, "yanchor": "bottom", "yshift": 1}


def lift(trend: Trend, height: int) -> float:
    """By how many pixels the threshold's name is moved up, and the anchor's down; below 0 the other way round."""
    if trend.threshold is None or trend.anchor is None:
        return 0.0
    drawn = [*trend.value, *trend.band_low, *trend.band_high, *trend.low, *trend.high]
    known = [each for each in drawn if each is not None]
    span = (max(known) - min(known)) * 1.1 if known else 0.0
    distance = (trend.threshold - trend.anchor) / span * (height - TOP - BOTTOM) if span else 0.0
    missing = max(0.0, LABEL_PX - abs(distance)) / 2
    return round(missing if distance >= 0 else -missing, 1)


def _level(name: str, y: float, colour: str, ink: str, dash: str) -> tuple[list[Drawn], Drawn]:
    ends = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y}
    note = _note(f"{name} {numbers.significant(y)}", x=1, xref="paper", y=y, xanchor="left", colour=ink)
    return [ends | {"line": {"color": colour, "width": 1.2, "dash": dash}}], note | {"xshift": 6, "yanchor": "middle"}


def _marker(marker: Marker) -> tuple[list[Drawn], Drawn]:
    at = marker.at - 0.5
    note = _note(f"◆ {html.escape(marker.label)}", x=at, y=1.0, xanchor="left", colour="--sus-text")
    return [_upright(at, AMBER, "dash", 1.2)], note


def _step(step: ChangeMark) -> tuple[list[Drawn], Drawn]:
    """A change point, and the range of commits that may have caused it."""
    colour = GREY if step.accepted else AMBER if step.doubtful else RED if step.worse else CYAN
    at = step.at - 0.5
    shapes = [_upright(at, colour, "solid", 1.6)]
    if step.range_from < at:
        area = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x0": step.range_from, "x1": at}
        shapes.insert(0, area | {"fillcolor": f"{colour}/0.09", "line": {"width": 0}, "layer": "below"})
    quiet = "--ink-2" if step.accepted else "--sus-text" if step.doubtful else None
    ink = quiet or ("--reg-ink" if step.worse else "--imp-ink")
    note = _note(html.escape(step.label), x=at, y=1.0, xanchor="center", colour=ink)
    box = {} if quiet else {"bgcolor": RED if step.worse else "--imp"}
    return shapes, note | box | {"borderpad": 3, "yanchor": "bottom", "yshift": 17}


def _upright(x: float, colour: str, dash: str, width: float) -> dict[str, Any]:
    line = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line}


def _note(text: str, *, x: float, y: float, xanchor: str, colour: str, xref: str = "x") -> dict[str, Any]:
    return {
        "text": text,
        "x": x,
        "xref": xref,
        "y": y,
        "yref": "paper" if xref == "x" else "y",
        "xanchor": xanchor,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": colour, "size": 11},
    }


def _layout(
    trend: Trend,
    x: list[float | str],
    unit: str,
    shapes: list[dict[str, Any]],
    notes: list[dict[str, Any]],
    height: int,
) -> dict[str, Any]:
    axis = {
        "gridcolor": "--line",
        "linecolor": "--line-2",
        "zeroline": False,
        "tickfont": {"color": "--ink-2"},
        "automargin": False,
    }
    x_axis: dict[str, Any] = axis | {"showgrid": False, "showline": True, "fixedrange": False}
    if x and isinstance(x[0], int | float):
        step = max(1, -(-len(x) // MAX_TICKS))
        # Counted from the newest: the right end always has its label.
        chosen = sorted(range(len(x) - 1, -1, -step))
        chosen = [i for n, i in enumerate(chosen) if n == 0 or trend.ticks[i] != trend.ticks[chosen[n - 1]]]
        x_axis |= {"tickvals": [x[i] for i in chosen], "ticktext": [html.escape(trend.ticks[i]) for i in chosen]}
        x_axis |= {"range": [float(x[0]) - 0.8, float(x[-1]) + 0.8]} if isinstance(x[-1], int | float) else {}
    title = numbers.unit_text(unit) if unit not in numbers.UNITLESS else ""
    return {
        "height": height,
        "margin": {"l": 54, "r": 108, "t": TOP, "b": BOTTOM},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "dragmode": "zoom",
        "showlegend": False,
        "hoverlabel": {"bgcolor": "--surface", "bordercolor": "--line-2", "font": {"color": "--ink"}, "align": "left"},
        "xaxis": x_axis,
        "yaxis": axis | {"title": {"text": title, "font": {"color": "--ink-2"}}, "fixedrange": True},
        "shapes": shapes,
        "annotations": notes,
    }
