"""Errors as pages: what was wrong, with the value; what to do now; the id under which the log has it."""

from dataclasses import dataclass
from typing import Protocol

from fastapi import Request
from fastapi.responses import Response

from frontend.frame import bare_frame
from frontend.links import Here
from frontend.render import html_response, render, visible, way_back


class ShownProblem(Protocol):
    """An error as the service reports it."""

    @property
    def status(self) -> int: ...
    @property
    def title(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True, slots=True)
class NoSuchAddress:
    """An address whose last part cannot name anything: `/series/abc`."""

    detail: str
    title: str = "There is no such thing"
    status: int = 404


def problem_page(request: Request, problem: ShownProblem) -> Response:
    """The error as a person sees it: on the page whose form was refused, else on a separate one. It reads nothing,
    because the database may be what failed."""
    back = way_back(request, problem)
    if back is not None:
        return back
    if problem.status == 422 and problem.detail.startswith("path."):
        problem = NoSuchAddress(f"nothing is at {visible(request.url.path)[:120]!r}: a number belongs at its end")
    here = Here(request.url.path, request.query_params.multi_items())
    html = render(
        "error.html",
        {
            "frame": bare_frame(request),
            "page": "error",
            "title": problem.title,
            "description": problem.detail,
            "here": here,
            "problem": problem,
            "request_id": getattr(request.state, "request_id", None),
            "again": str(here()) if request.method == "GET" else None,
            "ways": ways_on(problem.status, here),
            "words": request.url.path.rstrip("/").rpartition("/")[2][:80],
        },
    )
    return html_response(request, html, problem.status)


def ways_on(status: int, here: Here) -> list[tuple[str, str]]:
    """Where one may go from here."""
    if status == 401:
        return [("Sign in", "/sign-in")]
    if status == 403:
        return [("Board", "/board"), ("You", "/account")]
    if status in (400, 422) and here.pairs:
        return [("This page without filters", here.page(here.path)), ("Board", "/board")]
    return [("Board", "/board"), ("Regressions", "/regressions"), ("Workers", "/workers")]
