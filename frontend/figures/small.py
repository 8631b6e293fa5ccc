"""Small pictures as inline SVG: sparklines, bars, the forest plot of a comparison, the distribution of one run.

They need no script, cost microseconds, and follow the theme by themselves.
"""

# ruff: noqa: E501 (a line of markup or of data stays one line)

from collections.abc import Sequence

from markupsafe import Markup

from frontend import numbers
from frontend.markup import EMPTY, html, joined


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def sparkline(
    values: Sequence[float],
    *,
    split: int | None = None,
    band: tuple[float, float] | None = None,
    width: int = 96,
    height: int = 24,
) -> Markup:
    """A line; red from `split` on."""
    if len(values) < 2:
        return EMPTY
    low, high = min(values), max(values)
    if band is not None:
        low, high = min(low, band[0]), max(high, band[1])
    span = (high - low) or abs(high) or 1.0

    def x_of(index: int) -> float:
        return 2 + index * (width - 4) / (len(values) - 1)

    def y_of(value: float) -> float:
        return height - 3 - (value - low) / span * (height - 6)

    parts = [
        html(
            '<svg class="spark" width="{}" height="{}" viewBox="0 0 {} {}" aria-hidden="true">',
            width,
            height,
            width,
            height,
        )
    ]
    if band is not None:
        top, bottom = y_of(band[1]), y_of(band[0])
        parts.append(
            html(
                '<rect width="{}" y="{:.1f}" height="{:.1f}" fill="var(--c-band)"/>', width, top, max(1.0, bottom - top)
            )
        )
    cut = len(values) if split is None else max(0, min(split, len(values)))
    placed = [(x_of(i), y_of(v)) for i, v in enumerate(values)]
    if cut > 1:
        parts.append(
            html('<polyline points="{}" fill="none" stroke="var(--c-line)" stroke-width="1.4"/>', _points(placed[:cut]))
        )
    if cut < len(values):
        rest = placed[max(0, cut - 1) :]
        parts.append(html('<polyline points="{}" fill="none" stroke="var(--reg)" stroke-width="1.8"/>', _points(rest)))
    return joined([*parts, html("</svg>")])


def cell_trend(
    values: Sequence[float],
    states: Sequence[str],
    *,
    unit: str,
    baseline: float | None,
    band: tuple[float, float] | None,
    gate: float | None,
    chosen: int | None,
    first: str,
    last: str,
    label: str,
) -> Markup:
    """The picture in the board's details: dots, the baseline's band, the gate, and a line at the chosen commit."""
    if len(values) < 2:
        return EMPTY
    width, height, right = 376, 86, 52
    ends: list[float] = [*values, *(band or ()), *([gate] if gate is not None else [])]
    low, high = min(ends), max(ends)
    pad = (high - low) * 0.06 or abs(high) * 0.01 or 1.0
    low, high = low - pad, high + pad

    def x_of(index: float) -> float:
        return 6 + index * (width - right - 12) / (len(values) - 1)

    def y_of(value: float) -> float:
        return height - 18 - (value - low) / (high - low) * (height - 26)

    parts = [
        html(
            '<svg class="ch" style="max-width:{}px" viewBox="0 0 {} {}" role="img" aria-label="{}">',
            width,
            width,
            height,
            label,
        )
    ]
    if band is not None:
        parts.append(
            html(
                '<rect width="{}" y="{:.1f}" height="{:.1f}" fill="var(--c-band)"/>',
                width - right,
                y_of(band[1]),
                max(1.5, y_of(band[0]) - y_of(band[1])),
            )
        )
    if gate is not None:
        parts.append(
            html('<path d="M0 {:.1f}H{}" stroke="var(--reg-text)" stroke-dasharray="3 3"/>', y_of(gate), width - right)
        )
    if chosen is not None:
        parts.append(
            html(
                '<path d="M{:.1f} 4V{}" stroke="var(--focus)" stroke-width="1" stroke-opacity=".6"/>',
                x_of(chosen),
                height - 16,
            )
        )
    colours = {"regression": "--reg", "suspect": "--sus-line", "improvement": "--imp-line", "quarantined": "--qua-line"}
    for index, (value, state) in enumerate(zip(values, states, strict=True)):
        radius = 3.4 if index == chosen else 2.2
        parts.append(
            html(
                '<circle cx="{:.1f}" cy="{:.1f}" r="{}" fill="var({})"/>',
                x_of(index),
                y_of(value),
                radius,
                colours.get(state, "--c-raw"),
            )
        )
    factor, _ = numbers.scale_of(values[-1], unit)
    shown_at = y_of(values[chosen if chosen is not None else -1])
    parts.append(
        html(
            '<text x="{}" y="{:.1f}" class="lb">{}</text>',
            width - right + 4,
            shown_at + 3,
            numbers.significant(values[chosen if chosen is not None else -1] / factor),
        )
    )
    if baseline is not None and abs(y_of(baseline) - shown_at) > 11:
        parts.append(
            html(
                '<text x="{}" y="{:.1f}">{}</text>',
                width - right + 4,
                y_of(baseline) + 4,
                numbers.significant(baseline / factor),
            )
        )
    parts.append(html('<text x="0" y="{}">{}</text>', height - 3, first))
    parts.append(html('<text x="{}" y="{}" text-anchor="end">{}</text></svg>', width - right, height - 3, last))
    return joined(parts)


def share_bar(share: float, width: int = 64, colour: str = "--reg") -> Markup:
    """A bar from zero to `share` of the width."""
    size = max(0.0, min(1.0, share)) * width
    return html(
        '<svg width="{}" height="8" aria-hidden="true"><rect width="{:.0f}" height="8" fill="var({})"/></svg>',
        width,
        size,
        colour,
    )


def coverage(have: int, of: int) -> Markup:
    """How many of how many were compared."""
    share = have / of if of else 0.0
    colour = "--c-line" if have == of else "--sus-line"
    return html(
        '<svg width="52" height="7" aria-hidden="true"><rect width="52" height="6" rx="1" fill="var(--line)"/><rect width="{:.0f}" height="6" rx="1" fill="var({})"/></svg> {} of {}',
        52 * share,
        colour,
        have,
        of,
    )


def forest(
    change: float | None,
    low: float | None,
    high: float | None,
    gate: float,
    word: str,
    kind: str = "",
    width: int = 236,
) -> Markup:
    """A change of cost and its interval on an axis where slower is left; the shaded middle lies inside the gate.
    `word`: what the change is called."""
    if change is None:
        return EMPTY
    reach = max(gate * 2.8, 1e-9)

    def x_of(cost: float) -> float:
        return width / 2 - max(-reach, min(reach, cost)) / reach * (width / 2 - 6)

    colour = {"regression": "--reg", "suspect": "--sus-line", "improvement": "--imp-line"}.get(kind, "--c-raw")
    words = f"{numbers.percent(change)} {word}" + (
        f", interval {numbers.interval(low, high)} of cost" if low is not None and high is not None else ""
    )
    parts = [
        html(
            '<svg class="spark" width="{}" height="18" viewBox="0 0 {} 18" role="img" aria-label="{}"><rect x="{:.1f}" width="{:.1f}" height="18" fill="var(--line)" fill-opacity=".6"/><path d="M{} 0v18" stroke="var(--line-2)"/>',
            width,
            width,
            words,
            x_of(gate),
            x_of(-gate) - x_of(gate),
            width / 2,
        )
    ]
    if low is not None and high is not None and abs(change) <= reach:
        parts.append(
            html('<path d="M{:.1f} 9H{:.1f}" stroke="var({})" stroke-width="2"/>', x_of(high), x_of(low), colour)
        )
    if abs(change) > reach:
        at, turn = (2, "l7-4.5v9z") if change > 0 else (width - 2, "l-7-4.5v9z")
        text_at, anchor = (13, "start") if change > 0 else (width - 13, "end")
        parts.append(
            html(
                '<path d="M{} 9{}" fill="var({})"/><text x="{}" y="12.5" text-anchor="{}">off scale</text>',
                at,
                turn,
                colour,
                text_at,
                anchor,
            )
        )
    else:
        parts.append(html('<circle cx="{:.1f}" cy="9" r="3.4" fill="var({})"/>', x_of(change), colour))
    return joined([*parts, html("</svg>")])


def distribution(samples: Sequence[Sequence[float]], processes: Sequence[float], unit: str) -> Markup:
    """One run: a histogram of its samples, a dot per process above it, and the median of the dots, which is judged."""
    every = sorted(value for process in samples for value in process) or sorted(processes)
    if not every:
        return EMPTY
    dots = sorted(processes) or [every[len(every) // 2]]
    middle = dots[len(dots) // 2] if len(dots) % 2 else (dots[len(dots) // 2 - 1] + dots[len(dots) // 2]) / 2
    # A few far outliers would squeeze everything else: the axis ends three spreads of the middle half beyond it.
    quarter, three_quarters = every[len(every) // 4], every[len(every) * 3 // 4]
    reach = 3 * (three_quarters - quarter)
    low, high = min(max(every[0], quarter - reach), dots[0]), max(min(every[-1], three_quarters + reach), dots[-1])
    pad = (high - low) / 25 or abs(high) * 0.01 or 1.0
    low, high = low - pad, high + pad
    width, height, top, bottom, bins = 470, 180, 34, 24, 40

    def x_of(value: float) -> float:
        return 8 + (value - low) / (high - low) * (width - 16)

    counts = [0] * bins
    for value in every:
        if low <= value < high:
            counts[int((value - low) / (high - low) * bins)] += 1
    outside = len(every) - sum(counts)
    tallest, step = max(counts) or 1, (width - 16) / bins
    parts = [
        html(
            '<svg class="ch" style="max-width:{}px" viewBox="0 0 {} {}" role="img" aria-label="Distribution of {} samples in {} processes, median {}">',
            width,
            width,
            height,
            len(every),
            len(dots),
            numbers.quantity(middle, unit),
        )
    ]
    for index, number in enumerate(counts):
        if number:
            size = number / tallest * (height - top - bottom - 26)
            parts.append(
                html(
                    '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="var(--c-bwd)" fill-opacity=".75"/>',
                    8 + index * step + 0.5,
                    height - bottom - size,
                    step - 1,
                    size,
                )
            )
    for value in dots:
        parts.append(
            html('<circle cx="{:.1f}" cy="{}" r="4" fill="var(--reg)" fill-opacity=".8"/>', x_of(value), top + 6)
        )
    factor, name = numbers.scale_of(middle, unit)
    parts.append(
        html('<path d="M{:.1f} {}V{}" stroke="var(--ink)" stroke-width="1.4"/>', x_of(middle), top - 8, height - bottom)
    )
    anchor = "start" if x_of(middle) < 60 else "end" if x_of(middle) > width - 60 else "middle"
    parts.append(
        html(
            '<text x="{:.1f}" y="{}" text-anchor="{}" class="lb">median {} {}</text>',
            x_of(middle),
            top - 14,
            anchor,
            numbers.significant(middle / factor, 4),
            numbers.unit_text(name),
        )
    )
    for index in range(5):
        value = low + (high - low) * index / 4
        anchor = "start" if index == 0 else "end" if index == 4 else "middle"
        parts.append(
            html(
                '<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>',
                x_of(value),
                height - 6,
                anchor,
                numbers.significant(value / factor, 4),
            )
        )
    if outside:
        parts.append(html('<text x="{}" y="{}" text-anchor="end">{} further out</text>', width - 8, top - 14, outside))
    parts.append(html('<path d="M8 {}H{}" stroke="var(--line-2)"/></svg>', height - bottom, width - 8))
    return joined(parts)
