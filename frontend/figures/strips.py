"""The Overview's charts as inline SVG: up is faster in all of them, and all share one time axis.

Lines are drawn into a box of 1,000 × 100 that stretches with the page; strokes and texts do not, since texts are HTML
beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from frontend.markup import EMPTY, html

WIDTH, HEIGHT = 1000.0, 100.0
LABEL_HEIGHT = 17.0  # percent of a strip of usual height
LEAST_SPAN = 0.06  # of performance either way: a flat line is not blown up to look like a storm
DAY = timedelta(days=1)
EPOCH = datetime(2001, 1, 1, tzinfo=UTC)  # a Monday: steps of a week begin with it
TICK_STEPS = (
    timedelta(minutes=10), timedelta(hours=1), timedelta(hours=3), timedelta(hours=6), timedelta(hours=12),
    DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 182 * DAY, 364 * DAY, 1820 * DAY,
)  # fmt: skip
MOST_TIMES, ENDS_NAMED = 7, 12.0
CASE_POINTS = 16
CASE_SCALE = 0.25


@dataclass(frozen=True, slots=True)
class Scale:
    """Performance against the base (1.0) to a height, in logarithms so that 10 % up and down look alike."""

    low: float
    high: float

    def y(self, value: float) -> float:
        share = (math.log(value) - self.low) / (self.high - self.low)
        return HEIGHT - 4 - min(1.0, max(0.0, share)) * (HEIGHT - 8)

    def percent(self, value: float) -> float:
        return round(self.y(value) / HEIGHT * 100, 2)

    def ticks(self) -> list[tuple[str, float]]:
        """Labels of the axis, the furthest first: (change, height in percent). None overlaps another, or
        the value at the base."""
        found: list[tuple[str, float]] = []
        for step in (0.4, 0.2, 0.1, 0.05):
            for sign, mark in ((1, "▲"), (-1, "▼")):
                height = self.percent(1 + sign * step)
                taken = [self.percent(1.0), *(other for _, other in found)]
                inside = self.low < math.log(1 + sign * step) < self.high
                if inside and all(abs(height - other) >= LABEL_HEIGHT for other in taken):
                    found.append((f"{mark}{step * 100:.0f} %", height))
        return found


def scale_of(lines: Sequence[Sequence[float | None]]) -> Scale:
    """Holds every line, and some room about the base."""
    logs = [math.log(value) for line in lines for value in line if value is not None and value > 0]
    low, high = min([*logs, -LEAST_SPAN]), max([*logs, LEAST_SPAN])
    pad = (high - low) * 0.06
    return Scale(low - pad, high + pad)


def places(at: Sequence[datetime]) -> list[float]:
    """The position of each moment on the time axis, 0 to 1."""
    if len(at) < 2:
        return [0.5 for _ in at]
    first, length = at[0], (at[-1] - at[0]).total_seconds() or 1.0
    return [round((moment - first).total_seconds() / length, 4) for moment in at]


def place_of(moment: datetime, at: Sequence[datetime]) -> float | None:
    """The position of a moment, in percent; None outside of the axis."""
    if not at or not at[0] <= moment <= at[-1]:
        return None
    length = (at[-1] - at[0]).total_seconds()
    return round((moment - at[0]).total_seconds() / length * 100, 2) if length else 50.0


def time_ticks(at: Sequence[datetime]) -> list[tuple[float, datetime, str]]:
    """Round moments of UTC between the ends of the time axis: (place in percent, moment, "day" or "clock"). None is
    near an end, where the ends themselves are named."""
    if len(at) < 2:
        return []
    length = at[-1] - at[0]
    step = next((each for each in TICK_STEPS if length <= MOST_TIMES * each), TICK_STEPS[-1])
    since_epoch = (at[0].astimezone(UTC) - EPOCH) // step + 1
    found, moment, form = [], EPOCH + since_epoch * step, "day" if step >= DAY else "clock"
    while moment < at[-1]:
        left = place_of(moment, at)
        if left is not None and ENDS_NAMED <= left <= 100 - ENDS_NAMED:
            found.append((left, moment, form))
        moment += step
    return found


def line_path(points: Sequence[float | None], x: Sequence[float], scale: Scale) -> str:
    """A path with a gap where nothing is known."""
    parts, pen = [], "M"
    for place, value in zip(x, points, strict=True):
        if value is None or value <= 0:
            pen = "M"
            continue
        parts.append(f"{pen}{place * WIDTH:.1f} {scale.y(value):.1f}")
        pen = "L"
    return "".join(parts)


def band_path(low: Sequence[float | None], high: Sequence[float | None], x: Sequence[float], scale: Scale) -> str:
    """The area between two lines."""
    known = [
        (place * WIDTH, scale.y(under), scale.y(over))
        for place, under, over in zip(x, low, high, strict=True)
        if under is not None and over is not None
    ]
    if len(known) < 2:
        return ""
    there = "L".join(f"{place:.1f} {over:.1f}" for place, _, over in known)
    back = "L".join(f"{place:.1f} {under:.1f}" for place, under, _ in reversed(known))
    return f"M{there}L{back}Z"


def trend(points: Sequence[float | None], marked: bool = False) -> Markup:
    """The small line of a tile."""
    known = [value for value in points if value is not None]
    if len(known) < 2:
        return EMPTY
    low, high = min(known), max(known)
    middle, span = (low + high) / 2, max(high - low, 0.04 * abs((low + high) / 2), 1e-9)
    last, parts, pen = "", [], "M"
    for index, value in enumerate(points):
        if value is None:
            pen = "M"
            continue
        x, y = 2 + index * 126 / (len(points) - 1), 15 - (value - middle) / span * 22
        parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen, last = (
            "L",
            html('<circle cx="{:.1f}" cy="{:.1f}" r="2.4" fill="var(--{})"/>', x, y, "reg" if marked else "c-line"),
        )
    return html(
        '<svg class="spark" width="130" height="30" viewBox="0 0 130 30" aria-hidden="true">'
        '<path d="{}" fill="none" stroke="var(--c-line)" stroke-width="1.4"/>{}</svg>',
        "".join(parts),
        last,
    )


def case_line(values: Sequence[float | None], onset: int | None) -> Markup:
    """Runs around an onset, which is at the same place and on the same scale in every row."""
    if onset is None:
        return EMPTY
    before = [value for value in values[max(0, onset - CASE_POINTS) : onset] if value is not None]
    if not before:
        return EMPTY
    level = sum(before) / len(before)

    def y(value: float) -> float:
        return 9 - max(-0.3, min(1.0, (1 - value / level) / CASE_SCALE)) * -14

    parts = {True: "", False: ""}
    for index in range(max(0, onset - CASE_POINTS), min(len(values), onset + CASE_POINTS)):
        value = values[index]
        if value is None:
            continue
        late = index >= onset
        x = 2 + (index - onset + CASE_POINTS) * 116 / (2 * CASE_POINTS - 1)
        parts[late] += f"{'L' if parts[late] else 'M'}{x:.1f} {y(value):.1f}"
    middle = 2 + (CASE_POINTS - 0.5) * 116 / (2 * CASE_POINTS - 1)
    return html(
        '<svg class="spark" width="120" height="28" viewBox="0 0 120 28" aria-hidden="true">'
        '<path d="{}" fill="none" stroke="var(--c-line)" stroke-width="1.3"/>'
        '<path d="{}" fill="none" stroke="var(--reg)" stroke-width="1.7"/><path d="M{:.1f} 1V27" stroke="var(--reg)"/>'
        "</svg>",
        parts[False],
        parts[True],
        middle,
    )
