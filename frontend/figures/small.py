"""Small pictures as inline SVG: sparklines, bars, the forest plot of a comparison, the distribution of one run.

They need no script, cost microseconds, and follow the theme by themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from markupsafe import Markup

from backend.services.board.cell_detail import Sparkline
from frontend import numbers
from frontend.figures.svg import Axis, band, chart, dot, element, label, padded, spark, stroke, text, upright
from frontend.markup import EMPTY, html

COLOURS = {"regression": "--reg", "suspect": "--sus-line", "improvement": "--imp-line", "quarantined": "--qua-line"}
RAW = "--c-raw"
FLAT = 0.03  # of the value, either way: a sparkline does not blow less up to its whole height


def sparkline(values: Sequence[float], *, width: int = 96, height: int = 24) -> Markup:
    """A line as wide as its values and as high as their spread; values that hardly differ are a flat line."""
    if len(values) < 2:
        return EMPTY
    middle = (min(values) + max(values)) / 2
    half = max((max(values) - min(values)) / 2, FLAT * abs(middle) or 1.0)
    x = Axis(0, len(values) - 1, 2, width - 2)
    y = Axis(middle - half, middle + half, height - 3, 3)
    points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
    line = element("polyline", points=points, fill="none", stroke="var(--c-line)", stroke_width="1.4")
    return spark(width, height, [line])


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels that a series is compared with, in the unit of its values."""

    baseline: float | None = None
    band: tuple[float, float] | None = None
    threshold: float | None = None


def cell_trend(line: Sparkline, levels: Levels, *, unit: str, said: str) -> Markup:
    """The picture in the board's details: dots, the baseline's band, the threshold, and a line at the chosen commit."""
    values = [float(value) for value in line.value]
    if len(values) < 2:
        return EMPTY
    width, height, right = 376, 86, 324
    x = Axis(0, len(values) - 1, 6, right - 6)
    thresholds = [] if levels.threshold is None else [levels.threshold]
    y = Axis(*padded([*values, *(levels.band or ()), *thresholds], 0.06), height - 18, 8)
    parts = [] if levels.band is None else [band(y(levels.band[1]), y(levels.band[0]), right)]
    parts += [
        stroke(f"M0 {y(threshold):.1f}H{right}", "--reg-text", stroke_dasharray="3 3") for threshold in thresholds
    ]
    if line.here is not None:
        parts.append(upright(x(line.here), 4, height - 16, "--focus", stroke_opacity=".6"))
    for index, (value, state) in enumerate(zip(values, line.verdict, strict=True)):
        radius = 3.4 if index == line.here else 2.2
        parts.append(dot(x(index), y(value), radius, fill=f"var({COLOURS.get(state, RAW)})"))
    shown = values[line.here if line.here is not None else -1]
    factor, _ = numbers.scale_of(values[-1], unit)
    parts.append(label(right + 4, y(shown) + 3, numbers.significant(shown / factor)))
    if levels.baseline is not None and abs(y(levels.baseline) - y(shown)) > 11:
        parts.append(text(right + 4, y(levels.baseline) + 4, numbers.significant(levels.baseline / factor)))
    parts.append(text(0, height - 3, line.sha[0][:7]))
    parts.append(text(right, height - 3, line.sha[-1][:7], text_anchor="end"))
    return chart(width, height, said, parts)


def share_bar(share: float, width: int = 64, colour: str = "--reg") -> Markup:
    """A bar from zero to `share` of the width."""
    size = round(max(0.0, min(1.0, share)) * width)
    bar = element("rect", width=size, height=8, fill=f"var({colour})")
    return element("svg", bar, width=width, height=8, aria_hidden="true")


def coverage(have: int, of: int) -> Markup:
    """How many of how many were compared."""
    size = round(52 * have / of) if of else 0
    colour = "--c-line" if have == of else "--sus-line"
    bars = [
        element("rect", width=52, height=6, rx=1, fill="var(--line)"),
        element("rect", width=size, height=6, rx=1, fill=f"var({colour})"),
    ]
    return html("{} {} of {}", element("svg", *bars, width=52, height=7, aria_hidden="true"), have, of)


class Estimate(Protocol):
    """A change of cost as a fraction, and the ends of its interval where one is known."""

    @property
    def change(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def forest(it: Estimate, threshold: float, word: str, kind: str = "", width: int = 236) -> Markup:
    """A change of cost and its interval on an axis where slower is left; the shaded middle lies inside the threshold.
    `word`: what the change is called; `kind`: the verdict that colours it."""
    if it.change is None:
        return EMPTY
    reach = max(threshold * 2.8, 1e-9)
    x = Axis(-reach, reach, width - 6, 6)
    colour = COLOURS.get(kind, RAW)
    said = f"{numbers.percent(it.change)} {word}"
    parts = [
        element(
            "rect", x=x(threshold), width=x(-threshold) - x(threshold), height=18, fill="var(--line)", fill_opacity=".6"
        ),
        upright(width / 2, 0, 18, "--line-2"),
    ]
    off_scale = abs(it.change) > reach
    if it.low is not None and it.high is not None:
        said += f", interval {numbers.interval(it.low, it.high)} of cost"
        if not off_scale:
            left, right = (x(max(-reach, min(reach, end))) for end in (it.high, it.low))
            parts.append(stroke(f"M{left:.1f} 9H{right:.1f}", colour, stroke_width=2))
    parts.append(_off_scale(it.change > 0, width, colour) if off_scale else _middle(x(it.change), colour))
    return spark(width, 18, parts, said)


def _middle(x: float, colour: str) -> Markup:
    return dot(x, 9, 3.4, fill=f"var({colour})")


def _off_scale(slower: bool, width: int, colour: str) -> Markup:
    """An arrow at the edge beyond which the change lies."""
    edge, turn, words_at, anchor = (
        (2, "l7-4.5v9z", 13, "start") if slower else (width - 2, "l-7-4.5v9z", width - 13, "end")
    )
    arrow = element("path", d=f"M{edge} 9{turn}", fill=f"var({colour})")
    return html("{}{}", arrow, text(words_at, 12.5, "off scale", text_anchor=anchor))


def distribution(samples: Sequence[Sequence[float]], processes: Sequence[float], unit: str) -> Markup:
    """One run: a histogram of its samples, a dot per process above it, and the median of the dots, which is judged."""
    every = sorted(value for process in samples for value in process) or sorted(processes)
    if not every:
        return EMPTY
    dots = sorted(processes) or [every[len(every) // 2]]
    middle = median(dots)
    width, height, top, bottom = 470, 180, 34, 156
    x = Axis(*_visible_range(every, dots), 8, width - 8)
    inside = [value for value in every if x.low <= value < x.high]
    parts = [*_histogram(inside, x, bottom, bottom - top - 26)]
    parts += [dot(x(value), top + 6, 4, fill="var(--reg)", fill_opacity=".8") for value in dots]
    parts.append(upright(x(middle), top - 8, bottom, "--ink", stroke_width="1.4"))
    factor, name = numbers.scale_of(middle, unit)
    words = f"median {numbers.significant(middle / factor, 4)} {numbers.unit_text(name)}"
    anchor = "start" if x(middle) < 60 else "end" if x(middle) > width - 60 else "middle"
    parts.append(label(x(middle), top - 14, words, text_anchor=anchor))
    for value, anchor in zip(x.ticks(5), ("start", "middle", "middle", "middle", "end"), strict=True):
        parts.append(text(x(value), height - 6, numbers.significant(value / factor, 4), text_anchor=anchor))
    if outside := len(every) - len(inside):
        parts.append(text(width - 8, top - 14, f"{outside} further out", text_anchor="end"))
    parts.append(stroke(f"M8 {bottom}H{width - 8}", "--line-2"))
    said = f"Distribution of {len(every)} samples in {len(dots)} processes, median {numbers.quantity(middle, unit)}"
    return chart(width, height, said, parts)


def _visible_range(every: Sequence[float], dots: Sequence[float]) -> tuple[float, float]:
    """The range of sorted samples that is shown: all, or three spreads of the middle half beyond it, since a few far
    outliers would squeeze everything else. Holds every dot."""
    quarter, three_quarters = every[len(every) // 4], every[len(every) * 3 // 4]
    reach = 3 * (three_quarters - quarter)
    low, high = max(every[0], quarter - reach), min(every[-1], three_quarters + reach)
    return padded([low, high, *dots], 1 / 25)


def _histogram(values: Sequence[float], x: Axis, bottom: float, tallest: float, bins: int = 40) -> list[Markup]:
    counts = [0] * bins
    for value in values:
        counts[int((value - x.low) / (x.high - x.low) * bins)] += 1
    step, most = (x.end - x.start) / bins, max(counts) or 1
    return [
        element(
            "rect",
            x=x.start + index * step + 0.5,
            y=bottom - number / most * tallest,
            width=step - 1,
            height=number / most * tallest,
            fill="var(--c-bwd)",
            fill_opacity=".75",
        )
        for index, number in enumerate(counts)
        if number
    ]
