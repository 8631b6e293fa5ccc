"""Settings of a project: its repository, the webhook that keeps it up to date, its policy, and the tokens."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Form
from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base import projects
from backend.services.base.access import NewToken
from backend.services.base.principal import Scope
from backend.services.github import outbox as github_outbox
from backend.services.judging import policy_change as policies
from backend.services.judging import what_if
from backend.services.people import saved_projects, tokens
from backend.services.repository import removal
from backend.store.base.projects import ProjectRow
from frontend import policy_panel
from frontend.frame import Visit, Visiting
from frontend.links import link

router = Router(include_in_schema=False)


@router.get("/settings")
def settings_page(visit: Visiting) -> Response:
    return render_settings(visit, visit.project(), None)


def render_settings(
    visit: Visit, slug: str | None, made: NewToken | None, policy: policy_panel.PolicyPanel | None = None
) -> Response:
    project = projects.find_project(visit.c, slug) if slug else None
    administers = visit.may(Scope.ADMIN, slug)
    base = visit.config.public_url.rstrip("/")
    return visit.page(
        "settings.html",
        page="settings",
        title=f"Settings of {slug}" if slug else "Settings",
        description="Repository, webhook, policy and tokens.",
        project=slug,
        path="/settings",
        row=project,
        webhook=f"{base}/api/v1/webhooks/github",
        has_secret=bool(visit.config.github_webhook_secret),
        policy=policy or _policy_panel(visit, project),
        policy_places=policy_panel.PLACES,
        administers=administers,
        tokens=[row for row in tokens.listed(visit.c, visit.principal) if row.project in (None, slug)]
        if administers
        else [],
        makes_for_all=visit.may(Scope.ADMIN, None),
        scopes=[scope.value for scope in Scope if scope is not Scope.ADMIN or visit.may(Scope.ADMIN, None)],
        contents=removal.preview(visit.c, visit.principal, slug).contents if slug and administers else None,
        made=made,
        base=base,
        github=stated(project, "github", ("repository", "issues", "approval_label")),
        oidc=stated(project, "oidc", ("refs", "environments", "repository", "repository_id")),
        tells=github_outbox.can_send(visit.config),
    )


def _policy_panel(visit: Visit, project: ProjectRow | None) -> policy_panel.PolicyPanel | None:
    return None if project is None else policy_panel.panel_of(policies.policy_of(visit.c, project.slug))


def stated(project: ProjectRow | None, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """One of a project's settings, with None where nothing is stated."""
    found = {} if project is None else project.settings.get(name) or {}
    return {key: found.get(key) for key in keys}


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """One threshold to be changed, as the form sends it."""

    project: Annotated[str, Form(max_length=200)]
    name: Annotated[str, Form(max_length=100)]
    value: Annotated[str, Form(max_length=40)] = ""
    place: Annotated[str, Form(max_length=40)] = ""
    pattern: Annotated[str, Form(max_length=200)] = ""
    csrf_token: Annotated[str, Form(max_length=200)] = ""

    @property
    def wanted(self) -> policy_panel.WantedThreshold:
        return policy_panel.WantedThreshold(name=self.name, value=self.value, place=self.place, pattern=self.pattern)


@router.post("/settings/policy/preview")
def preview_policy(visit: Visiting, form: Annotated[PolicyForm, Depends()]) -> Response:
    """Preview another threshold over the last days; nothing is changed yet."""
    visit.check_action(form.csrf_token, Scope.ADMIN, project=form.project)
    known = policies.policy_of(visit.c, form.project)
    found = what_if.preview(visit.c, form.project, policy_panel.change_of(known.chosen, form.wanted), now=visit.now)
    return render_settings(visit, form.project, None, policy_panel.panel_of(known, form.wanted, found))


@router.post("/settings/policy/choose")
def choose_policy(visit: Visiting, form: Annotated[PolicyForm, Depends()]) -> Response:
    """Choose a threshold; what was judged lately is judged again in the background."""
    visit.check_action(form.csrf_token, Scope.ADMIN, project=form.project)
    known = policies.policy_of(visit.c, form.project)
    wanted = policy_panel.change_of(known.chosen, form.wanted)
    policies.change(visit.c, form.project, wanted, by=visit.principal, now=visit.now)
    return RedirectResponse(link("/settings", project=form.project) + "#policy", status_code=303)


@router.post("/settings/sync")
def read_again(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Have the repository read soon."""
    visit.check_action(csrf_token, Scope.SUBMIT, project=project)
    found = projects.find_project(visit.c, project)
    projects.request_sync(visit.c, found.id, visit.now)
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
    """Save what is sent to GitHub about this project, and whose workflows may deliver to it."""
    visit.check_action(csrf_token, Scope.ADMIN, project=project)
    slug = projects.find_project(visit.c, project).slug
    stated = {
        "refs": _lines(refs),
        "environments": _lines(environments),
        "repository": repository.strip(),
        "repository_id": repository_id.strip(),
    }
    oidc = {name: value for name, value in stated.items() if value}
    label = " ".join(approval_label.split()) or None
    github = {"issues": bool(issues) or None, "approval_label": label}
    saved_projects.save(visit.c, visit.principal, slug, oidc=oidc, github=github, now=visit.now)
    return RedirectResponse(link("/settings", project=slug), status_code=303)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


@router.post("/settings/tokens")
def make_token(
    visit: Visiting,
    name: Annotated[str, Form(max_length=200)],
    scope: Annotated[list[str] | None, Form(max_length=10)] = None,
    project: Annotated[str, Form(max_length=200)] = "",
    reach: Annotated[str, Form(max_length=10)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make a token, of the project or (`reach`: all) of every one. Its secret is on this one page and nowhere else."""
    visit.check_own_page(csrf_token)
    of = None if reach == "all" or not project else project
    made = tokens.make(visit.c, visit.principal, name, scope or [], project=of, now=visit.now)
    return render_settings(visit, project or visit.project(), made)


@router.post("/settings/tokens/{token_id}/revoke")
def revoke_token(
    visit: Visiting,
    token_id: int,
    project: Annotated[str, Form(max_length=200)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    visit.check_own_page(csrf_token)
    tokens.revoke(visit.c, visit.principal, token_id, now=visit.now)
    return RedirectResponse(link("/settings", project=project) + "#tokens", status_code=303)


@router.post("/settings/private")
def set_private(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    private: Annotated[str, Form(max_length=10)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Show the project to its members alone, or to everybody who may read here."""
    visit.check_own_page(csrf_token)
    saved_projects.save(visit.c, visit.principal, project, private=bool(private), now=visit.now)
    return RedirectResponse(link("/settings", project=project), status_code=303)


@router.post("/settings/remove")
def remove_project(
    visit: Visiting,
    project: Annotated[str, Form(max_length=200)],
    confirm: Annotated[str, Form(max_length=200)] = "",
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Remove the project and everything of it."""
    visit.check_own_page(csrf_token)
    with visit.in_transaction() as c:
        _, files = removal.remove(
            c, visit.principal, project, confirm=confirm.strip(), config=visit.config, now=visit.now
        )
    removal.remove_files(files)
    return RedirectResponse("/", status_code=303)
