"""Backfills and the runs they requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, text, update

from backend.store.base.projects import project_of
from backend.store.base.spans import Spans
from backend.store.tables.sessions import backfill, backfill_run

_ROW = """SELECT x.*, p.slug AS project, p.default_branch, t.name AS testbed, b.id AS branch_id
       FROM backfill x JOIN project p ON p.id = x.project_id JOIN testbed t ON t.id = x.testbed_id
       LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch"""
_FIND = text(f"{_ROW} WHERE x.id = :id")
_LOCK = text(f"{_ROW} WHERE x.id = :id FOR UPDATE OF x SKIP LOCKED")
_LOCK_IN_TURN = text(f"{_ROW} WHERE x.id = :id FOR UPDATE OF x")
_RUNNING = text("SELECT id FROM backfill WHERE state = 'running' ORDER BY requested_at")
_LIST = text(
    f"""{_ROW} WHERE (CAST(:project AS integer) IS NULL OR x.project_id = :project)
          AND (CAST(:state AS text) IS NULL OR x.state = :state)
        ORDER BY x.requested_at DESC, x.id DESC LIMIT :limit"""
)
_RUNS = text(
    """SELECT f.position, f.run_id, f.created, f.why, r.state, r.status, r.error, k.sha
       FROM backfill_run f LEFT JOIN run r ON r.id = f.run_id LEFT JOIN commit k ON k.id = r.commit_id
       WHERE f.backfill_id = :backfill ORDER BY f.position"""
)
_COMMITS = text(
    """SELECT bc.position, k.id AS commit_id, k.sha, k.changed_paths,
         EXISTS (SELECT FROM run r WHERE r.commit_id = k.id AND r.testbed_id = :testbed AND r.suite = :suite
                   AND r.session_id IS NULL AND r.status IN ('ok', 'incomplete')) AS measured
       FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id
       WHERE bc.branch_id = :branch AND bc.position BETWEEN :first AND :last ORDER BY bc.position"""
)
_LEVELS = text(
    """SELECT s.id, s.direction, s.exact, CAST(s.profile ->> 'noise' AS double precision) AS noise,
         array_agg(j.position ORDER BY j.position) AS positions, array_agg(j.value ORDER BY j.position) AS values
       FROM series s JOIN judgement j ON j.series_id = s.id AND j.superseded_at IS NULL AND j.branch_id IS NULL
       WHERE s.project_id = :project AND s.testbed_id = :testbed AND s.suite = :suite AND s.role = 'gate'
         AND j.position BETWEEN :first AND :last AND j.measured_at >= :since AND j.measured_at < :until
         AND j.value > 0
       GROUP BY s.id, s.project_id ORDER BY s.id"""
)


def insert_backfill(c: Connection, values: Mapping[str, Any]) -> None:
    c.execute(insert(backfill).values(**values))


def end_backfill(c: Connection, backfill_id: str, state: str, reason: str, now: datetime) -> None:
    c.execute(update(backfill).where(backfill.c.id == backfill_id).values(state=state, reason=reason, finished_at=now))


def want_no_more(c: Connection, backfill_id: str, runs: int) -> None:
    """There are no further commits to measure: everything has been requested."""
    c.execute(update(backfill).where(backfill.c.id == backfill_id).values(runs_wanted=runs))


def find_backfill(c: Connection, backfill_id: str) -> RowMapping | None:
    return c.execute(_FIND, {"id": backfill_id}).mappings().one_or_none()


def lock_backfill(c: Connection, backfill_id: str, *, wait: bool = False) -> RowMapping | None:
    """Also None if another process is advancing it, unless the caller waits for that."""
    return c.execute(_LOCK_IN_TURN if wait else _LOCK, {"id": backfill_id}).mappings().one_or_none()


def running(c: Connection) -> list[str]:
    return list(c.execute(_RUNNING).scalars())


def list_backfills(c: Connection, *, project_id: int | None, state: str | None, limit: int) -> Sequence[RowMapping]:
    return c.execute(_LIST, {"project": project_id, "state": state, "limit": limit}).mappings().all()


def add_run(c: Connection, backfill_id: str, position: int, run_id: str, *, created: bool, why: str) -> None:
    values = {"position": position, "run_id": run_id, "created": created, "why": why}
    c.execute(
        insert(backfill_run).values(backfill_id=backfill_id, project_id=project_of(backfill, backfill_id), **values)
    )


def runs_of(c: Connection, backfill_id: str) -> Sequence[RowMapping]:
    return c.execute(_RUNS, {"backfill": backfill_id}).mappings().all()


def commits_in(
    c: Connection, branch_id: int, first: int, last: int, *, testbed_id: int, suite: str
) -> Sequence[RowMapping]:
    """The commits of a range, and whether the suite has measured each on the testbed."""
    values = {"branch": branch_id, "first": first, "last": last, "testbed": testbed_id, "suite": suite}
    return c.execute(_COMMITS, values).mappings().all()


def levels(c: Connection, project_id: int, testbed_id: int, suite: str, first: int, last: int) -> Sequence[RowMapping]:
    """Of each gate series of the suite, its points in the range."""
    values = {"project": project_id, "testbed": testbed_id, "suite": suite, "first": first, "last": last}
    period = Spans.of_project(c, project_id).between(first, last)
    return c.execute(_LEVELS, {**values, **period._asdict()}).mappings().all()
