"""The board's reads by hour, day and week: the worst of each series in each bucket."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text

from backend.store.base.spans import Spans


class BucketRow(NamedTuple):
    """The worst of one series in one hour, day or week."""

    series_id: int
    bucket: datetime
    last_position: int
    last_value: float
    worst_verdict: str
    worst_change: float | None
    onset: bool
    regression_id: int | None


_BUCKETS = text(
    """SELECT u.series_id, u.bucket, u.last_position, u.last_value, u.worst_verdict, u.worst_change,
         EXISTS (SELECT FROM change_point p WHERE p.series_id = u.series_id AND p.direction = 'regression'
                 AND p.state IN ('confirmed', 'fixed')
                 AND p.onset_position BETWEEN u.last_position - u.runs AND u.last_position),
         CASE WHEN u.worst_verdict = 'regression' THEN (
           SELECT p.regression_id FROM change_point p WHERE p.series_id = u.series_id
             AND p.direction = 'regression' AND p.onset_position <= u.last_position AND p.regression_id IS NOT NULL
           ORDER BY p.onset_position DESC, p.id DESC LIMIT 1) END
       FROM rollup u
       WHERE u.series_id = ANY(:series) AND u.granularity = :granularity AND u.bucket = ANY(:buckets)"""
)
_BUCKET_ROWS = text(
    """SELECT u.bucket, max(u.last_position)
       FROM unnest(CAST(:series AS integer[])) AS s (id)
       CROSS JOIN LATERAL (
         SELECT bucket, last_position FROM rollup
         WHERE series_id = s.id AND granularity = :granularity AND last_position BETWEEN :first AND :last
           AND bucket >= date_trunc(:granularity, CAST(:since AS timestamptz), 'UTC') AND bucket < :until
         ORDER BY bucket DESC LIMIT :limit) AS u
       GROUP BY u.bucket ORDER BY u.bucket DESC LIMIT :limit"""
)


def bucket_rows(
    connection: Connection, project_id: int, series: Sequence[int], granularity: str, first: int, last: int, limit: int
) -> list[tuple[datetime, int]]:
    """(bucket, its newest position), newest first."""
    parameters = {
        "series": list(series),
        "granularity": granularity,
        "first": first,
        "last": last,
        "limit": limit,
        **Spans.of_project(connection, project_id).between(first, last)._asdict(),
    }
    return [(row[0], row[1]) for row in connection.execute(_BUCKET_ROWS, parameters).all()]


def bucket_cells(
    connection: Connection, series: Sequence[int], granularity: str, buckets: Sequence[datetime]
) -> list[BucketRow]:
    parameters = {"series": list(series), "granularity": granularity, "buckets": list(buckets)}
    return [BucketRow._make(row) for row in connection.execute(_BUCKETS, parameters).all()]
