"""Projects: registered and changed by whoever may administer."""

from typing import Any

from fastapi import APIRouter

from backend.api.bodies import ProjectBody
from backend.api.dependencies import Admin, Now, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.services import projects
from backend.services.projects import Saved

router = APIRouter(tags=["projects"])


@router.post(
    "/projects",
    response_model=None,
    responses={**answer(Saved, "Changed"), **answer(Saved, "Made", status=201)},
)
def save(body: ProjectBody, c: Transaction, now: Now, _: Admin) -> Any:
    """Register a project, or change one. Its repository is read at once, in the background."""
    saved = projects.save_project(
        c,
        body.project,
        repository_url=body.repository_url,
        default_branch=body.default_branch,
        trusted=body.trusted,
        now=now,
    )
    return Json(saved, status_code=201 if saved.created else 200)
