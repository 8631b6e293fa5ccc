"""What GitHub tells us: verified, remembered by its delivery id, and turned into a wish to synchronise."""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from sqlalchemy import Connection

from backend.github import signature
from backend.services import projects
from backend.services.config import ServiceConfig
from backend.services.errors import BadRequest, Unauthenticated, shown
from backend.store import deliveries
from backend.store import projects as project_store

log = logging.getLogger("tidemark.webhooks")

TOKEN = re.compile(r"[0-9A-Za-z_.-]{1,100}\Z")
REPOSITORY_URLS = ("clone_url", "ssh_url", "git_url", "html_url", "url")
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One request from GitHub, as it came."""

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


def receive(c: Connection, delivery: Delivery, config: ServiceConfig, now: datetime) -> Received:
    """Verify, and act on it once. The work itself (fetching) is done by the housekeeping loop."""
    _check_signature(delivery, config)
    event = _header("X-GitHub-Event", delivery.event)
    delivery_id = _header("X-GitHub-Delivery", delivery.delivery_id)
    payload = _payload(delivery)
    if not deliveries.claim(c, delivery_id, event, now):
        return Received(delivery=delivery_id, event=event, outcome=deliveries.outcome_of(c, delivery_id))
    outcome, project_id = _act(c, event, payload, now)
    deliveries.set_outcome(c, delivery_id, outcome, project_id)
    log.info("webhook %s (%s): %s", delivery_id, event, outcome)
    return Received(delivery=delivery_id, event=event, outcome=outcome)


def _check_signature(delivery: Delivery, config: ServiceConfig) -> None:
    if not config.github_webhook_secret:
        raise Unauthenticated("webhooks are not set up here: TIDEMARK_GITHUB_WEBHOOK_SECRET is not set")
    if not signature.is_signed(config.github_webhook_secret, delivery.body, delivery.signature):
        log.warning("webhook %s refused: %s", shown(delivery.delivery_id), "wrong or no signature")
        raise Unauthenticated(
            f"{signature.HEADER} is {'missing' if delivery.signature is None else 'wrong'}: "
            "the secret here and at GitHub must be the same"
        )


def _header(name: str, value: str | None) -> str:
    if value is None or not TOKEN.match(value):
        raise BadRequest.field(name, value, "the header as GitHub sends it")
    return value


def _payload(delivery: Delivery) -> Mapping[str, Any]:
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


def _act(c: Connection, event: str, payload: Mapping[str, Any], now: datetime) -> tuple[str, int | None]:
    """What came of it, and the project it was about."""
    if event == "ping":
        return "pong", None
    if event == "push":
        return _on_push(c, payload, now)
    return f"nothing to do for {event}", None


def _on_push(c: Connection, payload: Mapping[str, Any], now: datetime) -> tuple[str, int | None]:
    repository, ref = payload.get("repository"), payload.get("ref")
    if not isinstance(repository, dict):
        raise BadRequest.field("repository", repository, "an object with full_name and clone_url")
    if not isinstance(ref, str):
        raise BadRequest.field("ref", ref, "a text like refs/heads/main")
    if not ref.startswith("refs/heads/"):
        return f"{_plain(ref)} is no branch", None
    name = repository.get("full_name")
    if not isinstance(name, str) or not name:
        raise BadRequest.field("repository.full_name", name, "a text like owner/name")
    watching = project_store.of_repository(c, [_plain(name)], _urls(repository))
    for project in watching:
        projects.request_sync(c, project.id, now)
    if not watching:
        return f"no project watches {_plain(name)}", None
    return f"synchronising {', '.join(project.slug for project in watching)}", watching[0].id


def _urls(repository: Mapping[str, Any]) -> list[str]:
    """Every way to write this repository's address."""
    stated = [repository.get(field) for field in REPOSITORY_URLS]
    urls = [_plain(url) for url in stated if isinstance(url, str) and url]
    return list(dict.fromkeys(form for url in urls for form in (url, url.removesuffix(".git"), f"{url}.git")))


def _plain(text: str) -> str:
    """As Postgres can take it, and short."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:300]
