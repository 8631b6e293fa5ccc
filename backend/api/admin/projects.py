"""Projects: read by everyone who may read, registered and changed by administrators."""

from typing import Annotated, Any

from fastapi import Path, Query, Request

from backend.api.bodies import ProjectBody, Slug
from backend.api.dependencies import Config, Now, ProjectAdmin, Reader, Transaction, UnconfinedAdmin, in_transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.shapes import PLAIN
from backend.routing import Router
from backend.services.base import projects
from backend.services.base.projects import Saved
from backend.services.people import saved_projects
from backend.services.repository import removal
from backend.services.repository.removal import Removed
from backend.store.base.projects import ProjectRow

router = Router(tags=["projects"])


@router.post(
    "/projects",
    response_model=None,
    responses={**answer(Saved, "Changed"), **answer(Saved, "Made", status=201)},
)
def save(body: ProjectBody, c: Transaction, now: Now, caller: UnconfinedAdmin) -> Any:
    """Register a project, or change the given fields of one. Its repository is read immediately, in the background."""
    saved = saved_projects.save(c, caller, body.project, now=now, **body.change())
    return Json(saved, status_code=201 if saved.created else 200)


@router.get(
    "/projects/{project:path}", response_model=None, responses=answer(ProjectRow, "The project with its settings")
)
def get(project: Annotated[Slug, Path()], c: Transaction, _: Reader) -> Any:
    """A project: its repository, the policy in its tidemark.toml, and its settings."""
    return Json(projects.find_project(c, project))


@router.delete(
    "/projects/{project:path}", response_model=None, responses=answer(Removed, "What went with it, or would go")
)
def remove(
    project: Annotated[Slug, Path()],
    request: Request,
    caller: ProjectAdmin,
    config: Config,
    now: Now,
    confirm: Annotated[str | None, Query(max_length=200, pattern=PLAIN, description="the name once more")] = None,
    dry_run: Annotated[bool, Query(description="only count what would go")] = False,
) -> Any:
    """Remove a project with its results, tokens, members, mirror and artifacts. This cannot be undone. 409: workers
    are measuring runs of it.
    """
    with in_transaction(request) as c:
        if dry_run:
            return Json(removal.preview(c, caller, project))
        removed, files = removal.remove(c, caller, project, confirm=confirm, config=config, now=now)
    removal.remove_files(files)
    return Json(removed)
