"""Signing in and out: `/sign-in` says how one signs in. It is there for everybody."""

from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base import access
from frontend.frame import VisitingOneself, bare_frame
from frontend.links import Here
from frontend.render import html_response, render

router = Router(include_in_schema=False)


@router.post("/leave")
def sign_out(visit: VisitingOneself, csrf_token: Annotated[str, Form(max_length=200)] = "") -> Response:
    """End this browser's session."""
    visit.check_own_page(csrf_token)
    access.sign_out(visit.c, visit.request.cookies.get(access.SESSION_COOKIE) or "")
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(access.SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    return response


@router.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    """It reads nothing, and names no project: who opens it may be anybody."""
    html = render(
        "sign_in.html",
        {
            "frame": bare_frame(request),
            "page": "sign-in",
            "title": "Sign in",
            "description": "How to sign in to this Tidemark.",
            "here": Here(request.url.path, []),
            "providers": [(each.key, each.label) for each in request.app.state.providers.values()],
            "public_read": request.app.state.config.public_read,
        },
    )
    return html_response(request, html)
