"""Bisections: the range they close, the steps they took, and what those measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, text, update

from backend.store.base.projects import project_of
from backend.store.tables.sessions import bisection, bisection_step

_FACTS = """SELECT g.id, g.project_id, g.testbed_id, g.state, g.still_bad, g.lead_series_id, g.lead_change,
         g.first_bad_position, g.last_good_position, g.first_bad_commit_id, g.last_good_commit_id,
         p.slug AS project, p.default_branch, b.id AS branch_id, t.name AS testbed,
         s.suite, s.benchmark, s.metric, s.direction, s.exact,
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
       WHERE g.id = :regression"""
_READ = text(_FACTS)
_QUESTION = text(f"{_FACTS} FOR UPDATE OF g")
_LINE = text(
    """SELECT bc.position, k.id AS commit_id, k.sha, k.parents, k.changed_paths
       FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id
       WHERE bc.branch_id = :branch AND bc.position > :last_good AND bc.position <= :first_bad ORDER BY bc.position"""
)


def question(c: Connection, regression_id: int) -> RowMapping | None:
    """Facts for a bisection of this regression; locks the regression."""
    return c.execute(_QUESTION, {"regression": regression_id}).mappings().one_or_none()


def facts(c: Connection, regression_id: int) -> RowMapping | None:
    """The same without a lock, for a page."""
    return c.execute(_READ, {"regression": regression_id}).mappings().one_or_none()


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
    """Also None if another process is advancing it, unless the caller waits for that."""
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

_STEPS = text("SELECT * FROM bisection_step WHERE bisection_id = ANY(:bisections) ORDER BY bisection_id, number")


def steps_of(c: Connection, bisection_id: str) -> Sequence[RowMapping]:
    return steps_of_all(c, [bisection_id])[bisection_id]


def steps_of_all(c: Connection, bisection_ids: Iterable[str]) -> dict[str, list[RowMapping]]:
    """The steps of each of these bisections, in the order of their requests."""
    steps: dict[str, list[RowMapping]] = {bisection_id: [] for bisection_id in bisection_ids}
    for row in c.execute(_STEPS, {"bisections": list(steps)}).mappings():
        steps[row["bisection_id"]].append(row)
    return steps


def insert_step(c: Connection, values: Mapping[str, Any]) -> None:
    c.execute(insert(bisection_step).values(project_id=project_of(bisection, values["bisection_id"]), **values))


def change_step(c: Connection, bisection_id: str, number: int, **values: Any) -> None:
    where = (bisection_step.c.bisection_id == bisection_id, bisection_step.c.number == number)
    c.execute(update(bisection_step).where(*where).values(**values))


_RUN = text("SELECT state, status, error, requested_by FROM run WHERE id = :run")
_MEASURED = text(
    """SELECT coalesce(m.processes, ARRAY[m.value]) AS processes FROM measurement m JOIN run r ON r.id = m.run_id
       WHERE m.run_id = :run AND m.series_id = :series AND m.measured_at = coalesce(r.started_at, r.received_at)"""
)
_DURATIONS = text(
    """SELECT k.project_id, k.testbed_id, k.suite, CAST(
              (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - started_at))
               FROM (SELECT started_at, finished_at FROM run
                     WHERE project_id = k.project_id AND testbed_id = k.testbed_id AND suite = k.suite
                       AND status = 'ok' AND finished_at IS NOT NULL AND started_at IS NOT NULL
                     ORDER BY received_at DESC LIMIT 20) AS recent) AS float8) AS seconds
       FROM (SELECT DISTINCT * FROM unnest(CAST(:projects AS int[]), CAST(:testbeds AS int[]), CAST(:suites AS text[]))
               AS u (project_id, testbed_id, suite)) AS k"""
)
_ARMS = text(
    """SELECT x.session_id, x.series_id, x.base, x.head FROM session_series x
       JOIN unnest(CAST(:sessions AS text[]), CAST(:series AS int[])) AS k (session_id, series_id)
         ON k.session_id = x.session_id AND k.series_id = x.series_id"""
)
_DECISIVE = text("SELECT state, decision, reason FROM session WHERE id = :session")


def run_of(c: Connection, run_id: str) -> RowMapping | None:
    return c.execute(_RUN, {"run": run_id}).mappings().one_or_none()


def measured(c: Connection, run_id: str, series_id: int) -> tuple[float, ...] | None:
    """Process values of the series in this run; None: it has none."""
    row = c.execute(_MEASURED, {"run": run_id, "series": series_id}).one_or_none()
    return None if row is None else tuple(row.processes)


Place = tuple[int, int, str]
"""Project, testbed, suite: what runs of one kind have in common."""


def typical_durations_s(c: Connection, places: Iterable[Place]) -> dict[Place, float]:
    """How long the newest runs of a suite took; nothing where there is none."""
    projects, testbeds, suites = map(list, zip(*places, strict=True)) if (places := list(places)) else ([], [], [])
    rows = c.execute(_DURATIONS, {"projects": projects, "testbeds": testbeds, "suites": suites})
    return {(row.project_id, row.testbed_id, row.suite): row.seconds for row in rows if row.seconds is not None}


def session_of(c: Connection, session_id: str) -> RowMapping | None:
    return c.execute(_DECISIVE, {"session": session_id}).mappings().one_or_none()


def arms_of(c: Connection, session_id: str, series_id: int) -> tuple[list[float], list[float]] | None:
    return arms_of_all(c, [(session_id, series_id)]).get((session_id, series_id))


def arms_of_all(
    c: Connection, asked: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[list[float], list[float]]]:
    """The processes of base and head that each session measured of a series."""
    sessions, series = map(list, zip(*asked, strict=True)) if (asked := list(asked)) else ([], [])
    rows = c.execute(_ARMS, {"sessions": sessions, "series": series})
    return {(row.session_id, row.series_id): (list(row.base), list(row.head)) for row in rows}


def cancel_steps(c: Connection, bisection_id: str, reason: str, now: datetime) -> Iterable[RowMapping]:
    """End the open steps; returns them as they were."""
    ended = [step for step in steps_of(c, bisection_id) if step["state"] in ("waiting", "running")]
    for step in ended:
        change_step(c, bisection_id, step["number"], state="skipped", reason=reason, finished_at=now)
    return ended
