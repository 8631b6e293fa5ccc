"""Settings of a project: its repository, the webhook that keeps it up to date, its policy, and the tokens."""

from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse, Response

from backend.regression.policy import Policy, PolicyError, parse_overrides
from backend.services import access, github_outbox, projects
from backend.services.access import NewToken, Scope
from backend.store.projects import ProjectRow
from frontend.frame import Visit, Visiting
from frontend.links import link
from frontend.pages.rule import Threshold, threshold

router = APIRouter(include_in_schema=False)


@router.get("/settings")
def settings_page(visit: Visiting) -> Response:
    return render_settings(visit, visit.project(), None)


def render_settings(visit: Visit, slug: str | None, made: NewToken | None) -> Response:
    project = projects.find_project(visit.c, slug) if slug else None
    administers = visit.principal.may(Scope.ADMIN)
    base = visit.config.public_url.rstrip("/")
    return visit.page(
        "settings.html",
        page="settings",
        title=f"Settings of {slug}" if slug else "Settings",
        description="Repository, webhook, policy and tokens.",
        project=slug,
        path="/settings",
        row=project,
        listed=next((each for each in visit.projects if each.slug == slug), None),
        webhook=f"{base}/api/v1/webhooks/github",
        has_secret=bool(visit.config.github_webhook_secret),
        overrides=overrides_of(project.policy) if project is not None else [],
        administers=administers,
        tokens=access.list_tokens(visit.c) if administers else [],
        scopes=[scope.value for scope in Scope],
        made=made,
        base=base,
        github=stated(project, "github", ("repository", "issues", "approval_label")),
        oidc=stated(project, "oidc", ("refs", "environments", "repository", "repository_id")),
        tells=github_outbox.tells(visit.config),
    )


def stated(project: ProjectRow | None, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """One of a project's settings, with None where nothing is stated."""
    found = {} if project is None else project.settings.get(name) or {}
    return {key: found.get(key) for key in keys}


def overrides_of(policy: dict[str, Any]) -> list[tuple[str, list[Threshold]]]:
    """What the project's own tidemark.toml changes, by what it applies to."""
    try:
        found = parse_overrides(policy)
    except PolicyError:
        return []
    sections = []
    for override in found:
        places = ("suite", "benchmark", "metric", "testbed")
        scope = ", ".join(f"{name} {getattr(override, name)}" for name in places if getattr(override, name) != "*")
        changed = Policy().with_values(**override.values)
        rows = [threshold(row) for row in changed.describe() if row.name in override.values]
        sections.append((scope or "everything", rows))
    return sections


@router.post("/settings/sync")
def read_again(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Have the repository read soon."""
    visit.check_action(csrf_token)
    projects.request_sync(visit.c, projects.find_project(visit.c, project).id, visit.now)
    return RedirectResponse(link("/settings", project=project), status_code=303)


@router.post("/settings/github")
def save_github(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    issues: Annotated[str, Form(max_length=10)] = "",
    approval_label: Annotated[str, Form(max_length=50)] = "",
    refs: Annotated[str, Form(max_length=4000)] = "",
    environments: Annotated[str, Form(max_length=4000)] = "",
    repository: Annotated[str, Form(max_length=200)] = "",
    repository_id: Annotated[str, Form(max_length=20)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """What GitHub is told of this project, and whose workflows may deliver to it."""
    visit.check_action(csrf_token)
    access.require(visit.principal, Scope.ADMIN)
    slug = projects.find_project(visit.c, project).slug
    stated = {
        "refs": _lines(refs),
        "environments": _lines(environments),
        "repository": repository.strip(),
        "repository_id": repository_id.strip(),
    }
    oidc = {name: value for name, value in stated.items() if value}
    label = " ".join(approval_label.split()) or None
    projects.save_project(
        visit.c, slug, oidc=oidc, github={"issues": bool(issues) or None, "approval_label": label}, now=visit.now
    )
    return RedirectResponse(link("/settings", project=slug), status_code=303)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


@router.post("/settings/tokens")
def make_token(
    visit: Visiting,
    name: Annotated[str, Form(max_length=200)],
    scope: Annotated[list[str] | None, Form(max_length=10)] = None,
    project: Annotated[str, Form(max_length=200)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make a token. Its secret is on this one page and nowhere else."""
    visit.check_action(csrf_token)
    access.require(visit.principal, Scope.ADMIN)
    made = access.create_token(visit.c, name, scope or [], now=visit.now)
    return render_settings(visit, project or visit.project(), made)


@router.post("/settings/tokens/{token_id}/revoke")
def revoke_token(
    visit: Visiting,
    token_id: int,
    project: Annotated[str, Form(max_length=200)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    visit.check_action(csrf_token)
    access.require(visit.principal, Scope.ADMIN)
    access.revoke_token(visit.c, token_id, visit.now)
    return RedirectResponse(link("/settings", project=project) + "#tokens", status_code=303)
