"""Signing in and out: `/sign-in` says how one signs in."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse, Response

from backend.services.base import access
from backend.services.base.access import Via
from frontend.frame import Visiting

router = APIRouter(include_in_schema=False)


@router.post("/leave")
def sign_out(visit: Visiting, csrf_token: Annotated[str, Form(max_length=200)] = "") -> Response:
    """End this browser's session."""
    visit.check_action(csrf_token)
    access.sign_out(visit.c, visit.request.cookies.get(access.SESSION_COOKIE) or "")
    response = RedirectResponse("/", status_code=303)
    response.delete_cookie(access.SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    return response


@router.get("/sign-in")
def sign_in_page(visit: Visiting) -> Response:
    return visit.page(
        "sign_in.html",
        page="sign-in",
        title="Sign in",
        description="How to sign in to this Tidemark.",
        project=visit.project(),
        already=visit.principal.via is Via.SESSION,
    )
