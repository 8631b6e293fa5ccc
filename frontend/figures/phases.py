"""Where the time of a step went: bars before and after, and the difference on its own scale."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from markupsafe import Markup

from frontend import numbers
from frontend.figures.svg import chart, element, label, text
from frontend.markup import EMPTY
from frontend.words import PHASES

WIDTH, LEFT, RIGHT = 480, 56, 78
ROW = 46
CHARACTER = 6.7  # px, the widest of usual fonts; pieces narrower than their name are named by the table only


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBar:
    """One part of a step, in milliseconds (or yardsticks). `before` is None where there is nothing to compare with."""

    name: str
    before: float | None
    after: float

    @property
    def label(self) -> str:
        return PHASES.get(self.name, (self.name.replace("_", " "), ""))[0]

    @property
    def colour(self) -> str:
        return PHASES.get(self.name, ("", "--c-other"))[1]

    @property
    def change(self) -> float:
        return self.after - (self.before or 0.0)


def milliseconds(value: float, total: float) -> str:
    """A phase in ms, with the decimals that a step of `total` deserves: all of one table have the same."""
    decimals = max(0, min(4, 3 - floor(log10(total)))) if total > 0 else 2
    return numbers.grouped(f"{value:.{decimals}f}") if round(value, decimals) != 0 else f"{0:.{decimals}f}"


def in_order(phases: Sequence[PhaseBar]) -> list[PhaseBar]:
    """The order of a step: data first, the rest last."""
    known = list(PHASES)
    return sorted(phases, key=lambda phase: known.index(phase.name) if phase.name in known else len(known))


def growth(phases: Sequence[PhaseBar]) -> list[tuple[PhaseBar, float]]:
    """Each phase with its share of what the step lost in total, where it lost anything."""
    lost = sum(phase.change for phase in phases if phase.before is not None)
    return [
        (phase, phase.change / lost if lost > 0 and phase.before is not None else 0.0) for phase in in_order(phases)
    ]


Pieces = Sequence[tuple[PhaseBar, float]]


@dataclass(frozen=True, slots=True)
class _Numbers:
    """How the times of one picture are written: all with the decimals that the longest deserves."""

    longest: float
    unit: str

    def __call__(self, value: float) -> str:
        return milliseconds(value, self.longest)

    def with_unit(self, value: float) -> str:
        return f"{self(value)} {self.unit}".rstrip()


def phases_svg(phases: Sequence[PhaseBar], before: str, after: str, unit: str = "ms") -> Markup:
    """Two bars and what lies between them; one bar where there is no before."""
    ordered = in_order(phases)
    compared = [phase for phase in ordered if phase.before is not None]
    total_after = sum(phase.after for phase in ordered)
    total_before = sum(phase.before or 0.0 for phase in compared)
    written = _Numbers(max(total_after, total_before), unit)
    if written.longest <= 0:
        return EMPTY
    scale = (WIDTH - LEFT - RIGHT) / written.longest
    said = f"{after}: {numbers.quantity(total_after, unit)}"
    now: Pieces = [(phase, phase.after) for phase in ordered]
    if not compared:
        return chart(WIDTH, 44, said, _row("step", after, now, 6, scale, written))
    was: Pieces = [(phase, phase.before or 0.0) for phase in compared]
    parts = _row("before", before, was, 6, scale, written) + _row("after", after, now, 6 + ROW, scale, written)
    said = f"{before}: {numbers.quantity(total_before, unit)}; {said}"
    if (total_after - total_before) / written.longest <= 0.005:
        return chart(WIDTH, 96, said, parts)
    grown = sorted((phase for phase in compared if phase.change > 0), key=lambda phase: -phase.change)
    parts += _difference([(phase, phase.change) for phase in grown], 6 + 2 * ROW, written)
    return chart(WIDTH, 168, said, parts)


def _row(title: str, sha: str, pieces: Pieces, y: int, scale: float, written: _Numbers) -> list[Markup]:
    """A bar between its name and its total."""
    bar, end = _bar(pieces, y, scale, written)
    total = label(end + 7, y + 19, written.with_unit(sum(size for _, size in pieces)))
    return [label(0, y + 13, title), text(0, y + 26, sha), *bar, total]


def _difference(grown: Pieces, y: int, written: _Numbers) -> list[Markup]:
    """The phases that grew, on a scale of their own."""
    gain = sum(size for _, size in grown)
    bar, end = _bar(grown, y + 18, (WIDTH - LEFT - RIGHT) / gain, written)
    return [
        element("path", class_="gl", d=f"M0 {y + 6}H{WIDTH}"),
        label(0, y + 31, "what"),
        label(0, y + 44, "grew"),
        *bar,
        label(end + 7, y + 37, f"+{written.with_unit(gain)}", style="fill:var(--reg-text)"),
    ]


def _bar(pieces: Pieces, y: int, scale: float, written: _Numbers) -> tuple[list[Markup], float]:
    """The pieces of a bar side by side, and where it ends."""
    parts: list[Markup] = []
    x = float(LEFT)
    for phase, size in pieces:
        width = size * scale
        title = element("title", f"{phase.label} {written.with_unit(size)}")
        parts.append(
            element("rect", title, x=x, y=y, width=max(width - 1, 0.6), height=30, fill=f"var({phase.colour})")
        )
        words = f"{phase.label} {written(size)}"
        if width > 12 + CHARACTER * len(words):
            parts.append(text(x + 6, y + 19, words, style="fill:var(--surface);font-weight:600"))
        x += width
    return parts, x
