"""A repository is connected: its address, what was found in it, its webhook, a worker, the first run."""

import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Form
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base import projects
from backend.services.base.confine import require_all, require_of
from backend.services.base.errors import BadRequest
from backend.services.base.principal import Scope
from backend.services.github import outbox as github_outbox
from backend.services.people import saved_projects
from backend.services.reports import overview
from backend.services.repository import connecting
from frontend.frame import Visit, Visiting
from frontend.links import link

router = Router(include_in_schema=False)

BRANCH = re.compile(r"[^-\x00-\x20\x7f][^\x00-\x20\x7f]{0,254}\Z")
HOOKS = re.compile(r"https://github\.com/[^/]+/[^/]+\Z")
PAGE = {"page": "connect", "path": "/connect"}
EXAMPLE = """[suite.own]
command = "python bench/run.py"   # writes tidemark.run/1 to $TIDEMARK_RUN_JSON
testbeds = ["cpu"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedProject:
    """The form as it was typed, to be shown again beside its errors."""

    project: str = ""
    repository_url: str = ""
    default_branch: str = "main"
    trusted: bool = False


@router.get("/connect")
def connect_page(visit: Visiting) -> Response:
    """The form; of a project that is named, how far it is."""
    slug = visit.here.get("project")
    if not slug:
        require_all(visit.c, visit.principal, Scope.ADMIN)
        return _form(visit, TypedProject())
    require_of(visit.c, visit.principal, Scope.ADMIN, "project", slug)
    return _progress(visit, slug)


@router.post("/connect")
def connect(
    visit: Visiting,
    project: Annotated[str, Form(max_length=1000)] = "",
    repository_url: Annotated[str, Form(max_length=1000)] = "",
    default_branch: Annotated[str, Form(max_length=1000)] = "main",
    trusted: Annotated[str, Form(max_length=10)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make the project and have its repository read; without an address, results come from CI."""
    visit.check_action(csrf_token, Scope.ADMIN)
    asked = TypedProject(
        project=project.strip(),
        repository_url=repository_url.strip(),
        default_branch=default_branch.strip() or "main",
        trusted=bool(trusted),
    )
    try:
        if not BRANCH.match(asked.default_branch):
            raise BadRequest.field("default_branch", asked.default_branch, "the name of a branch, such as main")
        if any(each.slug == asked.project for each in visit.projects):
            raise BadRequest.field("project", asked.project, "a name that no other project has")
        saved_projects.save(
            visit.c,
            visit.principal,
            asked.project,
            repository_url=asked.repository_url or None,
            default_branch=asked.default_branch,
            trusted=asked.trusted,
            now=visit.now,
        )
    except BadRequest as refused:
        return _form(visit, asked, str(refused))
    return RedirectResponse(link("/connect", project=asked.project), status_code=303)


@router.post("/connect/secret")
def make_secret(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """A secret for the project's webhook. It is on this one page and nowhere else."""
    visit.check_action(csrf_token, Scope.ADMIN, project=project)
    secret = connecting.make_webhook_secret(visit.c, visit.principal, project, now=visit.now)
    return _progress(visit, project, secret)


@router.post("/connect/run")
def first_run(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Measure the newest commit."""
    visit.check_action(csrf_token, Scope.SUBMIT, project=project)
    accepted = connecting.measure_newest(visit.c, visit.config, visit.principal, project, now=visit.now)
    target = f"/runs/{accepted.runs[0].run_id}" if accepted.runs else link("/connect", project=project)
    return RedirectResponse(target, status_code=303)


def _form(visit: Visit, asked: TypedProject, problem: str = "") -> Response:
    answer = visit.page(
        "connect.html",
        title="Connect a repository",
        description="Where the repository is, and what it is called here.",
        project=None,
        asked=asked,
        problem=problem,
        **PAGE,
    )
    answer.status_code = 400 if problem else 200
    return answer


def _progress(visit: Visit, slug: str, secret: str | None = None) -> Response:
    project = projects.find_project(visit.c, slug)
    url = visit.config.public_url.rstrip("/")
    web = (project.repository_url or "").removesuffix("/").removesuffix(".git")
    return visit.page(
        "connected.html",
        title=f"Connect {slug}",
        description="What was found in the repository, its webhook, and the first run.",
        project=slug,
        row=project,
        reading=project.repository_url is not None and project.sync_requested_at is not None,
        found=connecting.found_at_head(visit.c, visit.config, project),
        first=overview.first_run(visit.c, slug, now=visit.now),
        url=url,
        webhook=f"{url}/api/v1/webhooks/github",
        hooks=f"{web}/settings/hooks/new" if HOOKS.match(web) else None,
        shared_secret=bool(visit.config.github_webhook_secret),
        own_secret=saved_projects.has_webhook_secret(visit.c, project.id),
        told=github_outbox.is_connected(visit.c, slug),
        tells=github_outbox.can_send(visit.config),
        secret=secret,
        example=EXAMPLE,
        **PAGE,
    )
