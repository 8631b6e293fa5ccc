"""The queue: a run row is its own queue entry. Requests, leases, expiry, and what may be published next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, literal, null, or_, select, text, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.base import wire
from backend.store.queue.workers import SeenWorker
from backend.store.tables.core import branch, branch_commit, commit, run, testbed, worker

ACTIVE = ("queued", "leased", "running")
HELD = ("leased", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """The key of a queued run. Two requests with the same key ask for the same work."""

    commit_id: int
    suite: str
    testbed_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRun:
    id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    id: str
    project_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseableRun:
    """A run, with all that a worker must know to execute it."""

    id: str
    state: str
    attempt: int
    suite: str
    spec: dict[str, Any]
    branch: str | None
    pull_request: int | None
    kind: str
    testbed: str
    testbed_id: int
    project: str
    project_id: int
    trusted: bool
    repository_url: str | None
    commit: str
    parents: tuple[str, ...]
    requested_at: datetime
    avoid_worker: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A run in a worker's hands."""

    id: str
    state: str
    attempt: int
    attempts: list[dict[str, Any]]
    project_id: int
    suite: str
    testbed: str
    commit: str
    worker: str | None
    cancel_requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedLoad:
    """How many messages the workers of a testbed can use: those that serve every project, or only `project_id`.
    `isolated`: idle workers that may run untrusted projects; `unclaimed`: messages not taken yet."""

    testbed_id: int
    name: str
    project_id: int | None
    idle: int
    isolated: int
    unclaimed: int


# --- names -----------------------------------------------------------------------------------------------------------


def testbed_id(c: Connection, name: str) -> int:
    """The testbed of this name, made on first sight."""
    found = c.execute(select(testbed.c.id).where(testbed.c.name == name)).scalar_one_or_none()
    if found is not None:
        return int(found)
    statement = upsert(testbed).values(name=name)
    statement = statement.on_conflict_do_update(index_elements=["name"], set_={"name": name})
    return int(c.execute(statement.returning(testbed.c.id)).scalar_one())


# --- requests --------------------------------------------------------------------------------------------------------


def runs_by_key(c: Connection, project_id: int, commit_ids: Iterable[int]) -> dict[RunKey, KeyedRun]:
    """The newest run of each key that is waiting, running or done."""
    statement = (
        select(run.c.id, run.c.state, run.c.commit_id, run.c.suite, run.c.testbed_id)
        .where(run.c.project_id == project_id, run.c.commit_id.in_(list(commit_ids)), run.c.session_id.is_(None))
        .where(run.c.state.in_((*ACTIVE, "done")))
        .order_by(run.c.requested_at, run.c.id)
    )
    return {
        RunKey(commit_id=row.commit_id, suite=row.suite, testbed_id=row.testbed_id): KeyedRun(
            id=row.id, state=row.state
        )
        for row in c.execute(statement)
    }


def positions(c: Connection, project_id: int, branch_name: str, commit_ids: Iterable[int]) -> dict[int, int]:
    """Where commits stand on a branch; those that are not on it are left out."""
    statement = (
        select(branch_commit.c.commit_id, branch_commit.c.position)
        .join(branch, branch.c.id == branch_commit.c.branch_id)
        .where(branch.c.project_id == project_id, branch.c.name == branch_name)
        .where(branch_commit.c.commit_id.in_(list(commit_ids)))
    )
    return {row.commit_id: row.position for row in c.execute(statement)}


def insert_runs(c: Connection, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        c.execute(insert(run), rows)


def make_more_urgent(c: Connection, run_ids: Sequence[str], *, kind: str, priority: int) -> None:
    if run_ids:
        statement = update(run).where(run.c.id.in_(run_ids), run.c.state == "queued", run.c.priority < priority)
        c.execute(statement.values(kind=kind, priority=priority))


# What a crash of the server may take back: a lease, a heartbeat or an offer that is lost is given again a moment later.
# So nobody waits for the disk, and commits that notify listeners, which go one by one, do not queue up behind it.
UNHURRIED: wire.Statement = ("SET LOCAL synchronous_commit TO off", {})


# --- leases ----------------------------------------------------------------------------------------------------------


_LOCK_TO_LEASE = """
SELECT r.id, r.state, r.attempt, r.suite, r.spec, r.branch_name AS branch, r.pull_request, r.kind, r.testbed_id,
  t.name AS testbed, p.slug AS project, p.id AS project_id, p.trusted, p.repository_url, k.sha AS commit, k.parents,
  r.requested_at, a.name AS avoid_worker
FROM run r
LEFT JOIN worker a ON a.id = r.avoid_worker_id
JOIN project p ON p.id = r.project_id JOIN testbed t ON t.id = r.testbed_id JOIN commit k ON k.id = r.commit_id
WHERE r.id = %(run)s
FOR UPDATE OF r SKIP LOCKED
"""


def lock_run_to_lease(
    c: Connection, run_id: str, worker: wire.Statement
) -> tuple[LeaseableRun | None, SeenWorker | None]:
    """The run, locked, and the worker that requests it (`worker`: its `worker_statement`), in one round trip.
    No run: it does not exist, or another worker is leasing it at this moment. No worker: its name belongs to another
    token."""
    _, rows, said = wire.send(c, UNHURRIED, (_LOCK_TO_LEASE, {"run": run_id}), worker)
    ready = LeaseableRun(**{**rows[0]._asdict(), "parents": tuple(rows[0].parents)}) if rows else None
    return ready, SeenWorker(**said[0]._asdict()) if said else None


def has_another_worker(c: Connection, testbed_name: str, name: str, *, project_id: int, alive_since: datetime) -> bool:
    """Whether the testbed has a worker beside this one that takes runs of the project."""
    statement = (
        select(worker.c.id)
        .join(testbed, testbed.c.id == worker.c.testbed_id)
        .where(testbed.c.name == testbed_name, worker.c.name != name)
        .where(worker.c.wanted_state == "ok", worker.c.last_seen_at >= alive_since)
        .where(or_(worker.c.project_id.is_(None), worker.c.project_id == project_id))
    )
    return c.execute(statement.limit(1)).first() is not None


def state_of(c: Connection, run_id: str) -> str | None:
    return c.execute(select(run.c.state).where(run.c.id == run_id)).scalar_one_or_none()


def find_run(c: Connection, run_id: str) -> FoundRun | None:
    row = c.execute(select(run.c.id, run.c.project_id, run.c.state).where(run.c.id == run_id)).one_or_none()
    return None if row is None else FoundRun(**row._mapping)


_SET_LEASED = """
UPDATE run SET state = 'leased', worker_id = %(worker)s, lease_hash = %(lease_hash)s, leased_at = %(now)s,
  lease_expires_at = %(expires_at)s, progress = NULL
WHERE id = %(run)s
"""


def leased_statement(
    run_id: str, *, worker_id: int, lease_hash: bytes, now: datetime, expires_at: datetime
) -> wire.Statement:
    values = {"run": run_id, "worker": worker_id, "lease_hash": lease_hash, "now": now, "expires_at": expires_at}
    return _SET_LEASED, values


def _held(*conditions: ColumnElement[bool]) -> Any:
    return (
        select(
            run.c.id,
            run.c.state,
            run.c.attempt,
            run.c.attempts,
            run.c.project_id,
            run.c.suite,
            testbed.c.name.label("testbed"),
            commit.c.sha.label("commit"),
            worker.c.name.label("worker"),
            run.c.cancel_requested,
        )
        .select_from(
            run.join(testbed, testbed.c.id == run.c.testbed_id)
            .join(commit, commit.c.id == run.c.commit_id)
            .outerjoin(worker, worker.c.id == run.c.worker_id)
        )
        .where(run.c.state.in_(HELD), *conditions)
        .with_for_update(of=run)
    )


def held_run(c: Connection, run_id: str, lease_hash: bytes) -> HeldRun | None:
    """The run that this lease holds, locked."""
    row = c.execute(_held(run.c.id == run_id, run.c.lease_hash == lease_hash)).one_or_none()
    return None if row is None else HeldRun(**row._mapping)


# No lease is longer than `longest`; one that seems to be was given before the clock was set back.
_SHORTEN = """
UPDATE run SET lease_expires_at = %(longest)s
WHERE state IN ('leased', 'running') AND lease_expires_at > %(longest)s::timestamptz + interval '5 seconds'
"""
_EXPIRED = "SELECT id FROM run WHERE state IN ('leased', 'running') AND lease_expires_at < %(now)s"


def expired_runs(c: Connection, now: datetime, longest: datetime) -> list[HeldRun]:
    """Runs whose worker has been silent for too long, locked. No lease lasts longer than `longest`."""
    _, found = wire.send(c, (_SHORTEN, {"longest": longest}), (_EXPIRED, {"now": now}))
    if not found:
        return []
    statement = _held(run.c.id.in_([row.id for row in found]), run.c.lease_expires_at < now)
    locked = statement.with_for_update(of=run, skip_locked=True).order_by(run.c.id)
    return [HeldRun(**row._mapping) for row in c.execute(locked)]


def runs_of_worker(c: Connection, worker_name: str) -> list[HeldRun]:
    return [HeldRun(**row._mapping) for row in c.execute(_held(worker.c.name == worker_name).order_by(run.c.id))]


def extend_lease(c: Connection, run_id: str, expires_at: datetime) -> None:
    sql = "UPDATE run SET lease_expires_at = %(at)s WHERE id = %(run)s"
    wire.send(c, UNHURRIED, (sql, {"at": expires_at, "run": run_id}))


def set_running(c: Connection, run_id: str) -> None:
    c.execute(update(run).where(run.c.id == run_id, run.c.state == "leased").values(state="running"))


def merge_progress(c: Connection, run_id: str, progress: dict[str, Any]) -> None:
    merged = func.coalesce(run.c.progress, literal({}, JSONB)).op("||")(literal(progress, JSONB))
    c.execute(update(run).where(run.c.id == run_id).values(progress=merged))


NO_LEASE: dict[str, Any] = {
    "lease_hash": None,
    "lease_expires_at": None,
    "leased_at": None,
    "progress": null(),  # None would be the JSON value null
    "published_at": None,
}


def requeue(c: Connection, run_id: str, *, attempt: int, attempts: list[dict[str, Any]]) -> None:
    values = {**NO_LEASE, "state": "queued", "worker_id": None, "attempt": attempt, "attempts": attempts}
    c.execute(update(run).where(run.c.id == run_id).values(values))


def end_run(
    c: Connection,
    run_id: str,
    *,
    state: str,
    status: str | None,
    error: str | None,
    attempts: list[dict[str, Any]],
    now: datetime,
) -> None:
    """The run ends without a result."""
    values = {**NO_LEASE, "state": state, "status": status, "error": error, "attempts": attempts, "finished_at": now}
    c.execute(update(run).where(run.c.id == run_id).values(values))


def cancel_queued(c: Connection, run_ids: Sequence[str], state: str, now: datetime, reason: str) -> list[str]:
    """End those of the runs that still wait. Returns their ids."""
    statement = (
        update(run)
        .where(run.c.id.in_(run_ids), run.c.state == "queued")
        .values(state=state, error=reason, finished_at=now)
    )
    return list(c.execute(statement.returning(run.c.id)).scalars())


def request_cancel(c: Connection, run_id: str) -> bool:
    statement = update(run).where(run.c.id == run_id, run.c.state.in_(HELD)).values(cancel_requested=True)
    return c.execute(statement).rowcount == 1


def queued_runs_off_branches(c: Connection, project_id: int) -> list[str]:
    """Queued runs whose commit no branch of the project has any more (it was force-pushed away)."""
    on_a_branch = (
        select(branch_commit.c.commit_id)
        .join(branch, branch.c.id == branch_commit.c.branch_id)
        .where(branch_commit.c.commit_id == run.c.commit_id, branch.c.deleted_at.is_(None))
    )
    statement = select(run.c.id).where(
        run.c.project_id == project_id,
        run.c.state == "queued",
        run.c.kind == "main",
        ~on_a_branch.exists(),
    )
    return list(c.execute(statement).scalars())


# --- publishing ------------------------------------------------------------------------------------------------------


_LOADS = text(
    """SELECT t.id AS testbed_id, t.name, w.project_id, w.idle, w.isolated, (
         SELECT count(*) FROM run r
         WHERE r.testbed_id = t.id AND r.state = 'queued' AND r.published_at >= :published_since
           AND (w.project_id IS NULL OR r.project_id = w.project_id)) AS unclaimed
       FROM testbed t
       JOIN (SELECT testbed_id, project_id, count(*) FILTER (WHERE NOT busy) AS idle,
                    count(*) FILTER (WHERE NOT busy AND protection <> 'none') AS isolated
             FROM (SELECT w.testbed_id, w.project_id, w.protection, EXISTS (
                     SELECT FROM run r WHERE r.worker_id = w.id AND r.state IN ('leased', 'running')) AS busy
                   FROM worker w LEFT JOIN project p ON p.id = w.project_id
                   WHERE w.last_seen_at >= :alive_since AND w.wanted_state = 'ok'
                     AND (p.id IS NULL OR p.trusted OR w.protection <> 'none')) AS alive
             GROUP BY testbed_id, project_id) AS w ON w.testbed_id = t.id
       WHERE EXISTS (SELECT FROM run r WHERE r.testbed_id = t.id AND r.state = 'queued')
       ORDER BY t.id, w.project_id"""
)


def testbed_loads(c: Connection, *, alive_since: datetime, published_since: datetime) -> list[TestbedLoad]:
    """Testbeds with queued runs: the workers that serve every project, and those of each project."""
    rows = c.execute(_LOADS, {"alive_since": alive_since, "published_since": published_since})
    return [TestbedLoad(**row._mapping) for row in rows]
