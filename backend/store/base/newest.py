"""The newest point of series on the default branch: their current level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text

from backend.store.base.spans import Spans


class NewestPoint(NamedTuple):
    """Changes are of cost, as fractions."""

    series_id: int
    value: float
    baseline: float | None
    verdict: str
    red: bool
    change: float | None
    low: float | None
    high: float | None
    regression_id: int | None
    sha: str
    run_id: str
    measured_at: datetime


# What a row is looked for in is its own period of time; the whole of them, given as values, is what is planned for.
_NEWEST = text(
    """SELECT u.id, j.value, j.baseline, j.verdict, j.red, j.change, j.change_low, j.change_high, j.regression_id,
         k.sha, j.run_id, j.measured_at
       FROM unnest(CAST(:series AS integer[]), CAST(:firsts AS integer[]), CAST(:lasts AS integer[]),
                   CAST(:sinces AS timestamptz[]), CAST(:untils AS timestamptz[])) AS u (id, first, last, since, until)
       CROSS JOIN LATERAL (
         SELECT * FROM judgement
         WHERE series_id = u.id AND position BETWEEN u.first AND u.last AND superseded_at IS NULL AND branch_id IS NULL
           AND measured_at >= u.since AND measured_at < u.until AND measured_at >= :since AND measured_at < :until
         ORDER BY position DESC LIMIT 1) AS j
       JOIN commit k ON k.id = j.commit_id"""
)


def newest_points(c: Connection, spans: Spans, positions: Mapping[int, int | None]) -> dict[int, NewestPoint]:
    """The newest current point of each series that has one.

    `positions`: for each series (all of the project of `spans`) the position up to which it has been judged. Its newest
    point is there, except for a moment while commits change position. None: it has no points on the default branch.
    """
    judged = {series: position for series, position in positions.items() if position is not None}
    found = _at(c, spans, [(series, position, position) for series, position in judged.items()])
    missing = judged.keys() - found.keys()
    return found | _at(c, spans, [(series, 0, spans.newest) for series in sorted(missing)])


def _at(c: Connection, spans: Spans, wanted: Sequence[tuple[int, int, int]]) -> dict[int, NewestPoint]:
    if not wanted:
        return {}
    periods = [spans.between(first, last) for _, first, last in wanted]
    values = {
        "series": [series for series, _, _ in wanted],
        "firsts": [first for _, first, _ in wanted],
        "lasts": [last for _, _, last in wanted],
        "sinces": [period.since for period in periods],
        "untils": [period.until for period in periods],
        "since": min(period.since for period in periods),
        "until": max(period.until for period in periods),
    }
    return {row[0]: NewestPoint._make(row) for row in c.execute(_NEWEST, values)}
