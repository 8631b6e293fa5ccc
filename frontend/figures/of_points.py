"""From the points of a series to its trend: what the service stored, put where the figure wants it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np

from backend.regression.regression_state import ANNOUNCED, OPEN
from backend.services.reports.history import LevelChange, SeriesPoints
from frontend import numbers
from frontend.figures.trend import ChangeMark, Marker, Trend, escaped_all, hover_text
from frontend.links import links_to


def trend_of(points: SeriesPoints, *, threshold_change: float | None = None) -> Trend:
    """The figure's columns. `threshold_change` is the policy's smallest regression, drawn above the newest baseline."""
    series, by_commit = points.series, points.granularity == "commit"
    baseline, band_low, band_high = (
        frozen(_known(column), points) for column in (points.baseline, points.band_low, points.band_high)
    )
    newest = next((value for value in reversed(baseline) if value is not None), None)
    lower = series.direction == "lower"
    threshold = None
    if newest is not None and threshold_change is not None:
        threshold = newest * (1 + threshold_change) if lower else newest / (1 + threshold_change)
    anchors = [value for value in _known(points.anchor) if value is not None]
    moments = moments_of(points.committed_at)
    return Trend(
        unit=series.unit,
        metric=series.metric,
        x=np.asarray(points.position, dtype=float).tolist() if by_commit else moments,
        value=np.asarray(points.value, dtype=float).tolist(),
        ticks=ticks_of(points, moments),
        hover=hovers_of(points, moments),
        links=links_to(f"/series/{series.id}", "commit", points.sha),
        state=list(points.verdict),
        smoothed=_known(points.smoothed),
        band_low=band_low,
        band_high=band_high,
        baseline=baseline,
        anchor=anchors[-1] if anchors else None,
        threshold=threshold,
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


def _known(values: Any) -> list[float | None]:
    numbers_or_not: list[float] = np.asarray(values, dtype=float).tolist()
    return [None if value != value else value for value in numbers_or_not]  # noqa: PLR0124 (not a number)


def frozen(values: list[float | None], points: SeriesPoints) -> list[float | None]:
    """Baseline or an end of its band, held over each regression at what it was before the onset: the runs of a
    regression, and of a drift before it was seen, are no part of what is normal. What a person accepted is."""
    position = np.asarray(points.position, dtype=float)
    for span in points.regressions:
        if len(values) == 0 or span.state == "expected":
            continue
        start = int(np.searchsorted(position, span.start))
        end = len(values) if span.end is None else int(np.searchsorted(position, span.end))
        before = next((value for value in reversed(values[:start]) if value is not None), None)
        if before is not None:
            values[start:end] = [before] * (end - start)
    return values


def moments_of(values: Any) -> list[datetime]:
    """Every moment of a column, with its zone."""
    if isinstance(values, np.ndarray):
        plain: list[datetime] = values.astype("datetime64[us]").tolist()
        return [moment.replace(tzinfo=UTC) for moment in plain]
    return [moment_of(value) for value in values]


def moment_of(value: Any) -> datetime:
    """numpy keeps moments as microseconds since 1970."""
    if isinstance(value, datetime):
        return value
    return datetime.fromtimestamp(int(value.astype("int64")) / 1e6, UTC)


def ticks_of(points: SeriesPoints, moments: list[datetime]) -> list[str]:
    """A date where commits are days apart; the sha where they are minutes apart."""
    if not points.sha:
        return [numbers.day(moment) for moment in moments]
    days = (max(moments) - min(moments)).days if moments else 0
    return [numbers.day(moment) for moment in moments] if days >= 3 else [sha[:7] for sha in points.sha]


def hovers_of(points: SeriesPoints, moments: list[datetime]) -> list[str]:
    """Hover texts of points. Whole columns are escaped at once: a page may have thousands of points."""
    unit = points.series.unit
    values: list[float] = np.asarray(points.value, dtype=float).tolist()
    changes: list[float] = np.asarray(points.change, dtype=float).tolist() or [float("nan")] * len(values)
    verdicts = [
        verdict if change != change else f"{verdict}, {numbers.cost_change(change)} of cost"  # noqa: PLR0124
        for verdict, change in zip(points.verdict, changes, strict=True)
    ]
    shown = [numbers.quantity(value, unit, 4) for value in values]
    if not points.sha:
        return [
            hover_text(value, f"mean of {int(runs)} runs", verdict, numbers.stamp(moment))
            for value, runs, verdict, moment in zip(shown, points.runs, verdicts, moments, strict=True)
        ]
    messages = escaped_all([first_words(message) for message in points.message])
    authors = escaped_all([author[:40] for author in points.author])
    return [
        f"{value}<br>{verdict}<br>{sha[:7]} {message}<br>{author}, {numbers.stamp(moment)} UTC"
        for value, verdict, sha, message, author, moment in zip(
            escaped_all(shown), escaped_all(verdicts), points.sha, messages, authors, moments, strict=True
        )
    ]


def first_words(message: str) -> str:
    """As much of a commit's first line as a hover holds."""
    line = message.partition("\n")[0]
    return f"{line[:70]}…" if len(line) > 70 else line


def told(change: LevelChange) -> bool:
    """Reported change points, and improvements; withdrawn ones are part of the history, but not of the chart."""
    taken_back = change.state == "withdrawn" or change.regression_state in ("withdrawn", "invalid")
    return not taken_back and (change.direction == "improvement" or change.regression_id is not None)


def step_of(change: LevelChange) -> ChangeMark:
    worse = change.direction == "regression"
    accepted = worse and change.regression_state == "expected"
    doubtful = worse and "suspect" in (change.state, change.regression_state)
    glyph = "new baseline" if accepted else "?" if doubtful else "▼" if worse else "▲"
    return ChangeMark(
        at=float(change.position),
        range_from=float(change.position if change.last_good_position is None else change.last_good_position),
        label=f"{glyph} {numbers.percent(change.change)} {(change.sha or '')[:7]}".strip(),
        worse=worse,
        before=change.before,
        after=change.after,
        doubtful=doubtful,
        accepted=accepted,
    )


def open_onset(changes: Iterable[LevelChange]) -> float | None:
    """Where a reported regression began that is not over."""
    starts = [
        float(change.position)
        for change in changes
        if change.fixed_position is None and change.state == "confirmed" and change.regression_state in ANNOUNCED
    ]
    return min(starts, default=None)


def newest_open_change(changes: Iterable[LevelChange]) -> LevelChange | None:
    """The change for the worse that the series is in: reported or suspect, else the one that is its new baseline."""
    left = [change for change in changes if change.fixed_position is None and told(change)]
    for states in (OPEN, ("expected",)):
        found = next((change for change in left if change.regression_state in states), None)
        if found is not None:
            return found
    return None
