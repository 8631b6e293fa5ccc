"""Signing in through a provider, as a browser does it: cookies, redirects, and who it is afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy import Engine, text

from backend.api import create_api
from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.store.base import people
from tests.backend.identity.provider_of_tests import CLIENT_ID, CLIENT_SECRET, TestProvider, running_provider
from tests.backend.people_of_tests import make_project
from tests.conftest import LiveServer, ServeApp


@pytest.fixture(scope="module")
def provider() -> Iterator[TestProvider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def server(
    provider: TestProvider, service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp
) -> Iterator[LiveServer]:
    provider.broken = ""
    app = create_api(service_config, committing_engine)
    with serve_app(app, committing_engine, service_config) as made:
        config = replace(
            service_config,
            public_url=made.url,
            openid_issuer=provider.url,
            openid_client_id=CLIENT_ID,
            openid_client_secret=CLIENT_SECRET,
            github_client_id=CLIENT_ID,
            github_client_secret=CLIENT_SECRET,
            github_api_url=f"{provider.url}/api/v3",
        )
        with serve_app(create_api(config, committing_engine), committing_engine, config) as real:
            real.app.state.config = replace(config, public_url=real.url)
            yield replace(real, config=real.app.state.config)


@contextmanager
def browser(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False, verify=False, follow_redirects=True) as client:
        yield client


@pytest.mark.parametrize(("key", "login"), [("openid", "ada@example.org"), ("github", "ada")])
def test_a_browser_comes_back_signed_in_under_a_name(server: LiveServer, key: str, login: str) -> None:
    with browser(server) as ada:
        landed = ada.get(f"/sign-in/with/{key}")
        assert landed.status_code == 200 and landed.url.path == f"/sign-in/done/{key}"
        assert "tidemark_session" in ada.cookies and "tidemark_signing_in" not in ada.cookies
        assert landed.headers["cache-control"] == "no-store"
        (mine,) = ada.get("/api/v1/sign-ins").json()["items"]
        assert (mine["name"], mine["login"]) == ("Ada Lovelace", login) and "httpx" in mine["browser"]
        # With no role, they are nobody in particular.
        assert ada.get("/api/v1/tokens").status_code == 403
    with server.engine.connect() as c:
        assert c.execute(text("SELECT action, actor FROM audit_event")).all() == [
            ("sign-in", f"Ada Lovelace ({login})")
        ]


def test_who_was_named_as_a_member_is_one_when_they_sign_in(server: LiveServer) -> None:
    number = make_project(server.engine, "secret/one", private=True)
    with server.engine.begin() as c:
        named = people.name_account(c, "openid", "ada@example.org", datetime.now(UTC))
        people.set_role(c, named, number, "viewer", datetime.now(UTC))
    with browser(server) as ada:
        assert ada.get("/api/v1/projects/secret/one").status_code == 404
        ada.get("/sign-in/with/openid")
        assert ada.get("/api/v1/projects/secret/one").status_code == 200


@pytest.mark.parametrize("broken", ["state", "denied", "nonce", "audience", "expired", "another key"])
def test_what_a_provider_does_wrong_signs_nobody_in(server: LiveServer, provider: TestProvider, broken: str) -> None:
    provider.broken = broken
    with browser(server) as ada:
        refused = ada.get("/sign-in/with/openid")
        assert refused.status_code == 403 and "you are not signed in" in refused.json()["detail"]
        assert "tidemark_session" not in ada.cookies


def test_an_answer_that_somebody_else_got_signs_nobody_in(server: LiveServer) -> None:
    """Login by force: the victim is sent the address that the attacker's own sign-in ended at."""
    with browser(server) as attacker, browser(server) as victim:
        attacker.follow_redirects = False
        there = attacker.get("/sign-in/with/openid").headers["location"]
        back = httpx.get(there, follow_redirects=False).headers["location"]
        refused = victim.get(back)
        assert refused.status_code == 403 and "did not start" in refused.json()["detail"]
        victim.follow_redirects = False
        victim.get("/sign-in/with/openid")
        refused = victim.get(back)
        assert refused.status_code == 403 and "another browser" in refused.json()["detail"]
        # Nor one of another provider.
        assert victim.get(back.replace("/openid", "/github")).status_code == 403
        assert "tidemark_session" not in victim.cookies


def test_a_way_to_sign_in_that_is_not_there_is_not_found(server: LiveServer) -> None:
    with browser(server) as ada:
        answer = ada.get("/sign-in/with/facebook")
        assert answer.status_code == 404 and "openid, github" in answer.json()["detail"]


def test_a_link_of_the_launcher_signs_in_an_administrator_of_that_name(server: LiveServer) -> None:
    with server.engine.begin() as c:
        link = access.create_sign_in_link(c, server.config, datetime.now(UTC), "Grace")
    with browser(server) as grace:
        grace.get(link, follow_redirects=False)
        assert [each["name"] for each in grace.get("/api/v1/sign-ins").json()["items"]] == ["Grace"]
        assert grace.get("/api/v1/tokens").status_code == 200
        assert [each["role"] for each in grace.get("/api/v1/members").json()["items"]] == ["admin"]
