"""Webhooks of GitHub, over real HTTP: signed, idempotent, and every way in which they can be wrong."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from sqlalchemy import text

from backend.api import create_api
from backend.github.signature import sign
from backend.services.base import projects
from backend.services.housekeeping import tidy

PATH = "/api/v1/webhooks/github"


@contextmanager
def of_github(server: Any) -> Iterator[httpx.Client]:
    with server.engine.begin() as c:
        projects.save_project(
            c, "northsea/loom", repository_url="https://github.com/northsea/loom.git", now=datetime.now(UTC)
        )
        c.execute(text("UPDATE project SET sync_requested_at = NULL"))
    with server.client() as made:
        made.secret = server.config.github_webhook_secret  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def client(live_server: Any) -> Iterator[httpx.Client]:
    with of_github(live_server) as made:
        yield made


@pytest.fixture(scope="module")
def unheard(standing_server: Any) -> Iterator[httpx.Client]:
    """What it sends changes nothing."""
    with of_github(standing_server) as made:
        yield made


def push(**changed: Any) -> dict[str, Any]:
    repository = {"full_name": "northsea/loom", "clone_url": "https://github.com/northsea/loom.git"}
    return {"ref": "refs/heads/main", "after": "a" * 40, "repository": repository, **changed}


def send(
    client: httpx.Client, payload: Any, *, event: str | None = "push", delivery: str | None = None, **headers: str
) -> httpx.Response:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    sent = {
        "Content-Type": "application/json",
        "X-GitHub-Delivery": delivery if delivery is not None else str(uuid.uuid4()),
        "X-Hub-Signature-256": sign(client.secret, body),  # type: ignore[attr-defined]
        **({} if event is None else {"X-GitHub-Event": event}),
        **headers,
    }
    return client.post(PATH, content=body, headers=sent)


def sync_requested(live_server: Any) -> bool:
    with live_server.engine.connect() as c:
        return bool(c.scalar(text("SELECT sync_requested_at IS NOT NULL FROM project")))


def test_a_ping_is_answered(client: httpx.Client) -> None:
    answer = send(client, {"zen": "Keep it logically awesome."}, event="ping", delivery="d-1")
    assert answer.status_code == 200
    assert answer.json() == {"delivery": "d-1", "event": "ping", "outcome": "pong"}


def test_a_push_asks_for_a_sync(client: httpx.Client, live_server: Any) -> None:
    answer = send(client, push())
    assert answer.json()["outcome"] == "northsea/loom: synchronising" and sync_requested(live_server)


def test_a_push_to_a_project_without_a_repository_to_read_says_so(client: httpx.Client, live_server: Any) -> None:
    with live_server.engine.begin() as c:
        c.execute(text("UPDATE project SET repository_url = NULL"))
    said = send(client, push()).json()["outcome"]
    assert said == "northsea/loom: has no repository to read; its runs are measured elsewhere and delivered"
    assert not sync_requested(live_server)


@pytest.mark.parametrize(
    "repository",
    [
        {"full_name": "NorthSea/Loom"},
        {"full_name": "x/y", "html_url": "https://github.com/northsea/loom"},
        {"full_name": "x/y", "clone_url": "https://GitHub.com/northsea/loom.git"},
    ],
)
def test_a_repository_is_recognised_by_any_of_its_addresses(
    client: httpx.Client, live_server: Any, repository: dict[str, str]
) -> None:
    send(client, push(repository=repository))
    assert sync_requested(live_server)


def test_githubs_default_content_type_is_understood(client: httpx.Client, live_server: Any) -> None:
    body = urlencode({"payload": json.dumps(push())}).encode()
    answer = send(client, body, **{"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 200 and sync_requested(live_server)


def test_a_delivery_that_comes_twice_is_acted_on_once(client: httpx.Client, live_server: Any) -> None:
    first = send(client, push(), delivery="same")
    with live_server.engine.begin() as c:
        c.execute(text("UPDATE project SET sync_requested_at = NULL"))
    second = send(client, push(), delivery="same")
    assert second.status_code == 200 and second.json() == first.json() and not sync_requested(live_server)


@pytest.mark.parametrize(
    ("payload", "event", "outcome"),
    [
        (push(ref="refs/tags/v1"), "push", "northsea/loom: refs/tags/v1 is no branch"),
        (push(repository={"full_name": "some/one"}), "push", "no project watches some/one"),
        ({"action": "created"}, "star", "nothing to do for star"),
        ({}, "deployment", "nothing to do for deployment"),
        (push(action="requested"), "workflow_run", "northsea/loom: nothing to do for a workflow requested"),
        (push(action="queued"), "workflow_job", "northsea/loom: nothing to do for a workflow queued"),
        (push(action="edited"), "issue_comment", "northsea/loom: nothing to do for a comment edited"),
    ],
)
def test_what_is_of_no_interest_is_accepted_and_ignored(
    unheard: httpx.Client, standing_server: Any, payload: Any, event: str, outcome: str
) -> None:
    answer = send(unheard, payload, event=event)
    assert answer.status_code == 200 and answer.json()["outcome"] == outcome and not sync_requested(standing_server)


def test_a_deleted_branch_is_a_push_too(client: httpx.Client, live_server: Any) -> None:
    send(client, push(deleted=True, after="0" * 40))
    assert sync_requested(live_server)


@pytest.mark.parametrize("signature", ["", "sha256=00", "sha256=" + "0" * 64, "sha1=" + "0" * 40, sign("wrong", b"{}")])
def test_a_wrong_signature_is_refused(unheard: httpx.Client, standing_server: Any, signature: str) -> None:
    answer = send(unheard, push(), **{"X-Hub-Signature-256": signature})
    assert answer.status_code == 401 and not sync_requested(standing_server)


def test_the_signature_is_over_the_bytes_as_they_came(client: httpx.Client) -> None:
    body = json.dumps(push()).encode()
    answer = send(client, body + b" ", **{"X-Hub-Signature-256": sign(client.secret, body)})  # type: ignore[attr-defined]
    assert answer.status_code == 401


def test_without_a_signature_nobody_is_heard(client: httpx.Client) -> None:
    answer = client.post(PATH, json=push(), headers={"X-GitHub-Event": "push", "X-GitHub-Delivery": "1"})
    assert answer.status_code == 401 and "missing" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "payload: 'list'"),
        ({}, "repository: None"),
        (push(repository=3), "repository: 3"),
        (push(repository={}), "repository.full_name: None"),
        (push(ref=None), "ref: None"),
    ],
)
def test_a_malformed_payload_is_refused_by_what_is_wrong(unheard: httpx.Client, payload: Any, named: str) -> None:
    answer = send(unheard, payload)
    assert answer.status_code == 400 and named in answer.json()["detail"]


def test_a_refused_delivery_may_come_again(client: httpx.Client, live_server: Any) -> None:
    assert send(client, {}, delivery="again").status_code == 400
    assert send(client, push(), delivery="again").status_code == 200 and sync_requested(live_server)


@pytest.mark.parametrize("header", ["X-GitHub-Event", "X-GitHub-Delivery"])
def test_githubs_headers_must_be_there(client: httpx.Client, header: str) -> None:
    answer = send(client, push(), **{header: ""})
    assert answer.status_code == 400 and header in answer.json()["detail"]


def test_an_oversized_payload_is_refused(live_server: Any, client: httpx.Client) -> None:
    answer = client.post(PATH, content=b" " * (25 * 1024 * 1024 + 1))
    assert answer.status_code == 413


def test_without_a_secret_no_webhook_is_accepted(live_server: Any, serve_app: Any) -> None:
    bare = replace(live_server.config, github_webhook_secret=None)
    with serve_app(create_api(bare, live_server.engine), live_server.engine, bare) as server, server.client() as client:
        answer = client.post(PATH, content=b"{}", headers={"X-Hub-Signature-256": sign("", b"{}")})
    assert answer.status_code == 401 and "TIDEMARK_GITHUB_WEBHOOK_SECRET is not set" in answer.json()["detail"]


@pytest.mark.parametrize("event", ["workflow_run", "workflow_job"])
def test_a_workflow_that_ended_has_its_commit_read_or_its_check_brought_up_to_date(
    client: httpx.Client, live_server: Any, event: str
) -> None:
    """Its results may have come before anybody told us of the commit."""
    ended = {"head_sha": "a" * 40, "conclusion": "success", "head_repository": {"id": 1}}
    payload = push(action="completed", **{event: ended})
    payload["repository"]["id"] = 1
    assert send(client, payload, event=event).json()["outcome"] == "northsea/loom: synchronising"
    assert sync_requested(live_server)
    with live_server.engine.begin() as c:
        c.execute(text("INSERT INTO commit (project_id, sha) SELECT id, :sha FROM project"), {"sha": "a" * 40})
    said = send(client, payload, event=event).json()["outcome"]
    assert said == "northsea/loom: the check of aaaaaaaaaa is brought up to date"
    with live_server.engine.connect() as c:
        assert c.scalar(text("SELECT key FROM github_outbox WHERE kind = 'check'")) == "a" * 40
    wrong = send(client, push(action="completed", **{event: {"head_sha": "main"}}), event=event)
    assert wrong.status_code == 400 and "a full commit id" in wrong.json()["detail"]


def test_a_workflow_of_a_fork_has_nothing_fetched(client: httpx.Client, live_server: Any) -> None:
    ended = {"head_sha": "e" * 40, "conclusion": "success", "head_repository": {"id": 2}}
    payload = push(action="completed", workflow_run=ended)
    payload["repository"]["id"] = 1
    assert "is of a fork" in send(client, payload, event="workflow_run").json()["outcome"]
    assert not sync_requested(live_server)


def test_deliveries_are_remembered_for_thirty_days(client: httpx.Client, live_server: Any) -> None:
    assert live_server.config.webhook_delivery_days == 30
    with live_server.engine.begin() as c:
        for days in (29, 31):
            send(client, push(), delivery=f"{days}-days")
            older = "UPDATE webhook_delivery SET received_at = :at WHERE delivery_id = :id"
            c.execute(text(older), {"at": datetime.now(UTC) - timedelta(days=days), "id": f"{days}-days"})
    tidy(live_server.engine, live_server.config, datetime.now(UTC))
    with live_server.engine.connect() as c:
        assert list(c.execute(text("SELECT delivery_id FROM webhook_delivery")).scalars()) == ["29-days"]


def test_a_command_in_a_comment_waits_for_its_turn(client: httpx.Client, live_server: Any) -> None:
    comment = {"id": 9, "body": "/tidemark rerun", "user": {"login": "ada"}, "author_association": "OWNER"}
    payload = push(action="created", issue={"number": 7, "pull_request": {}}, comment=comment)
    said = send(client, payload, event="issue_comment").json()["outcome"]
    assert said == "northsea/loom: /tidemark rerun of ada on #7 is looked at"
    with live_server.engine.connect() as c:
        row = c.execute(text("SELECT kind, key, memory FROM github_outbox")).one()
        assert (row.kind, row.key, row.memory["words"]) == ("reply", "9", ["rerun"])
