"""Reads of one series over time. Points come packed, as the board's do: see `POINT`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from backend.store.base import wire
from backend.store.base.spans import REACHES, Period, Spans
from backend.store.board.board import NUMBER_OF_VERDICT, ONSET


class ChangePointRow(NamedTuple):
    kind: str
    direction: str
    state: str
    onset_position: int
    onset_sha: str | None
    last_good_position: int | None
    detected_position: int
    fixed_position: int | None
    change: float
    change_low: float | None
    change_high: float | None
    before: float | None
    after: float | None
    regression_id: int | None
    regression_state: str | None
    owner: str | None
    cause: str | None
    still_bad: bool | None


@dataclass(frozen=True, slots=True)
class PackedPoints:
    """`numbers` are records of `POINT` in order of position; the texts run alongside."""

    numbers: NDArray[np.void]
    shas: list[str]
    messages: list[str]
    authors: list[str]
    run_ids: list[str]

    def __len__(self) -> int:
        return len(self.numbers)


class RollupRow(NamedTuple):
    bucket: datetime
    runs: int
    mean: float
    low: float
    high: float
    last: float
    position: int
    verdict: str
    change: float | None


FLOATS = (
    "value",
    "smoothed",
    "smoothed_low",
    "smoothed_high",
    "baseline",
    "band_low",
    "band_high",
    "anchor",
    "change",
    "change_low",
    "change_high",
)
# One record a point; what is null is not a number, or 0 for an id.
POINT = np.dtype(
    [
        ("position", ">i4"),
        ("verdict_and_onset", ">i4"),
        ("regression", ">i4"),
        ("environment", ">i4"),
        ("committed_at", ">i8"),  # microseconds since 1970
        ("measured_at", ">i8"),
        *((name, ">f8") for name in FLOATS),
    ]
)
MICROSECONDS_UNTIL_2000 = 946_684_800_000_000  # from 1970 on: PostgreSQL sends moments as microseconds since 2000
_RECORD = " || ".join(
    [
        "int4send(j.position)",
        f"int4send({NUMBER_OF_VERDICT} | CASE WHEN onset THEN {ONSET} ELSE 0 END)",
        "int4send(coalesce(j.regression_id, 0))",
        "int4send(coalesce(r.environment_id, 0))",
        "timestamptz_send(coalesce(c.committed_at, c.recorded_at))",
        "timestamptz_send(j.measured_at)",
        *(f"float8send(coalesce(j.{name}, 'NaN'))" for name in FLOATS),
    ]
)
# `OFFSET 0` keeps the planner from reading all commits and runs to join them with five hundred points.
_POINTS = f"""
SELECT string_agg({_RECORD}, ''::bytea ORDER BY j.position), string_agg(c.sha, E'\\n' ORDER BY j.position),
       string_agg(left(split_part(c.message, E'\\n', 1), 120), E'\\n' ORDER BY j.position),
       string_agg(translate(c.author_name, E'\\n', ' '), E'\\n' ORDER BY j.position),
       string_agg(j.run_id, E'\\n' ORDER BY j.position)
FROM (SELECT * FROM judgement
      WHERE series_id = %(series)s AND superseded_at IS NULL AND branch_id IS NULL
        AND position BETWEEN %(first)s AND %(last)s AND measured_at >= %(since)s AND measured_at < %(until)s
      ORDER BY position DESC LIMIT %(limit)s) AS j
CROSS JOIN LATERAL (SELECT * FROM commit WHERE id = j.commit_id OFFSET 0) AS c
CROSS JOIN LATERAL (SELECT environment_id FROM run WHERE id = j.run_id OFFSET 0) AS r
"""
_AROUND = text(
    """SELECT u.id, u.onset, array_agg(j.position ORDER BY j.position), array_agg(j.value ORDER BY j.position)
       FROM unnest(CAST(:series AS integer[]), CAST(:onsets AS integer[])) AS u (id, onset)
       CROSS JOIN LATERAL (
         (SELECT position, value FROM judgement
          WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL
            AND position >= u.onset - :reach AND position < u.onset AND measured_at >= :since AND measured_at < :until
          ORDER BY position DESC LIMIT :limit)
         UNION ALL
         (SELECT position, value FROM judgement
          WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL
            AND position >= u.onset AND position < u.onset + :reach AND measured_at >= :since AND measured_at < :until
          ORDER BY position LIMIT :limit)) AS j
       GROUP BY u.id, u.onset"""
)
_CHANGE_POINTS = """
SELECT p.kind, p.direction, p.state, p.onset_position, c.sha, p.last_good_position, p.detected_position,
  p.fixed_position, p.change, p.change_low, p.change_high, p.before, p.after, p.regression_id, g.state, g.owner,
  g.cause, g.still_bad
FROM change_point p
LEFT JOIN regression g ON g.id = p.regression_id LEFT JOIN commit c ON c.id = p.onset_commit_id
WHERE p.series_id = %(series)s AND p.onset_position <= %(last)s
  AND (p.onset_position >= %(first)s OR (p.state = 'confirmed' AND p.direction = 'regression')
       OR p.fixed_position >= %(first)s)
ORDER BY p.onset_position
"""
_ROLLUPS = text(
    """SELECT bucket, runs, value_sum / runs, value_min, value_max, last_value, last_position, worst_verdict,
         worst_change
       FROM rollup WHERE series_id = :series AND granularity = :granularity
         AND (CAST(:since AS timestamptz) IS NULL
              OR bucket >= date_trunc(:granularity, CAST(:since AS timestamptz), 'UTC'))
         AND (CAST(:until AS timestamptz) IS NULL OR bucket <= :until)
       ORDER BY bucket DESC LIMIT :limit"""
)


def packed_points(connection: Connection, series_id: int, first: int, last: int, limit: int) -> PackedPoints:
    """The newest `limit` points of a series on the default branch between two positions."""

    def read(first: int, last: int, period: Period) -> PackedPoints:
        values = {"series": series_id, "first": first, "last": last, "limit": limit, **period._asdict()}
        ((row,),) = wire.send(connection, (_POINTS, values))
        return _unpacked(row)

    return Spans.of_series(connection, series_id).nearest_before(last, limit, read, first=first)


def _unpacked(row: Any) -> PackedPoints:
    numbers, shas, messages, authors, run_ids = row
    if numbers is None:
        return PackedPoints(np.empty(0, dtype=POINT), [], [], [], [])
    records = np.frombuffer(numbers, dtype=POINT).copy()
    for moment in ("committed_at", "measured_at"):
        records[moment] += MICROSECONDS_UNTIL_2000
    return PackedPoints(
        records,
        *(texts.split("\n") for texts in (shas, messages, authors, run_ids)),
    )


def points_around(
    connection: Connection, project_id: int, onsets: Sequence[tuple[int, int]], limit: int
) -> dict[tuple[int, int], tuple[list[int], list[float]]]:
    """Positions and values of up to `limit` points on either side of each (series, position), oldest first."""
    reach = limit * REACHES[0]
    places = [onset for _, onset in onsets]
    period = Spans.of_project(connection, project_id).between(min(places) - reach, max(places) + reach)
    values = {"series": [series for series, _ in onsets], "onsets": places, "reach": reach, "limit": limit}
    rows = connection.execute(_AROUND, {**values, **period._asdict()})
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def change_points(connection: Connection, series_id: int, first: int, last: int) -> list[ChangePointRow]:
    """Change points that reach into a stretch of positions: begun in it, or still open or fixed in it."""
    parameters = {"series": series_id, "first": first, "last": last}
    (rows,) = wire.send(connection, (_CHANGE_POINTS, parameters))
    return [ChangePointRow._make(row) for row in rows]


def rollups(
    connection: Connection,
    series_id: int,
    granularity: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[RollupRow]:
    """Newest first."""
    parameters = {
        "series": series_id,
        "granularity": granularity,
        "since": since,
        "until": until,
        "limit": limit,
    }
    return [RollupRow._make(row) for row in connection.execute(_ROLLUPS, parameters).all()]
