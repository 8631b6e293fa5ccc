"""The worker's routes: hello, lease, heartbeat, events, hand back."""

from typing import Any

from backend.api.answers import EventsAnswer, HeartbeatAnswer, NextAnswer, StateAnswer, WelcomeAnswer
from backend.api.bodies import (
    EventsBody,
    HeartbeatBody,
    LeaseBody,
    NextBody,
    ReleaseBody,
    RunId,
    WorkerBody,
    WorkerName,
)
from backend.api.dependencies import Config, Now, Transaction, UnconfinedWorker, WorkerCaller
from backend.api.responses import Json
from backend.routing import Router
from backend.services.base.confine import confine
from backend.services.queue import dispatch
from backend.services.queue import events as run_events
from backend.services.queue.dispatch import Lease
from backend.services.queue.publishing import queue_name

router = Router(tags=["worker"])


@router.post("/workers", response_model=WelcomeAnswer)
def say_hello(body: WorkerBody, c: Transaction, config: Config, now: Now, caller: UnconfinedWorker) -> Any:
    """Register a worker, or report that it is alive (every 15 s). 426: its version does not match the service's."""
    dispatch.check_version(body.hello(), config)
    # A token of one project must not take runs of another from whoever works on them: there, leases run out instead.
    starting = body.starting and caller.project_id is None
    hello = body.hello()
    state = dispatch.say_hello(
        c,
        hello,
        now,
        starting=starting,
        project_id=caller.project_id,
        token_id=caller.worker_token_id,
        max_attempts=config.max_attempts,
    )
    return Json({"state": state, "queue": queue_name(hello.testbed, caller.project_id)})


@router.post("/workers/{name}/next", response_model=NextAnswer)
def next_of_commit(name: WorkerName, body: NextBody, c: Transaction, now: Now, caller: UnconfinedWorker) -> Any:
    """Another suite of the commit this worker has just measured, if it may run next: the worker still has the
    checkout.
    """
    confine(c, caller, [("run_id", body.after)])
    return Json({"run_id": dispatch.next_of_commit(c, name, body.after, now)})


@router.post("/runs/{run_id}/lease", response_model=Lease)
def lease(run_id: RunId, body: LeaseBody, c: Transaction, config: Config, now: Now, caller: WorkerCaller) -> Any:
    """Lease a run. 409: another worker has it, or it is not for this worker. 410: nothing is left to do."""
    return Json(dispatch.lease_run(c, run_id, body.hello(), config, caller, now))


@router.post("/runs/{run_id}/heartbeat", response_model=HeartbeatAnswer)
def heartbeat(run_id: RunId, body: HeartbeatBody, c: Transaction, config: Config, now: Now, _: WorkerCaller) -> Any:
    """Keep the lease of a run. 409: the lease is lost, stop."""
    return Json({"cancel": dispatch.heartbeat(c, run_id, body.lease, config, now)})


@router.post("/runs/{run_id}/events", response_model=EventsAnswer)
def tell(run_id: RunId, body: EventsBody, c: Transaction, _: WorkerCaller) -> Any:
    """Steps, progress and log lines of a run while it is executed."""
    return Json({"stored": run_events.record_events(c, run_id, body.lease, [event.event() for event in body.events])})


@router.post("/runs/{run_id}/release", response_model=StateAnswer)
def release(run_id: RunId, body: ReleaseBody, c: Transaction, config: Config, now: Now, _: WorkerCaller) -> Any:
    """Give a run back unfinished; another worker will get it."""
    state = dispatch.release_run(c, run_id, body.lease, body.reason, now, lost=body.lost, config=config)
    return Json({"run_id": run_id, "state": state})
