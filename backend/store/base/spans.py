"""The period of time in which the points between two positions were measured.

Judgements are partitioned by month and queried by position. Without a time range, PostgreSQL plans
for every month there is and looks into each; with one as a value, not as an expression, it opens only the months it
needs. So every read of points by position goes through this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, text

from backend.store.base import wire
from backend.store.base.schema import month_after

Found = TypeVar("Found", bound=Sized)

# Enough for a series that every other commit measures; then for one that every sixteenth does; then whatever it takes.
REACHES = (2, 16)
NEVER = datetime(1, 1, 1, tzinfo=UTC)


class Period(NamedTuple):
    """From `since` up to, but not including, `until`. Empty if both are the same."""

    since: datetime
    until: datetime


Read = Callable[[int, int, Period], Found]
"""Reads points from one position to another, given the period of time to look in."""
NOWHERE = Period(NEVER, NEVER)


class MonthSpan(NamedTuple):
    """A month, and the range of positions measured in it, possibly slightly too wide."""

    month: datetime
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Spans:
    """All months of a project, the earliest first."""

    months: Sequence[MonthSpan]

    @classmethod
    def of_project(cls, c: Connection, project_id: int) -> Spans:
        (rows,) = wire.send(c, (_OF_PROJECT, {"project": project_id}))
        return cls([MonthSpan._make(row) for row in rows])

    @classmethod
    def of_series(cls, c: Connection, series_id: int) -> Spans:
        """Those of the project that a series belongs to."""
        (rows,) = wire.send(c, (_OF_SERIES, {"series": series_id}))
        return cls([MonthSpan._make(row) for row in rows])

    @property
    def newest(self) -> int:
        """No point has a higher position; -1 if there is none."""
        return max((span.last for span in self.months), default=-1)

    def between(self, first: int, last: int) -> Period:
        """When the points from position `first` to `last` were measured."""
        within = [span.month for span in self.months if span.last >= first and span.first <= last]
        if not within:
            return NOWHERE
        return Period(min(within), month_after(max(within)))

    def nearest_before(self, last: int, limit: int, read: Read[Found], *, first: int = 0) -> Found:
        """The `limit` points nearest to `last`, from it downwards. `read` is called again, for more, only if the series
        was measured at few of its project's commits."""
        last = min(last, self.newest)
        lows = [max(first, last - reach * limit) for reach in REACHES]
        return _until_enough(limit, [(low, last, self.between(low, last)) for low in (*lows, first)], read)

    def nearest_after(self, first: int, limit: int, read: Read[Found], *, last: int | None = None) -> Found:
        """The same, from `first` upwards."""
        end = self.newest if last is None else min(last, self.newest)
        highs = [min(end, first + reach * limit) for reach in REACHES]
        return _until_enough(limit, [(first, high, self.between(first, high)) for high in (*highs, end)], read)


_OF_PROJECT = (
    "SELECT month, first_position, last_position FROM position_span WHERE project_id = %(project)s ORDER BY month"
)
_OF_SERIES = """
SELECT p.month, p.first_position, p.last_position
FROM series s JOIN position_span p ON p.project_id = s.project_id WHERE s.id = %(series)s ORDER BY p.month
"""


_OF_COMMITS = text(
    """SELECT min(coalesce(started_at, received_at)), max(coalesce(started_at, received_at))
       FROM run WHERE commit_id = ANY(:commits)"""
)
_OF_RUNS = text(
    """SELECT min(coalesce(started_at, received_at)), max(coalesce(started_at, received_at))
       FROM run WHERE id = ANY(:runs)"""
)


def period_of_commits(c: Connection, commit_ids: Iterable[int]) -> Period:
    """When the runs of these commits were measured."""
    return _period(*c.execute(_OF_COMMITS, {"commits": list(commit_ids)}).one())


def period_of_runs(c: Connection, run_ids: Iterable[str]) -> Period:
    """When these runs were measured."""
    return _period(*c.execute(_OF_RUNS, {"runs": list(run_ids)}).one())


def period_of(moments: Iterable[datetime | None]) -> Period:
    """From the first of these moments to the last, both within."""
    known = [moment for moment in moments if moment is not None]
    return _period(min(known, default=None), max(known, default=None))


def _period(first: datetime | None, last: datetime | None) -> Period:
    return NOWHERE if first is None or last is None else Period(first, last + timedelta(microseconds=1))


def _until_enough(limit: int, places: Sequence[tuple[int, int, Period]], read: Read[Found]) -> Found:
    found = read(*places[0])
    for before, place in pairwise(places):
        if len(found) >= limit:
            break
        if place != before:
            found = read(*place)
    return found
