"""Confirming sessions process by process: a dot for each fresh process, base above head, all on one axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from frontend import numbers
from frontend.figures.svg import Axis, chart, dot, element, label, padded, text, upright
from frontend.markup import EMPTY

WIDTH, LEFT, RIGHT, ROW = 520, 124, 416, 44


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


def sessions_svg(sessions: Sequence[MeasuredSession], unit: str) -> Markup:
    """A row for each session; nothing where no process has ended yet."""
    every = [value for each in sessions for value in (*each.base, *each.head)]
    if not every:
        return EMPTY
    x = Axis(*padded(every, 0.06), LEFT, RIGHT)
    factor, name = numbers.scale_of(median(every), unit)
    height = ROW * len(sessions) + 34
    parts: list[Markup] = []
    for at in x.ticks(4):
        parts.append(element("path", class_="gl", d=f"M{x(at):.1f} 4V{height - 22}"))
        parts.append(text(x(at), height - 8, numbers.significant(at / factor, 4), text_anchor="middle"))
    parts.append(text(RIGHT + 30, height - 8, numbers.unit_text(name)))
    for index, each in enumerate(sessions):
        parts += _row(each, 6 + index * ROW, x)
    return chart(WIDTH, height, "; ".join(_said(each, unit) for each in sessions), parts)


def _said(session: MeasuredSession, unit: str) -> str:
    base, head = (numbers.quantity(median(arm), unit) if arm else "nothing yet" for arm in (session.base, session.head))
    return f"{session.title}: base {base}, head {head}, {session.verdict}"


def _row(session: MeasuredSession, top: int, x: Axis) -> list[Markup]:
    """One session: its names, its two arms, and what came of it."""
    red = "fill:var(--reg-text)" if session.counts and session.worse else None
    return [
        label(0, top + 14, session.title),
        text(0, top + 29, session.sub),
        *_arm("A", session.base, top + 11, x, session.counts, "--c-line"),
        *_arm("B", session.head, top + 27, x, session.counts, "--reg" if session.worse else "--imp-line"),
        label(RIGHT + 12, top + 14, session.verdict, style=red),
        text(RIGHT + 12, top + 29, session.interval),
    ]


def _arm(name: str, values: Sequence[float], y: int, x: Axis, counts: bool, colour: str) -> list[Markup]:
    """A dot for each process and a line at their median."""
    full = {"fill": f"var({colour})", "fill_opacity": ".8"}
    hollow = {"fill": "none", "stroke": "var(--qua-line)", "stroke_width": "1.3"}
    parts = [label(LEFT - 16, y + 4, name)]
    parts += [dot(x(value), y, 4, **(full if counts else hollow)) for value in values]
    if values:
        parts.append(upright(x(median(values)), y - 8, y + 8, "--ink", stroke_width="1.6"))
    return parts
