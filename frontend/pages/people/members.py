"""Members: who has which role in a project, and in all of them."""

from typing import Annotated

from fastapi import Form
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base.principal import MemberRole, Scope, require_name
from backend.services.people import members
from frontend.frame import Visit, Visiting
from frontend.links import link

router = Router(include_in_schema=False)

ROLES = (
    (MemberRole.VIEWER, "sees the project"),
    (MemberRole.SUBMITTER, "also delivers results and requests measurements"),
    (MemberRole.TRIAGER, "also decides about regressions"),
    (MemberRole.ADMIN, "also changes policy, members and tokens, and approves forks"),
)


@router.get("/settings/members")
def members_page(visit: Visiting) -> Response:
    """Who has a role here; to be changed by who administers the project."""
    require_name(visit.principal)
    project = visit.project()
    found = members.members(visit.c, visit.principal, project)
    return visit.page(
        "members.html",
        page="members",
        title=f"Members of {project}" if project else "Members",
        description="Who may do what in this project.",
        project=project,
        path="/settings/members",
        here_members=[it for it in found.items if it.project],
        everywhere=[it for it in found.items if not it.project],
        roles=ROLES,
        may_all=visit.may(Scope.ADMIN, None),
        providers=visit.providers,
    )


@router.post("/settings/members")
def set_role(
    visit: Visiting,
    login: Annotated[str, Form(max_length=200)],
    role: Annotated[str, Form(max_length=20)],
    project: Annotated[str, Form(max_length=200)] = "",
    reach: Annotated[str, Form(max_length=10)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Give a person a role: in the project or (`reach`: all) in every one."""
    visit.check_own_page(csrf_token)
    of = _of(project, reach)
    members.set_role(visit.c, visit.principal, of, login, role, provider=None, now=visit.now)
    return _back(visit, project)


@router.post("/settings/members/remove")
def remove_role(
    visit: Visiting,
    login: Annotated[str, Form(max_length=200)],
    project: Annotated[str, Form(max_length=200)] = "",
    reach: Annotated[str, Form(max_length=10)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Take a person's role back."""
    visit.check_own_page(csrf_token)
    members.remove_role(visit.c, visit.principal, _of(project, reach), login, now=visit.now)
    return _back(visit, project)


def _of(project: str, reach: str) -> str | None:
    return None if reach == "all" or not project else project


def _back(visit: Visit, project: str) -> Response:
    return RedirectResponse(link("/settings/members", project=project or None), status_code=303)
