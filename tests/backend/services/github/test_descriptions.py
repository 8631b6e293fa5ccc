"""Everything we send is what GitHub's own published description of its API accepts; and its limits and pages are kept.

The description is fetched from npm when the test runs. Where it cannot be had, the test is listed as not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from sqlalchemy import Engine, text

from backend.services.base.config import ServiceConfig
from backend.services.github import comment_commands
from backend.services.github.outbox import GitHubSender
from backend.store.base import projects as project_store
from tests.backend.api.conftest import run_document, sha
from tests.backend.github.test_oidc import private_key
from tests.backend.services.github.github_openapi import Unobtainable, checker, fetched
from tests.backend.services.github.github_stand_in import BY_APP, StandIn, stand_in
from tests.backend.services.github.test_outbox import FIX, HEAD, HISTORY, House

Validate = Callable[[str, str, Any], str | None]


@pytest.fixture(scope="module")
def validate(tmp_path_factory: pytest.TempPathFactory) -> Validate:
    try:
        return checker(fetched(tmp_path_factory.mktemp("npm")))
    except Unobtainable as reason:
        pytest.skip(f"GitHub's description of its API is not to be had: {reason}")


@pytest.fixture
def github() -> Iterator[StandIn]:
    with stand_in() as played:
        played.app_public_key = private_key("one").public_key()
        played.permissions = {"ada": "admin"}
        yield played


@pytest.fixture
def house(github: StandIn, service_config: ServiceConfig, committing_engine: Engine) -> Iterator[House]:
    key = private_key("one").private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    config = replace(service_config, github_api_url=github.url, github_app_id="1", github_app_key=key.decode())
    made = House(committing_engine, config)
    yield made
    made.sender.close()


def say(house: House, comment_id: int, body: str) -> None:
    user = {"login": "ada", "type": "User"}
    comment = {"id": comment_id, "body": body, "user": user, "author_association": "OWNER"}
    payload = {"action": "created", "issue": {"number": 7, "pull_request": {}}, "comment": comment}
    with house.engine.begin() as c:
        comment_commands.note(c, house.project, payload)


def test_every_body_is_one_that_github_accepts(house: House, github: StandIn, validate: Validate) -> None:
    assert validate("POST", "/repos/northsea/loom/check-runs", {"name": "without a commit"}) is not None
    github.validate = validate
    with house.engine.begin() as c:
        setting = {"repository": "northsea/loom", "installation_id": 5, "issues": True}
        project_store.set_setting(c, house.project.id, "github", setting)
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    say(house, 1, "/tidemark help")
    house.tell()
    house.pull_request(FIX, HEAD, 1.0)
    for position in range(HISTORY, HISTORY + 5):
        house.deliver(position)
    house.tell(timedelta(minutes=1))
    for position in range(HISTORY + 5, HISTORY + 9):
        house.deliver(position, results=run_document(0)["results"])
    house.tell(timedelta(minutes=1))
    plain = replace(house.config, github_app_id=None, github_token="a-plain-token")
    house.sender = GitHubSender(house.engine, plain)
    house.deliver(HISTORY + 9, results=run_document(0)["results"])
    house.tell(timedelta(minutes=1))
    assert github.complaints == []
    written = {(method, path.split("/")[4]) for method, path in github.requests if path.startswith("/repos/")}
    assert {("POST", "check-runs"), ("PATCH", "issues"), ("POST", "issues"), ("POST", "statuses")} <= written
    assert {issue["state"] for issue in github.issues.values()} == {"closed"}
    assert {row.state for row in house.rows()} == {"sent"}


def test_a_comment_of_ours_is_found_on_a_later_page(house: House, github: StandIn) -> None:
    github.page_size = 3
    for number in range(8):
        github._keep(github.comments, {"body": f"chatter {number}", "issue": 7})
    ours = github._keep(github.comments, {"body": "<!-- tidemark:demo/tinygpt -->\nold", "issue": 7, **BY_APP})
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    house.tell()
    assert "slower" in github.comments[ours["id"]]["body"] and len(github.comments) == 9


def test_writing_faster_than_github_likes_is_gone_on_with_after_the_time_it_names(
    house: House, github: StandIn
) -> None:
    github.most_writes = 1
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    house.tell()
    assert sorted(row.state for row in house.rows()) == ["sent", "waiting"]
    github.forgive()
    asked = len(github.requests)
    house.tell(timedelta(seconds=30))
    assert len(github.requests) == asked, "the minute is not over"
    house.tell(timedelta(seconds=31))
    assert {row.state for row in house.rows()} == {"sent"}


def test_an_app_without_a_right_is_told_by_name_what_it_lacks(house: House, github: StandIn) -> None:
    house.pull_request(HEAD, sha(HISTORY - 1), 1.15)
    github.trouble += [(403, {}, {"message": "Resource not accessible by integration"})] * 2
    house.tell()
    errors = [row.error for row in house.rows() if row.state == "gave_up"]
    assert errors and all("lacks a permission" in error and "Resource not accessible" in error for error in errors)
    with house.engine.begin() as c:
        assert c.scalar(text("SELECT count(*) FROM live_event WHERE payload ->> 'github' = 'gave up'")) == len(errors)
