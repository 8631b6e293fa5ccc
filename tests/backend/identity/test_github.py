"""Signing in by GitHub."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from backend.identity.github import GitHubProvider
from backend.identity.provider import ProviderIdentity, Refused, SignInAttempt
from tests.backend.identity.provider_of_tests import CLIENT_ID, CLIENT_SECRET, running_provider

BACK = "http://127.0.0.1:1/sign-in/done/github"


def test_a_person_is_their_number_on_github_and_called_by_their_login() -> None:
    with running_provider() as running:
        github, attempt = GitHubProvider(CLIENT_ID, CLIENT_SECRET, f"{running.url}/api/v3"), SignInAttempt.begin()
        sent = httpx.get(github.address(attempt, BACK), follow_redirects=False)
        code = parse_qs(urlsplit(sent.headers["location"]).query)["code"][0]
        with pytest.raises(Refused, match="invalid_grant"):
            github.identify(SignInAttempt.begin(), "invented", BACK)
        ada = github.identify(attempt, code, BACK)
        assert ada == ProviderIdentity(provider="github", subject="7", login="ada", name="Ada Lovelace")
        with pytest.raises(Refused, match="invalid_grant"):
            github.identify(attempt, code, BACK)
        assert "code_challenge" in running.seen[0]


@pytest.mark.parametrize("user", [{}, {"id": "7", "login": "ada"}, {"id": 7}])
def test_an_answer_that_names_nobody_is_refused(user: dict[str, object]) -> None:
    with running_provider() as running:
        running.user = user
        github, attempt = GitHubProvider(CLIENT_ID, CLIENT_SECRET, f"{running.url}/api/v3"), SignInAttempt.begin()
        sent = httpx.get(github.address(attempt, BACK), follow_redirects=False)
        code = parse_qs(urlsplit(sent.headers["location"]).query)["code"][0]
        with pytest.raises(Refused, match="did not say who"):
            github.identify(attempt, code, BACK)


def test_an_enterprise_server_signs_in_at_its_own_address() -> None:
    assert GitHubProvider("x", "y").web_url == "https://github.com"
    assert GitHubProvider("x", "y", "https://git.example.org/api/v3").web_url == "https://git.example.org"
