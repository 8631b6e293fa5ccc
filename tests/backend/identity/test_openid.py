"""Signing in by an OpenID provider that speaks real HTTP and signs its tokens, also where it lies."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey

from backend.identity import openid
from backend.identity.openid import OpenIdProvider
from backend.identity.provider import ProviderIdentity, Refused, SignInAttempt
from tests.backend.identity.provider_of_tests import CLIENT_ID, CLIENT_SECRET, TestProvider, running_provider

BACK = "http://127.0.0.1:1/sign-in/done/openid"


@pytest.fixture
def provider() -> Iterator[TestProvider]:
    with running_provider() as running:
        yield running


def signing_in(provider: TestProvider) -> OpenIdProvider:
    return OpenIdProvider(provider.url, CLIENT_ID, CLIENT_SECRET, "the tests")


def come_back(of: OpenIdProvider, attempt: SignInAttempt) -> str:
    """The code that the browser brings back."""
    sent = httpx.get(of.address(attempt, BACK), follow_redirects=False)
    answer = {name: values[0] for name, values in parse_qs(urlsplit(sent.headers["location"]).query).items()}
    attempt.check_state(answer["state"])
    return answer.get("code", "")


def sign_in(of: OpenIdProvider) -> ProviderIdentity:
    attempt = SignInAttempt.begin()
    return of.identify(attempt, come_back(of, attempt), BACK)


def test_a_person_is_who_the_provider_vouches_for(provider: TestProvider) -> None:
    ada = sign_in(signing_in(provider))
    assert ada == ProviderIdentity(
        provider="openid", subject=provider.subject, login="ada@example.org", name="Ada Lovelace"
    )
    (asked,) = provider.seen
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert {"state", "nonce", "code_challenge"} <= asked.keys() and "openid" in asked["scope"].split()


@pytest.mark.parametrize(
    "broken",
    ["nonce", "no nonce", "audience", "audiences", "issuer", "expired", "not yet", "nobody", "another key",
     "not signed", "signed with the client's secret", "no ID token", "issuer of the metadata"],
)  # fmt: skip
def test_a_token_that_is_not_ours_of_now_and_of_this_browser_is_refused(provider: TestProvider, broken: str) -> None:
    provider.broken = broken
    with pytest.raises(Refused):
        sign_in(signing_in(provider))


def test_a_code_works_once_and_for_who_began(provider: TestProvider) -> None:
    of = signing_in(provider)
    mine, theirs = SignInAttempt.begin(), SignInAttempt.begin()
    with pytest.raises(Refused, match="invalid_grant"):
        of.identify(theirs, come_back(of, mine), BACK)  # PKCE: the verifier is the other's
    code = come_back(of, mine)
    of.identify(mine, code, BACK)
    with pytest.raises(Refused, match="invalid_grant"):
        of.identify(mine, code, BACK)


def test_an_address_that_is_not_verified_names_nobody(provider: TestProvider) -> None:
    for verified in (False, "true", None):
        provider.claims["email_verified"] = verified
        assert sign_in(signing_in(provider)).login == provider.subject


def test_a_subject_that_looks_like_an_address_is_not_who_has_it(provider: TestProvider) -> None:
    provider.claims["email_verified"] = False
    provider.subject = "boss@example.org"
    assert sign_in(signing_in(provider)).login == "sub:boss@example.org"


def test_a_provider_that_tells_addresses_elsewhere_is_asked_there(provider: TestProvider) -> None:
    provider.claims = {"preferred_username": "ada"}
    ada = sign_in(signing_in(provider))
    assert (ada.login, ada.name) == ("told@example.org", "ada")


def test_a_new_key_of_the_provider_is_found(provider: TestProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    of = signing_in(provider)
    sign_in(of)
    provider.key = RSAKey.generate_key(2048, {"kid": "two"})
    monkeypatch.setattr(openid, "ASK_AGAIN_S", 0.0)
    sign_in(of)


def test_a_provider_that_is_not_there_is_a_refusal_and_no_failure() -> None:
    of = OpenIdProvider("http://127.0.0.1:1", CLIENT_ID, CLIENT_SECRET, "the tests")
    with pytest.raises(Refused, match="gave no usable answer"):
        of.address(SignInAttempt.begin(), BACK)
