"""Which runs measured a series just before an onset and from it on: where profiles of both sides are looked for."""

from typing import NamedTuple

from sqlalchemy import Connection, text


class ProfiledRun(NamedTuple):
    run_id: str
    sha: str
    position: int


_AROUND = text(
    """(SELECT j.run_id, c.sha, j.position FROM judgement j JOIN commit c ON c.id = j.commit_id
        WHERE j.series_id = :series AND j.superseded_at IS NULL AND j.branch_id IS NULL AND j.position < :onset
        ORDER BY j.position DESC LIMIT :limit)
       UNION ALL
       (SELECT j.run_id, c.sha, j.position FROM judgement j JOIN commit c ON c.id = j.commit_id
        WHERE j.series_id = :series AND j.superseded_at IS NULL AND j.branch_id IS NULL AND j.position >= :onset
          AND j.position < :until
        ORDER BY j.position LIMIT :limit)"""
)


def points_around(c: Connection, series_id: int, onset: int, until: int, limit: int) -> list[ProfiledRun]:
    """The nearest points before an onset, and those from it on up to (not including) `until`; the nearest first."""
    values = {"series": series_id, "onset": onset, "until": until, "limit": limit}
    return [ProfiledRun._make(row) for row in c.execute(_AROUND, values).all()]
