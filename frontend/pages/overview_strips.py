"""The strips of the Overview: each suite's headline metric over one time axis, with onsets and environments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from backend.regression.regression_state import ANNOUNCED
from backend.services.reports.trend_strips import Onset, Strip
from backend.services.reports.trends import Trends
from frontend import numbers
from frontend.figures.strips import band_path, line_path, place_of, places, scale_of
from frontend.links import Here
from frontend.render import script_json
from frontend.words import plural

LABEL_EDGES_PX, LABEL_LETTER_PX = 8.5, 7.2
USUAL_PX, PHONE_PX = 850, 220  # how wide the axis is


@dataclass(frozen=True, slots=True, kw_only=True)
class OnsetFlag:
    """The label of an onset of a strip, or of several that stand too close for a label each; places in percent."""

    left: float
    css: str
    text: str
    href: str
    name: str
    axis_px: int = USUAL_PX

    @property
    def stands_left(self) -> bool:
        """Of its mark, where it would else run over the end of the axis."""
        return self.left + self.width > 100

    @property
    def width(self) -> float:
        return 100 * (LABEL_EDGES_PX + LABEL_LETTER_PX * len(self.text)) / self.axis_px

    @property
    def span(self) -> tuple[float, float]:
        return (self.left - self.width, self.left) if self.stands_left else (self.left, self.left + self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStrip:
    strip: Strip
    href: str
    ticks: list[tuple[str, float]]
    zero: float
    value: str
    value_at_base: str
    """Of the axis, where the base lies."""
    band: str
    lines: list[tuple[str, str, str]]
    """(path, class, name) of each; the mean last, above the others."""
    flags: list[OnsetFlag]
    flags_on_phones: list[OnsetFlag]
    """The same where the axis has less room: more of them stand together."""
    gate: float | None


def drawn(trends: Trends, strip: Strip, here: Here) -> DrawnStrip:
    """A strip as paths, labels and marks."""
    mean, x = strip.mean, places(trends.at)
    scale = scale_of([mean.line, *(line.points for line in strip.lines)])
    lines = [
        (line_path(line.points, x, scale), "w" if (line.change or 0) < -trends.least / 2 else "v", line.name)
        for line in strip.lines
    ]
    lines.append((line_path(mean.line, x, scale), "m", "mean"))
    gate = 1 / (1 + trends.least)
    return DrawnStrip(
        strip=strip,
        href=here(suite=[strip.suite]),
        ticks=scale.ticks(),
        zero=scale.percent(1.0),
        value=numbers.quantity(strip.value, strip.unit),
        value_at_base=numbers.quantity(at_base(strip), strip.unit),
        band=band_path(mean.band_low, mean.band_high, x, scale),
        lines=lines,
        flags=flags(trends, strip.onsets),
        flags_on_phones=flags(trends, strip.onsets, PHONE_PX),
        gate=scale.percent(gate),
    )


def at_base(strip: Strip) -> float | None:
    """The geometric mean at the base: what the head's was before it changed."""
    if strip.value is None or strip.mean.change is None:
        return strip.value
    performance = 1 + strip.mean.change
    return strip.value * performance if strip.direction == "lower" else strip.value / performance


def flags(trends: Trends, onsets: Sequence[Onset], axis_px: int = USUAL_PX) -> list[OnsetFlag]:
    """A label for each onset, ▼7.4; one for all whose labels would run into each other, ▼7.4 +2."""
    placed = [(left, onset) for onset in onsets if (left := place_of(onset.at, trends.at)) is not None]
    clusters = [[each] for each in sorted(placed, key=lambda each: each[0])]
    found = [_flag(cluster, axis_px) for cluster in clusters]
    place = 0
    while place + 1 < len(found):
        this, following = found[place], found[place + 1]
        if this.span[1] <= following.span[0]:
            place += 1
            continue
        clusters[place : place + 2] = [clusters[place] + clusters[place + 1]]
        found[place : place + 2] = [_flag(clusters[place], axis_px)]
        place = max(0, place - 1)
    return found


def _flag(cluster: Sequence[tuple[float, Onset]], axis_px: int) -> OnsetFlag:
    def weight(onset: Onset) -> tuple[bool, bool, float]:
        return onset.direction == "regression", onset.state in ANNOUNCED, abs(onset.change)

    left, worst = max(cluster, key=lambda each: weight(each[1]))
    better = worst.direction == "improvement"
    if better:
        css, glyph = "i", "▲"
    elif worst.state == "suspect":
        css, glyph = "u", "?"
    elif worst.state in ANNOUNCED:
        css, glyph = ("k" if worst.owned else "r"), "▼"
    else:
        css, glyph = "o", "▽"
    size = abs(worst.change) * 100
    text = f"{glyph}{size:.0f}" if size >= 9.95 else f"{glyph}{size:.1f}"
    if len(cluster) > 1:
        text += f" +{len(cluster) - 1}"
    what = "better" if better else "worse"
    name = f"{size:.1f} % {what} in {plural(worst.series, 'series', 'series')} since {worst.sha[:7]}"
    href = f"/regressions/{worst.regression_id}" if worst.regression_id else f"/compare?head={worst.sha}"
    return OnsetFlag(left=left, css=css, text=text, href=href, name=name, axis_px=axis_px)


def environments(trends: Trends) -> list[tuple[float, str]]:
    found = [(place_of(each.at, trends.at), each.text) for each in trends.environments]
    return [(left, text) for left, text in found if left is not None]


def data_of(trends: Trends) -> Markup:
    """Data of the crosshair: moments, and the mean of each strip."""
    content: dict[str, Any] = {
        "at": [int(each.timestamp()) for each in trends.at],
        "strips": [strip.mean.line for strip in trends.strips],
    }
    return script_json(content)
