"""Runs that are recorded together leave what they leave when each is recorded by itself."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, text

from backend.contract import parse_run
from backend.services.ingest.record import record_run
from backend.services.judging.state_cache import read_state
from backend.services.judging.together import RecordedTogether
from backend.store.judging import series as series_store
from tests.backend.services.loom import NOW, measurement, run_of, sha_of

LEVELS = [100.0] * 10 + [125.0] * 6


def documents() -> list[dict[str, Any]]:
    """A step in one of two series, a second run of a commit, a run of a branch, and a metric that is watched only."""
    made = []
    for position, level in enumerate(LEVELS):
        metrics = [
            measurement("step_ms", level, seed=position),
            measurement("data_ms", 20.0, seed=position, role="gate" if position < 8 else "watch"),
        ]
        made.append(run_of(position, metrics))
    again = run_of(7, [measurement("step_ms", 101.0, seed=99)])
    branch = run_of(90, [measurement("step_ms", 140.0, seed=90)], branch="try", parents=[sha_of(14)])
    return [*made[:12], {**again, "id": "RUN-again"}, *made[12:], branch]


def record(c: Connection, runs: Sequence[dict[str, Any]], together: RecordedTogether | None = None) -> list[Any]:
    answers = []
    for run in runs:
        raw = json.dumps(run).encode()
        recorded = record_run(c, parse_run(raw), raw, now=NOW, together=together)
        answers.append([(v.metric, v.verdict, v.change, v.baseline, v.red, v.explanation) for v in recorded.verdicts])
    if together is not None:
        together.write(c)
    return answers


def stored(c: Connection) -> dict[str, Any]:
    """All that is kept of judging, without the numbers of rows."""

    def rows(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in c.execute(text(statement))]

    states = [
        read_state(series_store.read(c, series_id)) for (series_id,) in rows("SELECT id FROM series ORDER BY metric")
    ]
    return {
        "judgements": rows(
            """SELECT s.metric, j.position, j.run_id, j.verdict, j.onset, j.red, j.value, j.change, j.baseline,
                      j.smoothed, j.detail, j.reason, j.since_position, j.noise, j.minimum_detectable_effect,
                      j.n_baseline, j.min_change, j.runs_of_level, j.worker_offset, j.sustained_runs,
                      j.superseded_at IS NULL
               FROM judgement j JOIN series s ON s.id = j.series_id ORDER BY 1, 2, 3, j.superseded_at IS NULL, j.id"""
        ),
        "rollups": rows(
            """SELECT s.metric, r.granularity, r.bucket, r.runs, round(r.value_sum::numeric, 6), r.value_min,
                      r.value_max,
                      r.last_value, r.last_position, r.worst_verdict, r.worst_change
               FROM rollup r JOIN series s ON s.id = r.series_id ORDER BY 1, 2, 3"""
        ),
        "series": rows("SELECT metric, role, state_position, last_measured_at FROM series ORDER BY metric"),
        "regressions": rows("SELECT state, still_bad FROM regression ORDER BY id"),
        "states": [None if state is None else state.to_json() for state in states],
    }


@pytest.mark.parametrize("pieces", [1, 3])
def test_runs_recorded_together_leave_what_they_leave_one_by_one(connection: Connection, pieces: int) -> None:
    runs = documents()
    savepoint = connection.begin_nested()
    answers, alone = record(connection, runs), stored(connection)
    savepoint.rollback()
    size = -(-len(runs) // pieces)
    together = [
        answer
        for start in range(0, len(runs), size)
        for answer in record(connection, runs[start : start + size], RecordedTogether())
    ]
    assert together == answers
    assert stored(connection) == alone
    assert any(said == "regression" for _, said, *_ in answers[-2]), "there is something to judge"


def test_the_states_of_runs_recorded_together_are_written_once(connection: Connection) -> None:
    runs = documents()[:10]
    record(connection, runs[:1])
    written = connection.scalar(text("SELECT xmin::text || cmin::text FROM series WHERE metric = 'step_ms'"))
    together = RecordedTogether()
    for run in runs[1:]:
        raw = json.dumps(run).encode()
        record_run(connection, parse_run(raw), raw, now=NOW, together=together)
    now = "SELECT xmin::text || cmin::text FROM series WHERE metric = 'step_ms'"
    assert connection.scalar(text(now)) == written
    together.write(connection)
    assert connection.scalar(text(now)) != written
