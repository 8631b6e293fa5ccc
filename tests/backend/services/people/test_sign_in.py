"""Which ways to sign in there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backend.services.base.config import ServiceConfig
from backend.services.people.sign_in import come_back, providers_of

CONFIG = ServiceConfig(
    database_url="postgresql://", redis_url="redis://", data_dir=Path("/nowhere"), public_url="https://t.example/"
)


def test_a_provider_is_there_where_all_that_it_needs_is_set() -> None:
    assert providers_of(CONFIG) == {}
    assert providers_of(replace(CONFIG, openid_issuer="https://id.example", openid_client_id="x")) == {}
    both = replace(
        CONFIG,
        openid_issuer="https://id.example",
        openid_client_id="x",
        openid_client_secret="y",
        github_client_id="x",
        github_client_secret="y",
    )
    assert [*providers_of(both)] == ["openid", "github"]


def test_the_browser_comes_back_to_the_public_address() -> None:
    github = providers_of(replace(CONFIG, github_client_id="x", github_client_secret="y"))["github"]
    assert come_back(CONFIG, github) == "https://t.example/sign-in/done/github"
