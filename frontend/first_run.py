"""The way to the first result: steps that tick themselves off while one watches."""

from dataclasses import dataclass

from fastapi.responses import Response
from markupsafe import Markup

from backend.services.board_model import Board
from frontend.frame import Visit
from frontend.render import render


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`state` is done, now or later; a command and a progress are shown while it is the step of now."""

    title: str
    text: str
    state: str
    command: str = ""
    progress: int | None = None
    progress_text: str = ""


def steps_html(visit: Visit, project: str | None, board: Board | None) -> Markup:
    return Markup(render("steps.html", {"steps": []}))


def page(visit: Visit, project: str | None, board: Board | None) -> Response:
    return visit.page(
        "first_run.html",
        page="board",
        title="First run",
        description="Steps to the first result.",
        project=project,
        headline="Nothing measured yet.",
        steps=steps_html(visit, project, board),
    )
