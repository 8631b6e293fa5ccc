"""Pull requests, and the approval that lets a fork's commit onto the workers."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query

from backend.api.bodies import ApprovalBody, Slug
from backend.api.dependencies import Now, Reader, Transaction, UnconfinedApprover
from backend.api.described import answer
from backend.api.responses import Json
from backend.routing import Router
from backend.services.github import outbox as github_outbox
from backend.services.github import pull_requests
from backend.store.github.outbox import OutboxRow
from backend.store.github.pull_requests import PullRequestRow

router = Router(tags=["pull requests"])

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get("/pull-requests", response_model=None, responses=answer(tuple[PullRequestRow, ...], "The newest first"))
def list_pull_requests(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug, Query()],
    state: Literal["open", "closed", "merged"] | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Any:
    """Pull requests of a project, as GitHub reported them."""
    return Json(pull_requests.list_pull_requests(c, project, state, limit))


@router.get("/github/outbox", response_model=None, responses=answer(tuple[OutboxRow, ...], "The newest first"))
def outbox(
    c: Transaction, _: Reader, project: Annotated[Slug, Query()], limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> Any:
    """Messages to GitHub about a project: waiting, sent, or given up, and why."""
    return Json(github_outbox.outbox(c, project, limit))


@router.post(
    "/pull-requests/{number}/approve",
    response_model=None,
    responses=answer(PullRequestRow, "Its runs are requested in a moment"),
)
def approve(number: Number, body: ApprovalBody, c: Transaction, now: Now, caller: UnconfinedApprover) -> Any:
    """Approve exactly this commit of a fork to run on the workers. 409: the pull request has a newer commit."""
    return Json(pull_requests.approve(c, body.project, number, body.commit, caller, now))
