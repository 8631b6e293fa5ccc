"""Inline SVG, part by part: elements, text, a straight axis, and the picture that holds them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from frontend.markup import html, joined

Value = str | float | None


@dataclass(frozen=True, slots=True)
class Axis:
    """A straight axis in pixels: `low` is at `start`, `high` at `end`, whichever is the greater."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value stands, in pixels."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, number: int) -> list[float]:
        """Values at equal distances from end to end."""
        return [self.low + (self.high - self.low) * step / (number - 1) for step in range(number)]


def padded(values: Sequence[float], share: float) -> tuple[float, float]:
    """The least and the greatest value with some room beyond them; never a span of nothing."""
    low, high = min(values), max(values)
    room = (high - low) * share or abs(high) * 0.01 or 1.0
    return low - room, high + room


def element(name: str, *inside: str, **attributes: Value) -> Markup:
    """One element. None leaves an attribute out; `text_anchor` is written text-anchor, and `class_` class."""
    written = joined(
        html(' {}="{}"', key.rstrip("_").replace("_", "-"), _written(value))
        for key, value in attributes.items()
        if value is not None
    )
    return html("<{}{}>{}</{}>", name, written, joined(inside), name) if inside else html("<{}{}/>", name, written)


def text(x: float, y: float, words: str, **attributes: Value) -> Markup:
    return element("text", words, x=x, y=y, **attributes)


def label(x: float, y: float, words: str, **attributes: Value) -> Markup:
    """Text that stands out from the text of axes."""
    return text(x, y, words, class_="lb", **attributes)


def dot(x: float, y: float, radius: float, **attributes: Value) -> Markup:
    return element("circle", cx=x, cy=y, r=radius, **attributes)


def stroke(d: str, colour: str, **attributes: Value) -> Markup:
    """A path that is drawn and not filled; `colour` names a variable of the style."""
    return element("path", d=d, fill="none", stroke=f"var({colour})", **attributes)


def upright(x: float, top: float, bottom: float, colour: str, **attributes: Value) -> Markup:
    return stroke(f"M{x:.1f} {top:g}V{bottom:g}", colour, **attributes)


def band(top: float, bottom: float, width: float) -> Markup:
    """The baseline's band from the left edge to `width`; visible however narrow it is."""
    return element("rect", width=width, y=top, height=max(1.0, bottom - top), fill="var(--c-band)")


def chart(width: int, height: int, said: str, parts: Iterable[Markup]) -> Markup:
    """A picture as wide as its place, but never larger than drawn, so that letters stay letters; read out as `said`."""
    view, widest = f"0 0 {width} {height}", f"max-width:{width}px"
    return element("svg", *parts, class_="ch", style=widest, viewBox=view, role="img", aria_label=said)


def spark(width: int, height: int, parts: Iterable[Markup], said: str | None = None) -> Markup:
    """A picture of that size within a row; one without words is passed over when a page is read out."""
    spoken: dict[str, Value] = {"aria_hidden": "true"} if said is None else {"role": "img", "aria_label": said}
    view = f"0 0 {width} {height}"
    return element("svg", *parts, class_="spark", width=width, height=height, viewBox=view, **spoken)


def _written(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
