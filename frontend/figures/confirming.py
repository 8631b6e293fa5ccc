"""Confirming sessions process by process: a dot for each fresh process, base above head, all on one axis."""

# ruff: noqa: E501 (a line of markup or of data stays one line)

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from frontend import numbers

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
        return Markup("")
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
    parts = [f'<svg class="ch" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">']
    for step in range(4):
        at = low + (high - low) * step / 3
        parts.append(
            f'<path class="gl" d="M{x_of(at):.1f} 4V{height - 22}"/><text x="{x_of(at):.1f}" y="{height - 8}" text-anchor="middle">{numbers.significant(at / factor, 4)}</text>'
        )
    parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{height - 8}">{escape(numbers.unit_text(name))}</text>')
    for index, each in enumerate(sessions):
        top = 6 + index * ROW
        parts.append(
            f'<text x="0" y="{top + 14}" class="lb">{escape(each.title)}</text><text x="0" y="{top + 29}">{escape(each.sub)}</text>'
        )
        for offset, arm, values, colour in (
            (11, "A", each.base, "--c-line"),
            (27, "B", each.head, "--reg" if each.worse else "--imp-line"),
        ):
            y = top + offset
            paint = (
                f'fill="var({colour})" fill-opacity=".8"'
                if each.counts
                else f'fill="none" stroke="var({"--qua-line"})" stroke-width="1.3"'
            )
            parts.append(f'<text x="{LEFT - 16}" y="{y + 4}" class="lb">{arm}</text>')
            parts += [f'<circle cx="{x_of(value):.1f}" cy="{y}" r="4" {paint}/>' for value in values]
            if values:
                parts.append(
                    f'<path d="M{x_of(_middle(values)):.1f} {y - 8}v16" stroke="var(--ink)" stroke-width="1.6"/>'
                )
        css = "" if not each.counts else ' style="fill:var(--reg-text)"' if each.worse else ""
        parts.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{top + 14}" class="lb"{css}>{escape(each.verdict)}</text><text x="{WIDTH - RIGHT + 12}" y="{top + 29}">{escape(each.interval)}</text>'
        )
    return Markup("".join([*parts, "</svg>"]))
