"""Where the time of a step went: bars before and after, and the difference on a scale of its own."""

# ruff: noqa: E501 (a line of markup or of data stays one line)

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from markupsafe import Markup

from frontend import numbers
from frontend.markup import EMPTY, html, joined
from frontend.words import PHASES

WIDTH, LEFT, RIGHT = 480, 56, 78
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


def _bar(
    phases: Sequence[tuple[PhaseBar, float]], y: int, scale: float, total: float, after: str
) -> tuple[Markup, float]:
    parts: list[Markup] = []
    x = float(LEFT)
    for phase, size_ms in phases:
        size = size_ms * scale
        parts.append(
            html(
                '<rect x="{:.1f}" y="{}" width="{:.1f}" height="30" fill="var({})"><title>{} {}{}</title></rect>',
                x,
                y,
                max(size - 1, 0.6),
                phase.colour,
                phase.label,
                milliseconds(size_ms, total),
                after,
            )
        )
        text = f"{phase.label} {milliseconds(size_ms, total)}"
        if size > 12 + CHARACTER * len(text):
            parts.append(
                html(
                    '<text x="{:.1f}" y="{}" style="fill:var(--surface);font-weight:600">{}</text>', x + 6, y + 19, text
                )
            )
        x += size
    return joined(parts), x


def phases_svg(phases: Sequence[PhaseBar], before: str, after: str, unit: str = "ms") -> Markup:
    """Two bars and what lies between them; one bar where there is no before."""
    written = f" {unit}" if unit else ""
    ordered = in_order(phases)
    compared = [phase for phase in ordered if phase.before is not None]
    total_after = sum(phase.after for phase in ordered)
    total_before = sum(phase.before or 0.0 for phase in compared)
    longest = max(total_after, total_before)
    if longest <= 0:
        return EMPTY
    scale = (WIDTH - LEFT - RIGHT) / longest
    grown = sorted((phase for phase in compared if phase.change > 0), key=lambda phase: -phase.change)
    difference = total_after - total_before
    show_difference = bool(compared) and difference > 0 and difference / longest > 0.005
    height = 44 if not compared else 168 if show_difference else 96
    said = f"{before}: {numbers.quantity(total_before, unit)}; " if compared else ""
    parts = [
        html(
            '<svg class="ch" style="max-width:{}px" viewBox="0 0 {} {}" role="img" aria-label="{}{}: {}">',
            WIDTH,
            WIDTH,
            height,
            said,
            after,
            numbers.quantity(total_after, unit),
        )
    ]
    y = 6
    rows = [("before", before, [(phase, phase.before or 0.0) for phase in compared], total_before)] if compared else []
    rows.append(("after" if compared else "step", after, [(phase, phase.after) for phase in ordered], total_after))
    for title, sha, pieces, total in rows:
        bar, end = _bar(pieces, y, scale, longest, written)
        parts.append(
            html(
                '<text x="0" y="{}" class="lb">{}</text><text x="0" y="{}">{}</text>{}', y + 13, title, y + 26, sha, bar
            )
        )
        parts.append(
            html(
                '<text x="{:.1f}" y="{}" class="lb">{}{}</text>', end + 7, y + 19, milliseconds(total, longest), written
            )
        )
        y += 46
    if show_difference:
        gain = sum(phase.change for phase in grown)
        bar, end = _bar(
            [(phase, phase.change) for phase in grown], y + 18, (WIDTH - LEFT - RIGHT) / gain, longest, written
        )
        parts.append(
            html(
                '<path class="gl" d="M0 {}H{}"/><text x="0" y="{}" class="lb">what</text><text x="0" y="{}" class="lb">grew</text>{}',
                y + 6,
                WIDTH,
                y + 31,
                y + 44,
                bar,
            )
        )
        parts.append(
            html(
                '<text x="{:.1f}" y="{}" class="lb" style="fill:var(--reg-text)">+{}{}</text>',
                end + 7,
                y + 37,
                milliseconds(gain, longest),
                written,
            )
        )
    return joined([*parts, html("</svg>")])
