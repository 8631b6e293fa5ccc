"""Roll-ups: what is kept of a series per hour, day and week."""

from sqlalchemy import Connection

from backend.store.judging.rollups import recompute_rollups
from tests.backend.services.loom import Loom

KEPT = """SELECT granularity, bucket, runs, value_sum, value_min, value_max, last_value, last_position, worst_verdict,
                 worst_change FROM rollup ORDER BY granularity, bucket"""


def test_buckets_made_anew_from_the_judgements_are_those_kept_run_by_run(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 12 + [120.0] * 6)
    touched = loom.rows("SELECT series_id, measured_at FROM judgement")
    kept = loom.rows(KEPT)
    assert {row[0] for row in kept} == {"hour", "day", "week"}
    assert any(row[8] == "regression" for row in kept)
    loom.rows("UPDATE rollup SET runs = 0, value_sum = 0, worst_verdict = 'unchanged' RETURNING 1")
    recompute_rollups(connection, [(series, moment) for series, moment in touched])
    assert [row[:3] + row[4:8] for row in loom.rows(KEPT)] == [row[:3] + row[4:8] for row in kept]


def test_only_buckets_around_the_given_moments_are_made_anew(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 3)
    ((series, first),) = loom.rows("SELECT series_id, measured_at FROM judgement ORDER BY measured_at LIMIT 1")
    loom.rows("UPDATE rollup SET runs = 99 RETURNING 1")
    recompute_rollups(connection, [(series, first)])
    assert loom.value("SELECT count(*) FROM rollup WHERE runs = 99 AND granularity = 'hour'") == 2
    assert loom.value("SELECT count(*) FROM rollup WHERE runs = 99 AND granularity = 'week'") == 0
