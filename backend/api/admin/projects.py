"""Projects: read by anybody who may read, registered and changed by whoever may administer."""

from typing import Annotated, Any

from fastapi import APIRouter, Path

from backend.api.bodies import ProjectBody, Slug
from backend.api.dependencies import Admin, Now, Reader, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.services.base import projects
from backend.services.base.projects import Saved
from backend.store.base.projects import ProjectRow

router = APIRouter(tags=["projects"])


@router.post(
    "/projects",
    response_model=None,
    responses={**answer(Saved, "Changed"), **answer(Saved, "Made", status=201)},
)
def save(body: ProjectBody, c: Transaction, now: Now, _: Admin) -> Any:
    """Register a project, or change what is named of one. Its repository is read at once, in the background."""
    saved = projects.save_project(c, body.project, now=now, **body.change())
    return Json(saved, status_code=201 if saved.created else 200)


@router.get(
    "/projects/{project:path}", response_model=None, responses=answer(ProjectRow, "The project with its settings")
)
def get(project: Annotated[Slug, Path()], c: Transaction, _: Reader) -> Any:
    """A project: where its repository is, what its tidemark.toml says of the policy, and its settings."""
    return Json(projects.find_project(c, project))
