"""Giving runs to workers: leases with heartbeats, expiry.

Postgres is the source of truth: a run is its own queue entry. What runs next is chosen in `publishing`.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from backend.services.base import live
from backend.services.base.config import MAX_ATTEMPTS, ServiceConfig
from backend.services.base.confine import require_in
from backend.services.base.errors import Conflict, Gone, NotFound, Outdated
from backend.services.base.principal import Principal, Scope
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.services.queue.scheduling import PRIORITY
from backend.store.base import live as live_store
from backend.store.base import owners, wire
from backend.store.github import outbox as github_outbox
from backend.store.queue import events as event_store
from backend.store.queue import groups as queue_groups
from backend.store.queue import queue as store
from backend.store.queue import workers as worker_store
from backend.store.queue.queue import HeldRun, LeaseableRun

AVOID_FOR = timedelta(seconds=60)
MOST_HANDED_BACK = 20  # attempts of one run, also those that cost none: a run may make its worker hand it back


class Protection(StrEnum):
    """Isolation of a commit's code on a worker."""

    NONE = "none"
    NAMESPACE = "namespace"
    USER = "user"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHello:
    """A worker's description of itself."""

    worker: str
    testbed: str
    version: str
    capabilities: Mapping[str, Any]
    protection: Protection

    @property
    def listens_where_told(self) -> bool:
        """Whether it listens on the queue that it is told; otherwise it uses that of its whole testbed."""
        return self.capabilities.get("listens_where_told") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to execute a run, as long as heartbeats arrive; and everything needed to do it."""

    run_id: str
    lease: str
    lease_s: int
    heartbeat_s: int
    attempt: int
    project: str
    trusted: bool
    repository_url: str | None
    commit: str
    parents: tuple[str, ...]
    branch: str | None
    pull_request: int | None
    suite: str
    testbed: str
    spec: Mapping[str, Any]


def cancel_run(c: Connection, run_id: str, principal: Principal, now: datetime) -> str:
    """Cancel a run: at once while it waits, at its worker's next heartbeat while it runs. Returns its state."""
    found = store.find_run(c, run_id)
    if found is None:
        raise NotFound.of("run", run_id)
    require_in(c, principal, Scope.SUBMIT, found.project_id)
    if store.cancel_queued(c, [run_id], "cancelled", now, f"cancelled by {principal.name}"):
        publish_run(c, found.project_id, run_id, "cancelled")
        return "cancelled"
    if store.request_cancel(c, run_id):
        return found.state
    raise Conflict(
        f"run {run_id} is {found.state}; only queued, leased and running runs can be cancelled", state=found.state
    )


# --- leases ----------------------------------------------------------------------------------------------------------


def say_hello(
    c: Connection,
    hello: WorkerHello,
    now: datetime,
    *,
    starting: bool = False,
    project_id: int | None = None,
    token_id: int | None = None,
    max_attempts: int = MAX_ATTEMPTS,
) -> str:
    """Register a worker or keep it alive. `starting`: it no longer holds whatever it held before; a run that
    takes its worker down with it loses an attempt each time. `project_id`: its token is limited to this project, so it
    is offered only that project's runs, if it listens where it is told to. `token_id`: the worker's name belongs to
    this token, now if not before; None may use any name.

    A worker that reports a fault (a lost GPU) is put into quarantine until a person ends it.
    Returns the state it should be in: ok, pause, drain or quarantine.
    """
    worker = worker_store.register_worker(c, _said(hello, now, project_id, token_id, starting=starting))
    if worker is None:
        raise _of_another_token(hello)
    wanted_state = worker.wanted_state
    if hello.capabilities.get("trouble") and wanted_state == "ok":
        set_worker_state(c, hello.worker, wanted_state := "quarantine")
    if starting:
        for held in store.runs_of_worker(c, hello.worker):
            _hand_back(c, held, f"worker {hello.worker} was restarted", now, lost=True, max_attempts=max_attempts)
        _publish_worker(c, hello.worker, testbed=hello.testbed)
        live_store.notify_work(c)
    return wanted_state


def set_worker_state(c: Connection, name: str, state: str) -> None:
    """Tell a worker to pause, drain, stay in quarantine or resume; it learns of it within 15 s."""
    if not worker_store.set_wanted_state(c, name, state):
        raise NotFound.of("worker", name)
    _publish_worker(c, name, state=state)
    live_store.notify_work(c)


def _publish_worker(c: Connection, name: str, **what: str) -> None:
    """Tell live pages of a worker: those of its project alone, where it has one, which may be private."""
    owner = owners.owner_of(c, "worker", name)
    live.publish(c, "worker", None if owner is None else owner.id, {"worker": name, **what})


def request_worker_state(c: Connection, by: Principal, name: str, state: str, now: datetime) -> None:
    """Set the state of a worker as an administrator asks, and audit it."""
    by.require_everywhere(Scope.ADMIN)
    set_worker_state(c, name, state)
    audit.record(c, by, Did.SET_WORKER_STATE, name, now=now, state=state)


def _of_another_token(hello: WorkerHello) -> Conflict:
    return Conflict(
        f"worker {hello.worker!r} speaks with another token than before; give this one another name "
        "(tidemark worker --name), or revoke the token that it had"
    )


def _said(
    hello: WorkerHello, now: datetime, project_id: int | None, token_id: int | None, *, starting: bool = False
) -> wire.Statement:
    seen = worker_store.DescribedWorker(
        name=hello.worker,
        testbed=hello.testbed,
        project_id=project_id if hello.listens_where_told else None,
        token_id=token_id,
        version=hello.version,
        capabilities=dict(hello.capabilities),
        protection=hello.protection.value,
    )
    return worker_store.worker_statement(seen, starting=starting, now=now)


def check_version(hello: WorkerHello, config: ServiceConfig) -> None:
    """Worker and service use one protocol if the first two numbers of their versions agree."""
    ours, theirs = (_release(version) for version in (config.version, hello.version))
    if ours and theirs and ours != theirs:
        older = "worker" if theirs < ours else "service"
        raise Outdated(
            f"worker {hello.worker} runs tidemark {hello.version}, this service {config.version}; the first two numbers"
            f" must agree: bring the {older} up to date",
            worker_version=hello.version,
            service_version=config.version,
        )


def _release(version: str) -> tuple[int, int] | None:
    """The first two numbers of a version; None of what states none."""
    parts = version.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else None


def lease_run(
    c: Connection, run_id: str, hello: WorkerHello, config: ServiceConfig, principal: Principal, now: datetime
) -> Lease:
    """Lease the run to this worker, if it is still waiting and this worker may have it."""
    check_version(hello, config)
    ready, worker = store.lock_run_to_lease(
        c, run_id, _said(hello, now, principal.project_id, principal.worker_token_id)
    )
    if worker is None:
        raise _of_another_token(hello)
    if ready is None:
        if store.state_of(c, run_id) is None:
            raise Gone(f"run {run_id} does not exist (any more)")
        raise Conflict(f"run {run_id} is being leased by another worker")
    require_in(c, principal, Scope.WORKER, ready.project_id)
    _check_may_lease(ready, hello)
    _check_may_be_this_worker(c, ready, hello, config, now)
    if worker.wanted_state != "ok":
        said = worker.wanted_state
        raise Conflict(f"worker {hello.worker} was told to {said}; it gets no runs", state=said)
    secret = secrets.token_urlsafe(32)
    told = {"state": "leased", "commit": ready.commit, "suite": ready.suite, "testbed": ready.testbed}
    wire.send(
        c,
        store.leased_statement(
            run_id,
            worker_id=worker.id,
            lease_hash=lease_hash(secret),
            now=now,
            expires_at=now + timedelta(seconds=config.lease_s),
        ),
        queue_groups.served_statement(ready.testbed_id, ready.project_id, ready.kind, now),
        live_store.event_statement("run", ready.project_id, {"run_id": run_id, **told}),
        github_outbox.want_statement(run_id),
    )
    return _lease(ready, secret, config)


def next_of_commit(c: Connection, worker: str, after: str, now: datetime) -> str | None:
    """Another suite of the commit that this worker has just measured, because the checkout already exists there.
    None if there is none, or something more urgent is waiting."""
    priorities = {kind.value: priority for kind, priority in PRIORITY.items()}
    return queue_groups.sibling(c, worker, after, priorities=priorities, now=now)


def _check_may_lease(ready: LeaseableRun, hello: WorkerHello) -> None:
    if ready.state in store.HELD:
        raise Conflict(f"run {ready.id} is {ready.state}: another worker has it", state=ready.state)
    if ready.state != "queued":
        raise Gone(f"run {ready.id} is {ready.state}; nothing is left to do", state=ready.state)
    if ready.testbed != hello.testbed:
        raise Conflict(f"run {ready.id} is for testbed {ready.testbed!r}; worker {hello.worker} is a {hello.testbed!r}")
    if not ready.trusted and hello.protection is Protection.NONE:
        raise Conflict(
            f"project {ready.project} is not marked trusted and worker {hello.worker} cannot isolate its code "
            "(protection none); start the worker where it can use another user or a container, or trust the project"
        )


def _check_may_be_this_worker(
    c: Connection, ready: LeaseableRun, hello: WorkerHello, config: ServiceConfig, now: datetime
) -> None:
    """Refuse a repeat of a doubtful result to the worker that measured it, if another is there to do it soon."""
    if ready.avoid_worker != hello.worker or now - ready.requested_at > AVOID_FOR:
        return
    alive_since = now - timedelta(seconds=config.worker_live_s)
    if store.has_another_worker(c, ready.testbed, hello.worker, project_id=ready.project_id, alive_since=alive_since):
        raise Conflict(f"run {ready.id} is for a worker other than {hello.worker}, whose result it checks")


def _lease(ready: LeaseableRun, secret: str, config: ServiceConfig) -> Lease:
    return Lease(
        run_id=ready.id,
        lease=secret,
        lease_s=config.lease_s,
        heartbeat_s=config.heartbeat_s,
        attempt=ready.attempt,
        project=ready.project,
        trusted=ready.trusted,
        repository_url=ready.repository_url,
        commit=ready.commit,
        parents=ready.parents,
        branch=ready.branch,
        pull_request=ready.pull_request,
        suite=ready.suite,
        testbed=ready.testbed,
        spec=ready.spec,
    )


def lease_hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def held_by(c: Connection, run_id: str, lease: str) -> HeldRun:
    """The run, if this lease holds it."""
    held = store.held_run(c, run_id, lease_hash(lease))
    if held is None:
        state = store.state_of(c, run_id)
        if state is None:
            raise NotFound.of("run", run_id)
        raise Conflict(f"this lease does not hold run {run_id} (any more); the run is {state}", state=state)
    return held


def heartbeat(c: Connection, run_id: str, lease: str, config: ServiceConfig, now: datetime) -> bool:
    """Keep the lease. True: the run was cancelled, so the worker should stop."""
    held = held_by(c, run_id, lease)
    store.extend_lease(c, run_id, now + timedelta(seconds=config.lease_s))
    return held.cancel_requested


def release_run(
    c: Connection,
    run_id: str,
    lease: str,
    reason: str,
    now: datetime,
    *,
    config: ServiceConfig,
    lost: bool = False,
) -> str:
    """A worker hands a run back unfinished: it is shutting down, which costs no attempt, or its machine failed.
    Returns the run's new state."""
    held = held_by(c, run_id, lease)
    said = reason.strip()[:500] or "handed back by its worker"
    return _hand_back(c, held, said, now, lost=lost, max_attempts=config.max_attempts)


def expire_leases(c: Connection, config: ServiceConfig, now: datetime) -> list[str]:
    """Take back the runs of silent workers: queued again, or failed if that happened too often."""
    expired = store.expired_runs(c, now, now + timedelta(seconds=config.lease_s))
    for held in expired:
        reason = f"worker {held.worker or '(unknown)'} was not heard of for {config.lease_s} s"
        _hand_back(c, held, reason, now, lost=True, max_attempts=config.max_attempts)
    return [held.id for held in expired]


def _hand_back(c: Connection, held: HeldRun, reason: str, now: datetime, *, lost: bool, max_attempts: int) -> str:
    attempts = [
        *held.attempts,
        {"attempt": held.attempt, "worker": held.worker, "ended_at": now.isoformat(), "reason": reason, "lost": lost},
    ]
    times_lost = sum(1 for attempt in attempts if attempt.get("lost"))
    if held.cancel_requested:
        state = "cancelled"
        store.end_run(c, held.id, state=state, status=None, error=f"cancelled; {reason}", attempts=attempts, now=now)
    elif (lost and times_lost >= max_attempts) or len(attempts) >= MOST_HANDED_BACK:
        state = "failed"
        counted = f"{times_lost} lost attempts" if lost else f"{len(attempts)} attempts"
        error = f"given up after {counted}; the last one: {reason}"
        store.end_run(c, held.id, state=state, status="failed", error=error, attempts=attempts, now=now)
    else:
        state = "queued"
        store.requeue(c, held.id, attempt=held.attempt + 1, attempts=attempts)
    event_store.insert_run_events(
        c,
        [
            {
                "run_id": held.id,
                "project_id": held.project_id,
                "attempt": held.attempt,
                "at": now,
                "kind": "state",
                "detail": {"state": state, "reason": reason},
            }
        ],
    )
    publish_run(
        c, held.project_id, held.id, state, commit=held.commit, suite=held.suite, testbed=held.testbed, reason=reason
    )
    live_store.notify_work(c)
    return state


def publish_run(c: Connection, project_id: int, run_id: str, state: str, **more: Any) -> None:
    """Notify live pages, and GitHub, that a run has changed."""
    live.publish(c, "run", project_id, {"run_id": run_id, "state": state, **more})
    github_outbox.want(c, [run_id])
