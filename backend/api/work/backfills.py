"""Backfills and schedules: requested, watched, cancelled; and scheduled measurements."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from backend.api.bodies import Name, RequestBody, Slug
from backend.api.dependencies import Config, Now, Reader, Submitter, Transaction, UnconfinedSubmitter
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.work.sessions import CommitName, Ulid
from backend.routing import Router
from backend.services.base.scope import find_project
from backend.services.plans import backfill, schedule
from backend.services.plans.backfill import BackfillView, BackfillWish
from backend.services.plans.schedule import ScheduleView
from backend.services.triage.views import Page

router = Router(tags=["backfills"])


class BackfillBody(RequestBody):
    project: Slug
    suite: Name
    testbed: Name | None = Field(default=None, description="default: the first of the suite's")
    since: CommitName | None = Field(default=None, description="the oldest commit; default: the first of the branch")
    until: CommitName | None = Field(default=None, description="the newest commit; default: the head")
    runs: int | None = Field(default=None, ge=1, le=backfill.MOST_RUNS, description="at most so many commits")
    declared_at: CommitName | None = Field(
        default=None, description="the commit whose tidemark.toml declares the suite; default: the head"
    )


@router.post(
    "/backfills", response_model=None, status_code=202, responses=answer(BackfillView, "Requested", status=202)
)
def request(body: BackfillBody, c: Transaction, config: Config, now: Now, caller: UnconfinedSubmitter) -> Any:
    """Measure a suite on past commits when nothing more urgent is queued: evenly spread at first, then finer where
    something changed. A suite that old commits do not declare is used as the head declares it.
    """
    wish = BackfillWish(**body.model_dump())
    return Json(backfill.request_backfill(c, wish, config, caller, now), status_code=202)


@router.get("/backfills", response_model=None, responses=answer(Page[BackfillView], "The newest first"))
def list_backfills(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug | None, Query()] = None,
    state: Literal["running", "done", "cancelled"] | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Any:
    """Backfills, and the progress of each."""
    project_id = None if project is None else find_project(c, project).id
    found = backfill.list_backfills(c, project_id=project_id, state=state, limit=limit)
    return Json({"items": found, "next": None})


@router.get("/backfills/{backfill_id}", response_model=None, responses=answer(BackfillView, "The backfill"))
def get(backfill_id: Ulid, c: Transaction, _: Reader) -> Any:
    """A backfill: its progress, and every run it requested."""
    return Json(backfill.backfill_view(c, backfill_id))


@router.post("/backfills/{backfill_id}/cancel", response_model=None, responses=answer(BackfillView, "Cancelled"))
def cancel(backfill_id: Ulid, c: Transaction, now: Now, caller: Submitter) -> Any:
    """Stop a backfill: queued runs are cancelled, a run in progress may finish."""
    return Json(backfill.cancel_backfill(c, backfill_id, caller, now))


@router.get("/schedules", response_model=None, responses=answer(Page[ScheduleView], "By project and name"))
def list_schedules(c: Transaction, _: Reader, project: Annotated[Slug | None, Query()] = None) -> Any:
    """Schedules, as the newest commit of each project declares them, with the next and the last time of each."""
    found = schedule.list_schedules(c, None if project is None else find_project(c, project).id)
    return Json({"items": found, "next": None})
