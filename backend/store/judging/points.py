"""Points of series: the current one at each position, read in ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import Connection

from backend.records import record
from backend.regression.series.run_numbers import RunValues
from backend.store.base import wire


@record()
class StoredPoint:
    """A current point of a series, as the judge takes it: what was measured where, by whom; and of which runs."""

    values: Sequence[float]
    """Of its processes; its value, where none are stored."""
    position: int
    commit: str
    commit_id: int
    run_id: str
    measured_at: datetime
    value: float
    pooled: Sequence[str] | None
    """The runs whose processes it pools, where they are several."""
    worker: str

    @property
    def runs(self) -> Sequence[str]:
        """Every run whose processes are in it."""
        return self.pooled or (self.run_id,)

    def pooled_with(self, other: StoredPoint) -> StoredPoint:
        """Both as one point: runs of one commit that were judged apart on a branch, which has been merged since."""
        return replace(other, pooled=(*self.runs, *other.runs), values=(*self.values, *other.values))


# Of the series u.id the judgements from u.around to u.until, and some before them.
_STANDING = """
    (SELECT series_id, position, commit_id, run_id, measured_at, value, detail FROM judgement
     WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL AND position < u.around
     ORDER BY position DESC LIMIT %(before)s)
    UNION ALL
    (SELECT series_id, position, commit_id, run_id, measured_at, value, detail FROM judgement
     WHERE series_id = u.id AND superseded_at IS NULL AND branch_id IS NULL
       AND position BETWEEN u.around AND u.until)"""
# The series, the fields of a StoredPoint but the first, and the values of a point of several runs. Those of one run
# come by themselves.
_POINTS = f"""
SELECT j.series_id, j.position, k.sha AS commit, j.commit_id, j.run_id, j.measured_at, j.value,
       j.runs AS pooled, coalesce(w.name, '') AS worker,
       CASE WHEN j.runs IS NOT NULL THEN (
         SELECT array_agg(v)
         FROM run y JOIN measurement x ON x.run_id = y.id, unnest(coalesce(x.processes, ARRAY[x.value])) AS v
         -- when it was measured says in which partition it is
         WHERE y.id = ANY (j.runs) AND x.series_id = j.series_id
           AND x.measured_at = coalesce(y.started_at, y.received_at)
       ) END AS processes
FROM unnest(%(ids)s::int[], %(around)s::int[], %(until)s::int[]) AS u (id, around, until)
CROSS JOIN LATERAL (
  SELECT *, CASE WHEN detail ? 'runs' THEN (
              SELECT array_agg(x) FROM jsonb_array_elements_text(detail -> 'runs') AS x) END AS runs
  FROM ({_STANDING}) AS standing) AS j
JOIN commit k ON k.id = j.commit_id
JOIN run r ON r.id = j.run_id
LEFT JOIN worker w ON w.id = r.worker_id
ORDER BY j.series_id, j.position, j.measured_at, j.run_id
"""
# Run by run, as measurements lie: looked up for each point by itself they took as long as all the rest. Of an array as
# it is sent, 20 bytes of head are left out.
_VALUES = """
SELECT x.series_id, array_agg(u.n::int) AS runs, array_agg(cardinality(x.processes)) AS counts,
       string_agg(substr(array_send(x.processes), 21), ''::bytea) AS numbers
FROM unnest(%(runs)s::text[], %(moments)s::timestamptz[]) WITH ORDINALITY AS u (run, at, n)
CROSS JOIN LATERAL (
  SELECT series_id, processes FROM measurement
  WHERE run_id = u.run AND measured_at = u.at AND series_id = ANY(%(ids)s::int[]) AND processes IS NOT NULL
  OFFSET 0) AS x
GROUP BY x.series_id
"""
_SENT = np.dtype([("bytes", ">i4"), ("number", ">f8")])


NO_LIMIT = 2**31 - 1


def load_points(
    c: Connection, series_ids: Iterable[int], *, around: int, before: int, until: int = NO_LIMIT
) -> dict[int, list[StoredPoint]]:
    """Of each series on the default branch the points from position `around` until `until`, and the `before` points
    ahead of them, in order."""
    return load_stretches(c, dict.fromkeys(series_ids, (around, until)), before=before)


def load_stretches(
    c: Connection, stretches: Mapping[int, tuple[int, int]], *, before: int
) -> dict[int, list[StoredPoint]]:
    """Of each series the points from one position until another, and the `before` points ahead of them, in order."""
    (rows,) = wire.send(c, (_POINTS, _wanted(stretches, before)))
    values = _values(c, rows)
    points: dict[int, list[StoredPoint]] = {series_id: [] for series_id in stretches}
    for series_id, mine in groupby(rows, itemgetter(0)):
        own = values.get(series_id, {})
        points[series_id] = _pooled([StoredPoint(row[-1] or own.get(row[4]) or (row[6],), *row[1:-1]) for row in mine])
    return points


def _wanted(stretches: Mapping[int, tuple[int, int]], before: int) -> dict[str, Any]:
    return {
        "ids": list(stretches),
        "around": [around for around, _ in stretches.values()],
        "until": [until for _, until in stretches.values()],
        "before": before,
    }


def _values(c: Connection, rows: wire.Rows) -> dict[int, dict[str, Sequence[float]]]:
    """The values of the processes of points of one run, by series and run."""
    runs = {row.run_id: row.measured_at for row in rows if row.pooled is None}
    asked = {"ids": list({row.series_id for row in rows}), "runs": list(runs), "moments": list(runs.values())}
    (found,) = wire.send(c, (_VALUES, asked)) if runs else ([],)
    return {row.series_id: _by_run(row, asked["runs"]) for row in found}


def _by_run(row: Any, names: Sequence[str]) -> dict[str, Sequence[float]]:
    numbers = np.frombuffer(row.numbers, _SENT)["number"].tolist()
    ends = pairwise(accumulate(row.counts, initial=0))
    return {names[run - 1]: numbers[start:end] for run, (start, end) in zip(row.runs, ends, strict=True)}


# The same values, each beside its position, of the series that can be told without a record of each point. Those are an
# array: joined with, they were thought to be one, and a thousand measurements were read a thousand times.
COLUMNS_OF_SERIES = f"""
WITH found AS MATERIALIZED (
  SELECT j.*, r.worker_id FROM unnest(%(ids)s::int[], %(around)s::int[], %(until)s::int[]) AS u (id, around, until)
  CROSS JOIN LATERAL ({_STANDING}) AS j
  JOIN run r ON r.id = j.run_id
),
alike AS MATERIALIZED (
  SELECT array_agg(series_id) AS ids FROM (
    SELECT series_id FROM found GROUP BY series_id
    HAVING count(DISTINCT position) = count(*) AND NOT bool_or(detail ? 'runs')
      AND count(DISTINCT coalesce(worker_id, 0)) = 1) AS one
),
measured AS (
  SELECT u.run_id, x.series_id, x.processes
  FROM (SELECT DISTINCT run_id, measured_at FROM found WHERE series_id = ANY ((SELECT ids FROM alike)::int[])) AS u
  CROSS JOIN LATERAL (
    SELECT series_id, processes FROM measurement
    WHERE run_id = u.run_id AND measured_at = u.measured_at AND series_id = ANY ((SELECT ids FROM alike)::int[])
    OFFSET 0) AS x
)
SELECT series_id, string_agg(int4send(position), ''::bytea ORDER BY position) AS places,
       string_agg(int4send(cardinality(processes)), ''::bytea ORDER BY position) AS counts,
       string_agg(substr(array_send(processes), 21), ''::bytea ORDER BY position) AS numbers
FROM (
  SELECT j.series_id, j.position, coalesce(nullif(m.processes, '{{}}'), ARRAY[j.value]) AS processes
  FROM found j LEFT JOIN measured m ON m.run_id = j.run_id AND m.series_id = j.series_id
  WHERE j.series_id = ANY ((SELECT ids FROM alike)::int[])) AS point
GROUP BY series_id
"""


def load_columns(c: Connection, stretches: Mapping[int, tuple[int, int]], *, before: int) -> dict[int, RunValues]:
    """The same points as columns. Left out: a series of several workers, or with a point of several runs."""
    (rows,) = wire.send(c, (COLUMNS_OF_SERIES, _wanted(stretches, before)))
    return {
        row.series_id: RunValues(
            places=np.frombuffer(row.places, ">i4").astype(np.int64),
            processes=np.frombuffer(row.counts, ">i4").astype(np.int64),
            values=np.frombuffer(row.numbers, _SENT)["number"].astype(np.float64),
        )
        for row in rows
    }


def _pooled(points: list[StoredPoint]) -> list[StoredPoint]:
    """The points of a series, in order, with those of one position as one."""
    if len({point.position for point in points}) == len(points):
        return points
    one_each = points[:1]
    for point in points[1:]:
        if one_each[-1].position == point.position:
            one_each[-1] = one_each[-1].pooled_with(point)
        else:
            one_each.append(point)
    return one_each


_LAST_POINT = """
SELECT j.position, k.sha AS commit, j.commit_id, j.run_id, j.measured_at, j.value
FROM judgement j
JOIN commit k ON k.id = j.commit_id
WHERE j.series_id = %(series)s AND j.branch_id IS NULL
ORDER BY j.measured_at DESC, j.id DESC LIMIT 1
"""


def last_point(c: Connection, series_id: int) -> StoredPoint | None:
    """The newest point ever judged on the default branch, whether it is current or not."""
    (rows,) = wire.send(c, (_LAST_POINT, {"series": series_id}))
    if not rows:
        return None
    (row,) = rows
    return StoredPoint(
        position=row.position,
        commit=row.commit,
        commit_id=row.commit_id,
        run_id=row.run_id,
        measured_at=row.measured_at,
        value=row.value,
        pooled=None,
        worker="",
        values=(row.value,),
    )
