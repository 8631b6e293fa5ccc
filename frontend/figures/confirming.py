"""Confirming sessions process by process: a dot for each fresh process, base above head, all on one axis."""

# ruff: noqa: E501 (a line of markup or of data stays one line)

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from frontend import numbers
from frontend.markup import EMPTY, html, joined

WIDTH, LEFT, RIGHT, ROW = 520, 124, 104, 44


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSession:
    """One session: who measured and when, the processes of both arms, and what came of it."""

    title: str
    sub: str
    base: Sequence[float]
    head: Sequence[float]
    verdict: str
    interval: str
    counts: bool  # a session that was not judged is hollow
    worse: bool


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def sessions_svg(sessions: Sequence[MeasuredSession], unit: str) -> Markup:
    """A row for each session; nothing where no process has ended yet."""
    every = [value for each in sessions for value in (*each.base, *each.head)]
    if not every:
        return EMPTY
    low, high = min(every), max(every)
    pad = (high - low) * 0.06 or abs(high) * 0.01 or 1.0
    low, high = low - pad, high + pad
    factor, name = numbers.scale_of(_middle(every), unit)
    height = ROW * len(sessions) + 34

    def x_of(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    label = "; ".join(
        f"{each.title}: base {numbers.quantity(_middle(each.base), unit) if each.base else 'nothing yet'}, head {numbers.quantity(_middle(each.head), unit) if each.head else 'nothing yet'}, {each.verdict}"
        for each in sessions
    )
    parts = [
        html(
            '<svg class="ch" style="max-width:{}px" viewBox="0 0 {} {}" role="img" aria-label="{}">',
            WIDTH,
            WIDTH,
            height,
            label,
        )
    ]
    for step in range(4):
        at = low + (high - low) * step / 3
        parts.append(
            html(
                '<path class="gl" d="M{:.1f} 4V{}"/><text x="{:.1f}" y="{}" text-anchor="middle">{}</text>',
                x_of(at),
                height - 22,
                x_of(at),
                height - 8,
                numbers.significant(at / factor, 4),
            )
        )
    parts.append(html('<text x="{}" y="{}">{}</text>', WIDTH - RIGHT + 30, height - 8, numbers.unit_text(name)))
    for index, each in enumerate(sessions):
        top = 6 + index * ROW
        parts.append(
            html(
                '<text x="0" y="{}" class="lb">{}</text><text x="0" y="{}">{}</text>',
                top + 14,
                each.title,
                top + 29,
                each.sub,
            )
        )
        for offset, arm, values, colour in (
            (11, "A", each.base, "--c-line"),
            (27, "B", each.head, "--reg" if each.worse else "--imp-line"),
        ):
            y = top + offset
            paint = (
                html('fill="var({})" fill-opacity=".8"', colour)
                if each.counts
                else html('fill="none" stroke="var(--qua-line)" stroke-width="1.3"')
            )
            parts.append(html('<text x="{}" y="{}" class="lb">{}</text>', LEFT - 16, y + 4, arm))
            parts += [html('<circle cx="{:.1f}" cy="{}" r="4" {}/>', x_of(value), y, paint) for value in values]
            if values:
                parts.append(
                    html(
                        '<path d="M{:.1f} {}v16" stroke="var(--ink)" stroke-width="1.6"/>', x_of(_middle(values)), y - 8
                    )
                )
        css = html(' style="fill:var(--reg-text)"') if each.counts and each.worse else EMPTY
        parts.append(
            html(
                '<text x="{}" y="{}" class="lb"{}>{}</text><text x="{}" y="{}">{}</text>',
                WIDTH - RIGHT + 12,
                top + 14,
                css,
                each.verdict,
                WIDTH - RIGHT + 12,
                top + 29,
                each.interval,
            )
        )
    return joined([*parts, html("</svg>")])
