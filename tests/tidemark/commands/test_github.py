"""Commands about GitHub against a real service, and the doctor against the stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from helpers_tidemark import tidemark

from backend.services.base import projects
from backend.store.github import pull_requests
from tests.backend.github.test_oidc import private_key
from tests.backend.services.github.github_stand_in import StandIn, stand_in
from tidemark.checkup.github_setup import github
from tidemark.connected.remote import Service
from tidemark.settings import Settings

HEAD = "a" * 40


@dataclass
class Here:
    """The command, told where the service is."""

    server: Any

    def __call__(self, *arguments: str) -> Any:
        return tidemark(*arguments, TIDEMARK_URL=self.server.url, TIDEMARK_TOKEN=self.server.token("admin"))


@pytest.fixture
def here(live_server: Any) -> Here:
    with live_server.engine.begin() as c:
        saved = projects.save_project(
            c, "northsea/loom", repository_url="https://github.com/northsea/loom.git", default_branch="trunk",
            now=datetime.now(UTC),
        )  # fmt: skip
        pull_requests.save(
            c,
            {"project_id": saved.id, "number": 7, "title": "Fast \x1b[31mrouter", "author": "eve", "state": "open",
             "is_fork": True, "head_sha": HEAD, "base_ref": "trunk", "updated_at": datetime.now(UTC)},
        )  # fmt: skip
    return Here(live_server)


def test_a_project_is_connected_by_commands_and_keeps_what_they_do_not_name(here: Here) -> None:
    said = here("github", "settings", "northsea/loom", "--issues", "--ref", "refs/heads/trunk", "--ref", "refs/tags/*")
    assert said.returncode == 0, said.stderr
    assert "one for each confirmed regression" in said.stdout and "refs/heads/trunk, refs/tags/*" in said.stdout
    # What `project add` asks for; the command itself would wait for somebody to read the repository.
    service = Service(url=here.server.url, token=here.server.token("admin"))
    service.add_project("northsea/loom", "https://github.com/northsea/loom2.git", branch=None, trusted=None)
    found = json.loads(here("github", "settings", "northsea/loom", "--json").stdout)
    assert (found["repository_url"], found["default_branch"]) == ("https://github.com/northsea/loom2.git", "trunk")
    assert found["settings"] == {"github": {"issues": True}, "oidc": {"refs": ["refs/heads/trunk", "refs/tags/*"]}}
    assert "any, or none" in here("github", "settings", "northsea/loom", "--any-workflow").stdout
    assert "a whole ref" in here("github", "settings", "northsea/loom", "--ref", "trunk").stderr


def test_a_fork_is_seen_and_approved_by_commands(here: Here) -> None:
    listed = here("github", "pull-requests", "northsea/loom")
    assert f"waits for an approval of {HEAD}" in listed.stdout and "\x1b" not in listed.stdout
    assert "409" in here("github", "approve", "northsea/loom", "7", "b" * 40).stderr
    assert here("github", "approve", "northsea/loom", "7", HEAD).returncode == 0
    assert "waits" not in here("github", "pull-requests", "northsea/loom").stdout
    assert "unknown regression" in here("upstream-report", "12").stderr


# --- the doctor ------------------------------------------------------------------------------------------------------


@pytest.fixture
def played() -> Iterator[StandIn]:
    with stand_in() as api:
        api.app_public_key = private_key("one").public_key()
        yield api


def settings(played: StandIn, tmp_path: Path, key: str = "one", **more: Any) -> Settings:
    file = tmp_path / "app.pem"
    file.write_bytes(
        private_key(key).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    stated = {"github_webhook_secret": "x" * 20, "github_app_id": "1", "github_app_key_file": file}
    return Settings(**{**stated, "github_api_url": played.url, **more})


def test_the_doctor_finds_a_good_app_good(played: StandIn, tmp_path: Path) -> None:
    assert [finding.good for finding in github(settings(played, tmp_path))] == [True, True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"github_webhook_secret": None}, "every delivery is refused"),
        ({"github_webhook_secret": "short"}, "a secret of 5 characters"),
        ({"key": "two"}, "the credentials are not valid"),
        ({"github_api_url": "http://127.0.0.1:9"}, "could not be reached"),
        ({"github_app_id": None, "github_app_key_file": None, "github_token": "wrong"}, "credentials are not valid"),
    ],
)
def test_the_doctor_says_what_is_wrong(played: StandIn, tmp_path: Path, change: dict[str, Any], said: str) -> None:
    bad = [finding for finding in github(settings(played, tmp_path, **change)) if not finding.good]
    assert len(bad) == 1 and said in bad[0].found and bad[0].mend


def test_the_doctor_names_the_permissions_that_an_app_lacks(played: StandIn, tmp_path: Path) -> None:
    played.app_permissions = {"checks": "read", "metadata": "read", "contents": "read", "pull_requests": "write"}
    bad = [finding for finding in github(settings(played, tmp_path)) if not finding.good]
    assert "checks: write (check runs)" in bad[0].found and "issues: write" in bad[0].found
    assert "pull_requests" not in bad[0].found


def test_who_does_without_github_is_told_nothing(tmp_path: Path) -> None:
    assert list(github(Settings(github_webhook_secret=None, github_token=None, github_app_id=None))) == []
