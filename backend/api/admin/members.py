"""Members: who has which role, in a project or in all of them."""

from typing import Annotated, Any

from fastapi import Path, Response

from backend.api import shapes
from backend.api.bodies import MemberBody, Slug
from backend.api.dependencies import Admin, Now, ProjectAdmin, Reader, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.routing import Router
from backend.services.base.principal import require_name
from backend.services.people import members
from backend.services.people.members import Members

router = Router(tags=["members"])

Project = Annotated[Slug, Path()]
Who = Annotated[str, Path(max_length=200, pattern=shapes.LOGIN, description="the login that they sign in by")]


@router.get("/members", response_model=None, responses=answer(Members, "Who has a role in every project"))
def list_everywhere(c: Transaction, caller: Admin) -> Any:
    """Members of the whole service. Their role applies in every project that is not private; an administrator's in
    all.
    """
    return Json(members.members(c, caller, None))


@router.put("/members/{login}", response_model=None, responses=answer(Members, "As it is afterwards"))
def set_everywhere(login: Who, body: MemberBody, c: Transaction, now: Now, caller: Admin) -> Any:
    """Give a person a role in every project; `admin` administers the service."""
    return Json(members.set_role(c, caller, None, login, body.role, provider=body.provider, now=now))


@router.delete("/members/{login}", status_code=204, response_model=None)
def remove_everywhere(login: Who, c: Transaction, now: Now, caller: Admin) -> Response:
    """Remove that role. 409: nobody else administers the service."""
    members.remove_role(c, caller, None, login, now=now)
    return Response(status_code=204)


@router.get("/projects/{project:path}/members", response_model=None, responses=answer(Members, "Who has a role in it"))
def list_members(project: Project, c: Transaction, caller: Reader) -> Any:
    """Members of a project, then those who have a role in every project. Needs a sign-in or a token."""
    require_name(caller)
    return Json(members.members(c, caller, project))


@router.put(
    "/projects/{project:path}/members/{login}", response_model=None, responses=answer(Members, "As it is afterwards")
)
def set_role(project: Project, login: Who, body: MemberBody, c: Transaction, now: Now, caller: ProjectAdmin) -> Any:
    """Give a person a role in the project. Someone who has not signed in yet gets it when they do."""
    return Json(members.set_role(c, caller, project, login, body.role, provider=body.provider, now=now))


@router.delete("/projects/{project:path}/members/{login}", status_code=204, response_model=None)
def remove(project: Project, login: Who, c: Transaction, now: Now, caller: ProjectAdmin) -> Response:
    """Remove a person's role in the project."""
    members.remove_role(c, caller, project, login, now=now)
    return Response(status_code=204)
