"""Across projects: what is watched, what waits, who works."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query

from backend.api.answers import WorkerAnswer
from backend.api.bodies import Slug, WorkerName, WorkerStateBody
from backend.api.dependencies import Admin, Config, Now, Reader, Transaction, UnconfinedReader
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.shapes import PLAIN
from backend.routing import Router
from backend.services.base.confine import check_worker, visible_projects
from backend.services.queue import dispatch
from backend.services.queue import view as queue_view
from backend.services.queue.view import Queue
from backend.services.reports import overview
from backend.services.reports.overview import ListedWorker, SilentTestbed, WorkerDetail
from backend.services.triage.views import Page
from backend.store.reports.overview import Project

router = Router(tags=["workers"])


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """`silent`: testbeds whose workers were not heard of lately."""

    items: tuple[ListedWorker, ...]
    next: str | None
    silent: tuple[SilentTestbed, ...]


@router.get("/projects", response_model=None, responses=answer(Page[Project], "Every project"))
def list_projects(c: Transaction, caller: UnconfinedReader) -> Any:
    """Projects the caller may see, with their open regressions."""
    return Json({"items": overview.list_projects(c, only=visible_projects(c, caller)), "next": None})


@router.get("/queue", response_model=None, responses=answer(Queue, "The queue"))
def queue(
    c: Transaction,
    config: Config,
    now: Now,
    _: Reader,
    project: Annotated[Slug | None, Query()] = None,
    testbed: Annotated[str | None, Query(max_length=100, pattern=PLAIN)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Any:
    """How many runs are in each state, which are in progress, and which are queued and why."""
    return Json(
        queue_view.queue(c, project=project, testbed=testbed, limit=limit, now=now, live_s=config.worker_live_s)
    )


@router.get("/workers", response_model=None, responses=answer(WorkerList, "Every worker"))
def list_workers(c: Transaction, config: Config, now: Now, _: Reader) -> Any:
    """Workers, what each is doing, and testbeds with queued runs but no worker."""
    found = overview.load_workers(c, now=now, live_s=config.worker_live_s)
    return Json(WorkerList(items=found.workers, next=None, silent=found.silent))


@router.get("/workers/{name}", response_model=None, responses=answer(WorkerDetail, "The worker"))
def get(name: WorkerName, c: Transaction, config: Config, now: Now, caller: UnconfinedReader) -> Any:
    """A worker, with its newest runs."""
    check_worker(c, caller, name)
    seen = visible_projects(c, caller)
    of = None if seen is None else {each.slug for each in overview.list_projects(c, only=seen)}
    return Json(overview.load_worker(c, name, now=now, live_s=config.worker_live_s, of=of))


@router.patch("/workers/{name}", response_model=WorkerAnswer)
def tell(name: WorkerName, body: WorkerStateBody, c: Transaction, now: Now, caller: Admin) -> Any:
    """Pause, drain or quarantine a worker, or put it back to work."""
    dispatch.request_worker_state(c, caller, name, body.state, now)
    return Json({"state": body.state})
