"""GitHub webhooks: verified, deduplicated by delivery id, and turned into requests for the housekeeping loop."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from sqlalchemy import Connection

from backend.github import signature
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import BadRequest, ServiceError, Unauthenticated, shown
from backend.services.base.principal import Principal, Scope, Via
from backend.services.github import comment_commands, pull_requests
from backend.services.queue.scheduling import Kind
from backend.services.repository import requests
from backend.services.repository.requests import RunRequest
from backend.store.base import commits as commit_store
from backend.store.base import live as live_store
from backend.store.base import projects as project_store
from backend.store.base.projects import ProjectRow
from backend.store.github import deliveries
from backend.store.github import outbox as github_outbox

log = logging.getLogger("tidemark.webhooks")

SHA = re.compile(r"[0-9a-f]{40,64}\Z")
TOKEN = re.compile(r"[0-9A-Za-z_.-]{1,100}\Z")
REPOSITORY_URLS = ("clone_url", "ssh_url", "git_url", "html_url", "url")
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """One request from GitHub, as received."""

    event: str | None
    delivery_id: str | None
    signature: str | None
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    delivery: str
    event: str
    outcome: str


def receive(c: Connection, delivery: WebhookDelivery, config: ServiceConfig, now: datetime) -> Received:
    """Verify it, and act on it once. The work itself (fetching) is done by the housekeeping loop."""
    signed = _signed_for(c, delivery, config)
    event = _header("X-GitHub-Event", delivery.event)
    delivery_id = _header("X-GitHub-Delivery", delivery.delivery_id)
    payload = _payload(delivery)
    if not deliveries.claim(c, delivery_id, event, now):
        return Received(delivery=delivery_id, event=event, outcome=deliveries.outcome_of(c, delivery_id))
    outcome, project_id = _act(c, event, payload, signed, config, now)
    deliveries.set_outcome(c, delivery_id, outcome, project_id)
    log.info("webhook %s (%s): %s", delivery_id, event, outcome)
    return Received(delivery=delivery_id, event=event, outcome=outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """Whose secret signed a delivery: the service's, for projects without their own, or those of projects."""

    by_service: bool
    by_projects: frozenset[int]
    with_their_own: frozenset[int]

    def speaks_for(self, project_id: int) -> bool:
        return project_id in self.by_projects if project_id in self.with_their_own else self.by_service


def _signed_for(c: Connection, delivery: WebhookDelivery, config: ServiceConfig) -> Signed:
    """Which secrets signed it; before it is known what it says. Nobody's: it is refused."""
    secrets = project_store.webhook_secrets(c)
    if not config.github_webhook_secret and not secrets:
        raise Unauthenticated("webhooks are not set up here: TIDEMARK_GITHUB_WEBHOOK_SECRET is not set")

    def signs(secret: str | None) -> bool:
        return signature.is_signed(secret or "", delivery.body, delivery.signature)

    signed = Signed(
        by_service=signs(config.github_webhook_secret),
        by_projects=frozenset(project_id for project_id, secret in secrets.items() if signs(secret)),
        with_their_own=frozenset(secrets),
    )
    if not signed.by_service and not signed.by_projects:
        log.warning("webhook %s refused: %s", shown(delivery.delivery_id), "wrong or no signature")
        raise Unauthenticated(
            f"{signature.HEADER} is {'missing' if delivery.signature is None else 'wrong'}: "
            "the secret here and at GitHub must be the same"
        )
    return signed


def _header(name: str, value: str | None) -> str:
    if value is None or not TOKEN.match(value):
        raise BadRequest.field(name, value, "the header as GitHub sends it")
    return value


def _payload(delivery: WebhookDelivery) -> Mapping[str, Any]:
    text = delivery.body
    if delivery.content_type.partition(";")[0].strip().lower() == FORM:
        # GitHub's default for new webhooks: the JSON in a form field.
        fields = parse_qs(text.decode("utf-8", "replace"), keep_blank_values=True)
        text = fields.get("payload", [""])[0].encode()
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the payload is not JSON: {str(error)[:100]}") from None
    if not isinstance(payload, dict):
        raise BadRequest.field("payload", type(payload).__name__, "a JSON object")
    return payload


def _act(
    c: Connection, event: str, payload: Mapping[str, Any], signed: Signed, config: ServiceConfig, now: datetime
) -> tuple[str, int | None]:
    """Act on a delivery; returns the outcome and the project it was about."""
    if event == "ping":
        return "pong", None
    if event == "installation":
        # The app's own: what signs one project speaks for no app.
        return (_on_installation(c, payload) if signed.by_service else "not signed by the app's secret"), None
    handler = HANDLERS.get(event)
    if handler is None:
        return f"nothing to do for {event}", None
    name, watching = _watching(c, payload)
    if not watching:
        return f"no project watches {name}", None
    watching = [project for project in watching if signed.speaks_for(project.id)]
    if not watching:
        raise Unauthenticated(f"the secret that signed this is not the one of the project that watches {shown(name)}")
    said = []
    for project in watching:
        _remember(c, project, name, payload)
        said.append(f"{project.slug}: {handler(c, project, payload, config, now)}")
    return "; ".join(said), watching[0].id


def _watching(c: Connection, payload: Mapping[str, Any]) -> tuple[str, list[ProjectRow]]:
    """The repository's name, and the projects that watch it."""
    repository = payload.get("repository")
    if not isinstance(repository, dict):
        raise BadRequest.field("repository", repository, "an object with full_name and clone_url")
    name = repository.get("full_name")
    if not isinstance(name, str) or not name:
        raise BadRequest.field("repository.full_name", name, "a text like owner/name")
    return _plain(name), project_store.of_repository(c, [_plain(name)], _urls(repository))


def _remember(c: Connection, project: ProjectRow, name: str, payload: Mapping[str, Any]) -> None:
    """GitHub vouched for this project being that repository: what is found may be told there."""
    if not _is_repository_of(project, name):
        return
    stated = project.settings.get("github")
    known = stated if isinstance(stated, dict) else {}
    installation = payload.get("installation")
    number = installation.get("id") if isinstance(installation, dict) else None
    wanted = {**known, "repository": name, **({"installation_id": number} if isinstance(number, int) else {})}
    if wanted != known:
        project_store.set_setting(c, project.id, "github", wanted)


def _is_repository_of(project: ProjectRow, name: str) -> bool:
    """Whether that is the project's repository by its name or its address, and not only by what the payload says."""
    wanted, url = _plain(name).lower(), (project.repository_url or "").lower().removesuffix(".git")
    return project.slug.lower() == wanted or url.endswith((f"/{wanted}", f":{wanted}"))


def _on_installation(c: Connection, payload: Mapping[str, Any]) -> str:
    """The app was installed or removed. Its number comes with every later event; only a removal must be acted on."""
    installation = payload.get("installation")
    number = installation.get("id") if isinstance(installation, dict) else None
    if payload.get("action") not in ("deleted", "suspend") or not isinstance(number, int):
        return f"installation {_plain(str(payload.get('action')))}"
    removed = project_store.forget_installation(c, number)
    return f"installation removed; {removed} projects are not reported to GitHub any more"


def _synchronise(c: Connection, project: ProjectRow, now: datetime) -> str:
    if project.repository_url is None:
        return "has no repository to read; its runs are measured elsewhere and delivered"
    projects.request_sync(c, project.id, now)
    return "synchronising"


def _on_push(
    c: Connection, project: ProjectRow, payload: Mapping[str, Any], config: ServiceConfig, now: datetime
) -> str:
    """Commits came, or a branch was made, forced or deleted: a sync sees which."""
    ref = payload.get("ref")
    if not isinstance(ref, str):
        raise BadRequest.field("ref", ref, "a text like refs/heads/main")
    if not ref.startswith("refs/heads/"):
        return f"{_plain(ref)} is no branch"
    return _synchronise(c, project, now)


def _on_branch(
    c: Connection, project: ProjectRow, payload: Mapping[str, Any], config: ServiceConfig, now: datetime
) -> str:
    """A branch or tag was made or deleted without a commit."""
    if payload.get("ref_type") != "branch":
        return f"nothing to do for a {_plain(str(payload.get('ref_type')))}"
    return _synchronise(c, project, now)


def _on_pull_request(
    c: Connection, project: ProjectRow, payload: Mapping[str, Any], config: ServiceConfig, now: datetime
) -> str:
    return pull_requests.note(c, project, payload, now)


def _on_comment(
    c: Connection, project: ProjectRow, payload: Mapping[str, Any], config: ServiceConfig, now: datetime
) -> str:
    """Somebody says `/tidemark …` in a pull request."""
    said = comment_commands.note(c, project, payload)
    live_store.notify_work(c)
    return said


def _on_workflow(
    c: Connection, project: ProjectRow, payload: Mapping[str, Any], config: ServiceConfig, now: datetime
) -> str:
    """A workflow, or a job of one, has ended: it may have delivered results of a commit we have not read."""
    action = payload.get("action")
    if action != "completed":
        return f"nothing to do for a workflow {_plain(str(action))}"
    told = payload.get("workflow_run") or payload.get("workflow_job")
    sha = told.get("head_sha") if isinstance(told, dict) else None
    if not isinstance(sha, str) or not SHA.match(sha):
        raise BadRequest.field("head_sha", sha, "a full commit id")
    if commit_store.ids_of(c, project.id, [sha]):
        github_outbox.want_check(c, project.id, sha)
        live_store.notify_work(c)
        return f"the check of {sha[:10]} is brought up to date"
    repository = told.get("head_repository") if isinstance(told, dict) else None
    own = payload.get("repository")
    if isinstance(repository, dict) and isinstance(own, dict) and repository.get("id") != own.get("id"):
        return f"{sha[:10]} is of a fork; its results come by a workflow of this repository, if at all"
    return _synchronise(c, project, now)


def _on_check(
    c: Connection, project: ProjectRow, payload: Mapping[str, Any], config: ServiceConfig, now: datetime
) -> str:
    """Somebody who may write to the repository pressed "re-run"."""
    action = payload.get("action")
    if action not in ("rerequested", "requested_action"):
        return f"nothing to do for {_plain(str(action))}"
    check = payload.get("check_run") or payload.get("check_suite")
    sha = check.get("head_sha") if isinstance(check, dict) else None
    if not isinstance(sha, str) or not SHA.match(sha):
        raise BadRequest.field("head_sha", sha, "a full commit id")
    sender = payload.get("sender")
    login = sender.get("login") if isinstance(sender, dict) else None
    who = Principal(name=f"{_plain(str(login))} on GitHub", via=Via.TOKEN, scopes=frozenset({Scope.WRITE}))
    try:
        request = RunRequest(project=project.slug, commit=sha, kind=Kind.PULL_REQUEST, again=True)
        accepted = requests.request_commit(c, request, config, who, now)
    except ServiceError as error:
        # An unknown commit (such as an unapproved one of a fork) is no fault of the delivery.
        return f"not run again: {error.detail}"
    return f"{len(accepted.runs)} runs requested again"


Handler = Callable[[Connection, ProjectRow, Mapping[str, Any], ServiceConfig, datetime], str]
HANDLERS: Mapping[str, Handler] = {
    "push": _on_push,
    "create": _on_branch,
    "delete": _on_branch,
    "pull_request": _on_pull_request,
    "check_run": _on_check,
    "check_suite": _on_check,
    "issue_comment": _on_comment,
    "workflow_run": _on_workflow,
    "workflow_job": _on_workflow,
}


def _urls(repository: Mapping[str, Any]) -> list[str]:
    """Every way to write this repository's address."""
    stated = [repository.get(field) for field in REPOSITORY_URLS]
    urls = [_plain(url) for url in stated if isinstance(url, str) and url]
    return list(dict.fromkeys(form for url in urls for form in (url, url.removesuffix(".git"), f"{url}.git")))


def _plain(text: str) -> str:
    """As Postgres can take it, and short."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:300]
