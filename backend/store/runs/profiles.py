"""Which runs measured a series just before an onset and from it on: where profiles of both sides are looked for."""

from typing import NamedTuple

from sqlalchemy import Connection, TextClause, text

from backend.store.base.spans import Period, Read, Spans


class ProfiledRun(NamedTuple):
    run_id: str
    sha: str
    position: int


_NEAREST = """SELECT j.run_id, c.sha, j.position FROM judgement j JOIN commit c ON c.id = j.commit_id
       WHERE j.series_id = :series AND j.superseded_at IS NULL AND j.branch_id IS NULL
         AND j.position BETWEEN :first AND :last AND j.measured_at >= :since AND j.measured_at < :until
       ORDER BY j.position {order} LIMIT :limit"""
_BEFORE = text(_NEAREST.format(order="DESC"))
_AFTER = text(_NEAREST.format(order=""))


def points_around(c: Connection, series_id: int, onset: int, until: int, limit: int) -> list[ProfiledRun]:
    """The nearest points before an onset, and those from it on up to (not including) `until`; the nearest first."""
    spans = Spans.of_series(c, series_id)
    before = spans.nearest_before(onset - 1, limit, _reader(c, _BEFORE, series_id, limit))
    return before + spans.nearest_after(onset, limit, _reader(c, _AFTER, series_id, limit), last=until - 1)


def _reader(c: Connection, statement: TextClause, series_id: int, limit: int) -> Read[list[ProfiledRun]]:
    """Runs the statement between two positions, which lie in a period."""

    def read(first: int, last: int, period: Period) -> list[ProfiledRun]:
        values = {"series": series_id, "first": first, "last": last, "limit": limit, **period._asdict()}
        return [ProfiledRun._make(row) for row in c.execute(statement, values).all()]

    return read
