"""A service that others reach does not start without a way to sign in, or with secrets that anybody guesses."""

from __future__ import annotations

import pytest

from tidemark import exposure
from tidemark.refusal import Refusal
from tidemark.settings import Settings

OPENID = {
    "oidc_issuer": "https://id.example.org",
    "oidc_client_id": "tidemark",
    "oidc_client_secret": "0123456789abcdef",
}
GITHUB = {"github_client_id": "Iv1.0", "github_client_secret": "0123456789abcdef"}
OUTSIDE = {"host": "0.0.0.0"}


def settings(monkeypatch: pytest.MonkeyPatch, **given: object) -> Settings:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TIDEMARK_{name.upper()}", raising=False)
    return Settings(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"github_webhook_secret": "secret"},
        {"database_url": "postgresql://tidemark:tidemark@db/tidemark"},
        OUTSIDE | {"sign_in": "links"},
        OUTSIDE | OPENID,
        OUTSIDE | GITHUB,
        OUTSIDE | GITHUB | {"public_read": True, "github_webhook_secret": "0123456789abcdef"},
        {"public_url": "https://tidemark.example.org"} | OPENID,
    ],
)
def test_it_starts_on_loopback_or_with_a_way_to_sign_in(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object]
) -> None:
    exposure.check(settings(monkeypatch, **given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (OUTSIDE, "nobody could sign in: set TIDEMARK_OIDC_ISSUER"),
        ({"public_url": "https://tidemark.example.org"}, "TIDEMARK_SIGN_IN=links"),
        (OUTSIDE | {"sign_in": "links", "github_webhook_secret": "secret"}, "TIDEMARK_GITHUB_WEBHOOK_SECRET is a word"),
        (OUTSIDE | {"sign_in": "links", "github_webhook_secret": "abc123"}, "only 6 characters long"),
        (OUTSIDE | OPENID | {"oidc_client_secret": "changeme"}, "TIDEMARK_OIDC_CLIENT_SECRET is a word"),
        (
            OUTSIDE | {"sign_in": "links", "database_url": "postgresql://tidemark:postgres@db/tidemark"},
            "the password in TIDEMARK_DATABASE_URL is publicly known",
        ),
        (OUTSIDE | {"sign_in": "links", "redis_url": "redis://:redis@redis:6379/0"}, "TIDEMARK_REDIS_URL"),
    ],
)
def test_else_it_says_why_not_and_what_to_set(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object], said: str
) -> None:
    with pytest.raises(Refusal, match="others than this machine") as refused:
        exposure.check(settings(monkeypatch, **given))
    assert said in str(refused.value)


@pytest.mark.parametrize("left_out", [*OPENID, *GITHUB])
def test_half_of_a_way_to_sign_in_is_refused_everywhere(monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    way = OPENID if left_out in OPENID else GITHUB
    given = {name: value for name, value in way.items() if name != left_out}
    with pytest.raises(Refusal, match=f"TIDEMARK_{left_out.upper()} not set"):
        exposure.check(settings(monkeypatch, **given))


def test_a_provider_is_asked_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="https://"):
        exposure.check(settings(monkeypatch, **OPENID | {"oidc_issuer": "http://id.example.org"}))
    exposure.check(settings(monkeypatch, **OPENID | {"oidc_issuer": "http://127.0.0.1:5556"}))
