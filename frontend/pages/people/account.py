"""You: who is signed in here, with which roles, and in which browsers."""

from typing import Annotated

from fastapi import Form, Path
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base import access
from backend.services.base.principal import Scope
from backend.services.people import members, sign_ins
from frontend.frame import Visit, VisitingOneself

router = Router(include_in_schema=False)


@router.get("/account")
def account_page(visit: VisitingOneself) -> Response:
    administers = visit.may(Scope.ADMIN, None)
    mine = sign_ins.listed(visit.c, visit.principal, visit.now, mine=True)
    everybody = sign_ins.listed(visit.c, visit.principal, visit.now) if administers else []
    own = {it.id for it in mine}
    return visit.page(
        "account.html",
        page="account",
        title=f"Signed in as {visit.principal.name}",
        description="Your roles, and the browsers in which you are signed in.",
        project=visit.project(),
        path="/account",
        person=visit.principal,
        roles=members.roles_of(visit.principal, {each.id: each.slug for each in visit.projects}),
        mine=mine,
        others=[it for it in everybody if it.id not in own],
        this=access.sign_in_id(_session(visit)),
        administers=administers,
    )


@router.post("/account/browsers/{sign_in_id}/end")
def end_browser(
    visit: VisitingOneself,
    sign_in_id: Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Sign that browser out."""
    visit.check_own_page(csrf_token)
    sign_ins.end(visit.c, visit.principal, sign_in_id, visit.now)
    return RedirectResponse("/account", status_code=303)


@router.post("/account/sign-out-everywhere")
def sign_out_everywhere(
    visit: VisitingOneself,
    reach: Annotated[str, Form(max_length=10)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Sign out every browser of one's own, or (`reach`: all) everybody's."""
    visit.check_own_page(csrf_token)
    sign_ins.end_all(visit.c, visit.principal, visit.now, mine=reach != "all")
    return RedirectResponse("/sign-in", status_code=303)


def _session(visit: Visit) -> str:
    return visit.request.cookies.get(access.SESSION_COOKIE) or ""
