"""From the points of a series to its trend: what the service stored, put where the figure wants it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from math import isnan
from typing import Any

from backend.services.history import ChangePoint, Points
from frontend import numbers
from frontend.figures.trend import Marker, Step, Trend, hover_text
from frontend.links import link

OPEN_STATES = ("suspect", "confirmed", "acknowledged")


def trend_of(points: Points, *, gate_change: float | None = None) -> Trend:
    """The figure's columns. `gate_change` is the policy's smallest regression, drawn above the newest baseline."""
    series, by_commit = points.series, points.granularity == "commit"
    values = [float(value) for value in points.value]
    baseline = _known(points.baseline)
    newest = next((value for value in reversed(baseline) if value is not None), None)
    lower = series.direction == "lower"
    gate = None
    if newest is not None and gate_change is not None:
        gate = newest * (1 + gate_change) if lower else newest / (1 + gate_change)
    anchors = [value for value in _known(points.anchor) if value is not None]
    moments = [moment_of(value) for value in points.committed_at]
    return Trend(
        unit=series.unit,
        metric=series.metric,
        lower_is_better=lower,
        x=[float(position) for position in points.position] if by_commit else moments,
        value=values,
        ticks=ticks_of(points, moments),
        hover=hovers_of(points, moments),
        links=[link(f"/series/{series.id}", commit=sha) for sha in points.sha],
        state=list(points.verdict),
        smoothed=_known(points.smoothed),
        band_low=_known(points.band_low),
        band_high=_known(points.band_high),
        baseline=baseline,
        anchor=anchors[-1] if anchors else None,
        gate=gate,
        steps=[step_of(change) for change in points.change_points if told(change)] if by_commit else [],
        markers=[
            Marker(
                at=float(change.position),
                label=", ".join(f"{d.name} {d.after or 'gone'}" for d in change.differences[:2]) or "environment",
            )
            for change in points.environment_changes
        ],
        after=open_onset(points.change_points),
        low=_known(points.low),
        high=_known(points.high),
    )


def _known(values: Iterable[Any]) -> list[float | None]:
    return [None if value is None or isnan(value) else float(value) for value in values]


def moment_of(value: Any) -> datetime:
    """numpy keeps moments as microseconds since 1970."""
    if isinstance(value, datetime):
        return value
    return datetime.fromtimestamp(int(value.astype("int64")) / 1e6, UTC)


def ticks_of(points: Points, moments: list[datetime]) -> list[str]:
    """A date where commits are days apart; the sha where they are minutes apart."""
    if not points.sha:
        return [numbers.day(moment) for moment in moments]
    days = (max(moments) - min(moments)).days if moments else 0
    return [numbers.day(moment) for moment in moments] if days >= 3 else [sha[:7] for sha in points.sha]


def hovers_of(points: Points, moments: list[datetime]) -> list[str]:
    unit, texts = points.series.unit, []
    for index, value in enumerate(points.value):
        change = float(points.change[index]) if len(points.change) else float("nan")
        said = "" if isnan(change) else f", {numbers.signed_percent(change)} of cost"
        verdict = f"{points.verdict[index]}{said}"
        shown = numbers.quantity(float(value), unit, 4)
        if not points.sha:
            texts.append(
                hover_text(shown, f"mean of {int(points.runs[index])} runs", verdict, numbers.stamp(moments[index]))
            )
            continue
        message = points.message[index].split("\n")[0]
        texts.append(
            hover_text(
                shown, verdict, f"{points.sha[index][:7]} {message[:70]}{'…' if len(message) > 70 else ''}",
                f"{points.author[index][:40]}, {numbers.stamp(moments[index])} UTC",
            )
        )  # fmt: skip
    return texts


def told(change: ChangePoint) -> bool:
    """Change points that were told, and improvements; a withdrawn one is part of the story, not of the picture."""
    return change.state not in ("withdrawn",) and (
        change.direction == "improvement" or change.regression_id is not None
    )


def step_of(change: ChangePoint) -> Step:
    worse = change.direction == "regression"
    glyph = "?" if change.state == "suspect" else "▼" if worse else "▲"
    return Step(
        at=float(change.position),
        range_from=float(change.position if change.last_good_position is None else change.last_good_position),
        label=f"{glyph} {numbers.percent(change.change)} {(change.sha or '')[:7]}".strip(),
        worse=worse,
        before=change.before,
        after=change.after,
    )


def open_onset(changes: Iterable[ChangePoint]) -> float | None:
    """Where the series got worse and still is."""
    starts = [
        float(change.position)
        for change in changes
        if change.direction == "regression" and change.fixed_position is None and change.state == "confirmed"
    ]
    return min(starts, default=None)
