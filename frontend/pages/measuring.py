"""Measurements besides new commits: comparisons, bisections, backfills, schedules."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Form
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base.principal import Scope
from backend.services.base.scope import find_project
from backend.services.plans import backfill, bisection_views, schedule
from backend.services.plans.backfill import BackfillView, BackfillWish
from backend.services.sessions import views as session_views
from backend.services.sessions.request import Purpose
from backend.services.sessions.views import SessionSeries, SessionView
from frontend.frame import Visit, Visiting
from frontend.links import link

router = Router(include_in_schema=False)

MOST = 50
LOOKS = {"slower": "bad", "faster": "ok", "same": "mut", "unclear": "warn", "continue": "mut"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupSide:
    """One arm of a comparison: its commit, and what it installs or sets."""

    sha: str
    extra: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupComparison:
    """A comparison of two environments, or of two commits, as the page shows it."""

    it: SessionView
    base: SetupSide
    head: SetupSide
    gates: tuple[SessionSeries, ...]


@router.get("/measuring")
def measuring_page(visit: Visiting) -> Response:
    slug = visit.project()
    project_id = _project_of(visit, slug)
    compared = session_views.list_sessions(visit.c, project_id=project_id, purpose=Purpose.COMPARE.value, limit=MOST)
    return visit.page(
        "measuring.html",
        page="measuring",
        title="Measuring",
        description="Comparisons, bisections, backfills and schedules.",
        project=slug,
        path="/measuring",
        comparisons=[_comparison(it) for it in compared],
        bisections=bisection_views.list_bisections(visit.c, project_id=project_id, limit=MOST),
        backfills=backfill.list_backfills(visit.c, project_id=project_id, limit=MOST),
        schedules=schedule.list_schedules(visit.c, project_id),
        looks=LOOKS,
        cannot_backfill=cannot_backfill(visit, slug),
    )


def cannot_backfill(visit: Visit, slug: str | None) -> str:
    """Why the service measures no commits of the past; empty: it does."""
    if slug is None or visit.repository_url(slug) is not None:
        return ""
    return "The service has no repository of this project. Its results come from CI, which can measure old commits too."


def _project_of(visit: Visit, slug: str | None) -> int | None:
    """The project that the page is about; None: all of them."""
    return None if slug is None else find_project(visit.c, slug).id


def _comparison(it: SessionView) -> SetupComparison:
    return SetupComparison(
        it=it,
        base=SetupSide(sha=it.base_sha, extra=_extra(it.base_setup)),
        head=SetupSide(sha=it.head_sha, extra=_extra(it.head_setup)),
        gates=tuple(series for series in it.series if series.role == "gate") or it.series,
    )


def _extra(setup: object) -> str:
    assert isinstance(setup, dict)
    said = [setup.get("pip"), setup.get("setup"), *(f"{name}={text}" for name, text in setup.get("env", {}).items())]
    return "; ".join(str(text) for text in said if text)


@router.post("/measuring/backfills")
def start_backfill(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    suite: Annotated[str, Form(max_length=100)],
    since: Annotated[str, Form(max_length=255)] = "",
    runs: Annotated[int | None, Form(ge=1, le=backfill.MOST_RUNS)] = None,
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Ask for commits of the past."""
    visit.check_action(csrf_token, Scope.SUBMIT, project=project)
    wish = BackfillWish(project=project, suite=suite.strip(), since=since.strip() or None, runs=runs)
    backfill.request_backfill(visit.c, wish, visit.config, visit.principal, visit.now)
    return RedirectResponse(link("/measuring", project=project), status_code=303)


@router.post("/measuring/backfills/{backfill_id}/cancel")
def cancel_backfill(
    visit: Visiting, backfill_id: str, csrf_token: Annotated[str, Form(max_length=200)] = ""
) -> Response:
    """Ask for no more of it."""
    visit.check_own_page(csrf_token)
    ended: BackfillView = backfill.cancel_backfill(visit.c, backfill_id, visit.principal, visit.now)
    return RedirectResponse(link("/measuring", project=ended.project), status_code=303)
