"""Bisections of a regression: requested, watched, cancelled."""

from typing import Annotated, Any

from fastapi import Query

from backend.api.bodies import RowId, Slug
from backend.api.dependencies import Config, Now, Reader, Submitter, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.work.sessions import Ulid
from backend.routing import Router
from backend.services.base.scope import find_project
from backend.services.plans import bisect, bisection_views
from backend.services.plans.bisection_views import BisectionView
from backend.services.triage.views import Page

router = Router(tags=["bisections"])


@router.post(
    "/regressions/{regression_id}/bisect",
    response_model=None,
    status_code=202,
    responses=answer(BisectionView, "Begun, or going on already", status=202),
)
def start(regression_id: RowId, c: Transaction, config: Config, now: Now, caller: Submitter) -> Any:
    """Find the first bad commit: commits between the last good and the first bad one are measured, the most
    informative first, until it is certain enough which one made the difference.
    """
    return Json(bisect.start_bisection(c, regression_id, caller.name, config, now), status_code=202)


@router.get("/bisections", response_model=None, responses=answer(Page[BisectionView], "The newest first"))
def list_bisections(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug | None, Query()] = None,
    regression: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Any:
    """Bisections: their progress and certainty, and the steps and time left."""
    project_id = None if project is None else find_project(c, project).id
    found = bisection_views.list_bisections(c, project_id=project_id, regression_id=regression, limit=limit)
    return Json({"items": found, "next": None})


@router.get("/bisections/{bisection_id}", response_model=None, responses=answer(BisectionView, "The bisection"))
def get(bisection_id: Ulid, c: Transaction, _: Reader) -> Any:
    """A bisection: its steps, and how likely each commit of the range is the first bad one."""
    return Json(bisection_views.bisection_view(c, bisection_id))


@router.post("/bisections/{bisection_id}/cancel", response_model=None, responses=answer(BisectionView, "Cancelled"))
def cancel(bisection_id: Ulid, c: Transaction, now: Now, caller: Submitter) -> Any:
    """Cancel a bisection, and the runs it requested that nothing else needs."""
    return Json(bisect.cancel_bisection(c, bisection_id, f"cancelled by {caller.name}", now))
