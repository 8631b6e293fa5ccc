"""Roll-ups: of each series the runs of an hour, a day and a week, kept as results come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection

from backend.regression.terms import Judgement
from backend.store.base import wire

_WORSE = """CASE WHEN 'regression' IN ({0}, {1}) THEN 'regression' WHEN 'suspect' IN ({0}, {1}) THEN 'suspect'
     WHEN 'improvement' IN ({0}, {1}) THEN 'improvement' WHEN 'unsteady' IN ({0}, {1}) THEN 'unsteady'
     WHEN 'unchanged' IN ({0}, {1}) THEN 'unchanged'
     ELSE 'insufficient' END"""


# Whoever adds to a series holds its lock, hence a bucket that is not found is not being made by another either. That
# spares every bucket the lock that ON CONFLICT takes before it updates.
_ADD = f"""
MERGE INTO rollup AS r
USING (SELECT u.id, g.name, date_trunc(g.name, %(measured_at)s::timestamptz, 'UTC') AS bucket, u.value, u.verdict,
              u.change
       FROM unnest(%(ids)s::int[], %(values)s::float8[], %(verdicts)s::text[], %(changes)s::float8[])
            AS u (id, value, verdict, change), unnest(ARRAY['hour', 'day', 'week']) AS g (name)) AS n
ON r.series_id = n.id AND r.granularity = n.name AND r.bucket = n.bucket
WHEN MATCHED THEN UPDATE SET
  runs = r.runs + 1, value_sum = r.value_sum + n.value,
  value_min = least(r.value_min, n.value), value_max = greatest(r.value_max, n.value),
  last_value = CASE WHEN %(position)s >= r.last_position THEN n.value ELSE r.last_value END,
  last_position = greatest(r.last_position, %(position)s),
  worst_verdict = {_WORSE.format("r.worst_verdict", "n.verdict")},
  worst_change = greatest(r.worst_change, n.change)
WHEN NOT MATCHED THEN INSERT (series_id, project_id, granularity, bucket, runs, value_sum, value_min, value_max,
                              last_value, last_position, worst_verdict, worst_change)
  VALUES (n.id, %(project)s, n.name, n.bucket, 1, n.value, n.value, n.value, n.value, %(position)s, n.verdict, n.change)
"""


_WORST_FIRST = "ARRAY['regression', 'suspect', 'improvement', 'unsteady', 'unchanged', 'insufficient']"


# The judgements of each week in question are read once, for all of its buckets; only those that something has moved in
# are written.
_RECOMPUTE = f"""
WITH touched AS (
  SELECT DISTINCT u.id, g.name, date_trunc(g.name, u.at, 'UTC') AS bucket, date_trunc('week', u.at, 'UTC') AS week
  FROM unnest(%(ids)s::int[], %(moments)s::timestamptz[]) AS u (id, at),
       unnest(ARRAY['hour', 'day', 'week']) AS g (name)
)
INSERT INTO rollup AS r (series_id, project_id, granularity, bucket, runs, value_sum, value_min, value_max,
                         last_value, last_position, worst_verdict, worst_change)
SELECT t.id, s.project_id, t.name, t.bucket, n.runs, n.value_sum, n.value_min, n.value_max, n.last_value,
       n.last_position, n.worst_verdict, n.worst_change
FROM (SELECT DISTINCT id, week FROM touched) AS w
CROSS JOIN LATERAL (
  SELECT g.name, date_trunc(g.name, j.measured_at, 'UTC') AS bucket, count(*)::int AS runs, sum(value) AS value_sum,
         min(value) AS value_min, max(value) AS value_max, (array_agg(value ORDER BY position DESC))[1] AS last_value,
         max(position) AS last_position, max(change) AS worst_change,
         ({_WORST_FIRST})[min(array_position({_WORST_FIRST}, verdict))] AS worst_verdict
  FROM judgement j, unnest(ARRAY['hour', 'day', 'week']) AS g (name)
  WHERE j.series_id = w.id AND j.superseded_at IS NULL AND j.branch_id IS NULL
    AND j.measured_at >= w.week AND j.measured_at < w.week + interval '7 days'
  GROUP BY 1, 2) AS n
JOIN touched t ON t.id = w.id AND t.name = n.name AND t.bucket = n.bucket
JOIN series s ON s.id = t.id
ON CONFLICT (series_id, granularity, bucket, project_id) DO UPDATE SET
  runs = excluded.runs, value_sum = excluded.value_sum, value_min = excluded.value_min, value_max = excluded.value_max,
  last_value = excluded.last_value, last_position = excluded.last_position, worst_verdict = excluded.worst_verdict,
  worst_change = excluded.worst_change
WHERE (r.runs, r.value_sum, r.value_min, r.value_max, r.last_value, r.last_position, r.worst_verdict, r.worst_change)
  IS DISTINCT FROM (excluded.runs, excluded.value_sum, excluded.value_min, excluded.value_max, excluded.last_value,
                    excluded.last_position, excluded.worst_verdict, excluded.worst_change)
"""


def rollup_statement(
    project_id: int, said: Sequence[tuple[int, Judgement]], *, measured_at: datetime, position: int
) -> wire.Statement:
    """Adds one run's points to the hour, the day and the week they fall in: of each series what is said of it."""
    return _ADD, {
        "project": project_id,
        "measured_at": measured_at,
        "position": position,
        "ids": wire.Ints([series_id for series_id, _ in said]),
        "values": wire.Doubles([judgement.value for _, judgement in said]),
        "verdicts": [judgement.verdict.value for _, judgement in said],
        "changes": wire.reals([judgement.change for _, judgement in said]),
    }


def recompute_rollups(c: Connection, touched: Iterable[tuple[int, datetime]]) -> None:
    """Bring the buckets around these moments in line with the judgements that stand, after some were replaced."""
    pairs = list(touched)
    if pairs:
        wire.send(c, (_RECOMPUTE, {"ids": [series for series, _ in pairs], "moments": [at for _, at in pairs]}))
