"""Bisections: the range they close, the steps they took, and what those measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, text, update

from backend.store.session_tables import bisection, bisection_step

_QUESTION = text(
    """SELECT g.id, g.project_id, g.testbed_id, g.state, g.still_bad, g.lead_series_id, g.lead_change,
         g.first_bad_position, g.last_good_position, g.first_bad_commit_id, g.last_good_commit_id,
         p.slug AS project, p.default_branch, b.id AS branch_id, t.name AS testbed, s.suite, s.direction, s.exact,
         CAST(s.profile ->> 'noise' AS double precision) AS noise, point.before,
         kg.sha AS last_good_sha, kb.sha AS first_bad_sha, r.spec
       FROM regression g
       JOIN project p ON p.id = g.project_id JOIN testbed t ON t.id = g.testbed_id
       LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       LEFT JOIN series s ON s.id = g.lead_series_id
       LEFT JOIN commit kg ON kg.id = g.last_good_commit_id LEFT JOIN commit kb ON kb.id = g.first_bad_commit_id
       LEFT JOIN LATERAL (SELECT before FROM change_point
                          WHERE regression_id = g.id AND series_id = g.lead_series_id AND state <> 'withdrawn'
                          ORDER BY id DESC LIMIT 1) AS point ON true
       LEFT JOIN LATERAL (SELECT spec FROM run
                          WHERE commit_id = g.first_bad_commit_id AND testbed_id = g.testbed_id AND suite = s.suite
                            AND session_id IS NULL AND spec <> '{}'::jsonb
                          ORDER BY requested_at DESC LIMIT 1) AS r ON true
       WHERE g.id = :regression FOR UPDATE OF g"""
)
_LINE = text(
    """SELECT bc.position, k.id AS commit_id, k.sha, k.parents, k.changed_paths
       FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id
       WHERE bc.branch_id = :branch AND bc.position > :last_good AND bc.position <= :first_bad ORDER BY bc.position"""
)


def question(c: Connection, regression_id: int) -> RowMapping | None:
    """What a bisection of this regression would be about; the regression is locked."""
    return c.execute(_QUESTION, {"regression": regression_id}).mappings().one_or_none()


def line(c: Connection, branch_id: int, last_good: int, first_bad: int) -> Sequence[RowMapping]:
    """The commits after the last good one up to the first bad one, oldest first."""
    values = {"branch": branch_id, "last_good": last_good, "first_bad": first_bad}
    return c.execute(_LINE, values).mappings().all()


def insert_bisection(c: Connection, values: Mapping[str, Any]) -> None:
    c.execute(insert(bisection).values(**values))


def change_bisection(c: Connection, bisection_id: str, **values: Any) -> None:
    c.execute(update(bisection).where(bisection.c.id == bisection_id).values(**values))


_ROW = """SELECT x.*, p.slug AS project, p.default_branch, t.name AS testbed, b.id AS branch_id,
         g.state AS regression_state, g.still_bad, s.direction, s.exact,
         kg.sha AS last_good_sha, kb.sha AS first_bad_sha
       FROM bisection x JOIN project p ON p.id = x.project_id JOIN testbed t ON t.id = x.testbed_id
       JOIN regression g ON g.id = x.regression_id JOIN series s ON s.id = x.series_id
       LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       JOIN commit kg ON kg.id = x.last_good_commit_id JOIN commit kb ON kb.id = x.first_bad_commit_id"""
_FIND = text(f"{_ROW} WHERE x.id = :id")
_LOCK = text(f"{_ROW} WHERE x.id = :id FOR UPDATE OF x SKIP LOCKED")
_LOCK_IN_TURN = text(f"{_ROW} WHERE x.id = :id FOR UPDATE OF x")
_NEWEST = text(f"{_ROW} WHERE x.regression_id = :regression ORDER BY x.requested_at DESC, x.id DESC LIMIT 1")
_RUNNING = text("SELECT id FROM bisection WHERE state = 'running' ORDER BY requested_at")
_LIST = text(
    f"""{_ROW} WHERE (CAST(:project AS integer) IS NULL OR x.project_id = :project)
          AND (CAST(:regression AS integer) IS NULL OR x.regression_id = :regression)
        ORDER BY x.requested_at DESC LIMIT :limit"""
)


def find_bisection(c: Connection, bisection_id: str) -> RowMapping | None:
    return c.execute(_FIND, {"id": bisection_id}).mappings().one_or_none()


def lock_bisection(c: Connection, bisection_id: str, *, wait: bool = False) -> RowMapping | None:
    """None as well where somebody else is moving it on, unless that is to be waited for."""
    return c.execute(_LOCK_IN_TURN if wait else _LOCK, {"id": bisection_id}).mappings().one_or_none()


def newest_of_regression(c: Connection, regression_id: int) -> RowMapping | None:
    return c.execute(_NEWEST, {"regression": regression_id}).mappings().one_or_none()


def running(c: Connection) -> list[str]:
    return list(c.execute(_RUNNING).scalars())


def list_bisections(
    c: Connection, project_id: int | None, regression_id: int | None, limit: int
) -> Sequence[RowMapping]:
    values = {"project": project_id, "regression": regression_id, "limit": limit}
    return c.execute(_LIST, values).mappings().all()


# --- steps -----------------------------------------------------------------------------------------------------------

_STEPS = text("SELECT * FROM bisection_step WHERE bisection_id = :bisection ORDER BY number")


def steps_of(c: Connection, bisection_id: str) -> Sequence[RowMapping]:
    return c.execute(_STEPS, {"bisection": bisection_id}).mappings().all()


def insert_step(c: Connection, values: Mapping[str, Any]) -> None:
    c.execute(insert(bisection_step).values(**values))


def change_step(c: Connection, bisection_id: str, number: int, **values: Any) -> None:
    where = (bisection_step.c.bisection_id == bisection_id, bisection_step.c.number == number)
    c.execute(update(bisection_step).where(*where).values(**values))


_RUN = text("SELECT state, status, error, requested_by FROM run WHERE id = :run")
_MEASURED = text(
    """SELECT coalesce(m.processes, ARRAY[m.value]) AS processes FROM measurement m JOIN run r ON r.id = m.run_id
       WHERE m.run_id = :run AND m.series_id = :series AND m.measured_at = coalesce(r.started_at, r.received_at)"""
)
_DURATION = text(
    """SELECT CAST(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - started_at)) AS float8)
       FROM (SELECT started_at, finished_at FROM run
             WHERE project_id = :project AND testbed_id = :testbed AND suite = :suite AND status = 'ok'
               AND finished_at IS NOT NULL AND started_at IS NOT NULL
             ORDER BY received_at DESC LIMIT 20) AS recent"""
)
_SESSION_LEAD = text(
    "SELECT base, head FROM session_series WHERE session_id = :session AND series_id = :series LIMIT 1"
)
_DECISIVE = text("SELECT state, decision, reason FROM session WHERE id = :session")


def run_of(c: Connection, run_id: str) -> RowMapping | None:
    return c.execute(_RUN, {"run": run_id}).mappings().one_or_none()


def measured(c: Connection, run_id: str, series_id: int) -> tuple[float, ...] | None:
    """What the run measured of the series, a value of each process; None: nothing."""
    row = c.execute(_MEASURED, {"run": run_id, "series": series_id}).one_or_none()
    return None if row is None else tuple(row.processes)


def typical_duration_s(c: Connection, project_id: int, testbed_id: int, suite: str) -> float | None:
    found = c.scalar(_DURATION, {"project": project_id, "testbed": testbed_id, "suite": suite})
    return None if found is None else float(found)


def session_of(c: Connection, session_id: str) -> RowMapping | None:
    return c.execute(_DECISIVE, {"session": session_id}).mappings().one_or_none()


def arms_of(c: Connection, session_id: str, series_id: int) -> tuple[list[float], list[float]] | None:
    row = c.execute(_SESSION_LEAD, {"session": session_id, "series": series_id}).one_or_none()
    return None if row is None else (list(row.base), list(row.head))


def cancel_steps(c: Connection, bisection_id: str, reason: str, now: datetime) -> Iterable[RowMapping]:
    """End the open steps; returns them as they were."""
    ended = [step for step in steps_of(c, bisection_id) if step["state"] in ("waiting", "running")]
    for step in ended:
        change_step(c, bisection_id, step["number"], state="skipped", reason=reason, finished_at=now)
    return ended
