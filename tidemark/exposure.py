"""Checks a service before it listens to more than its own machine."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from tidemark.refusal import Refusal
from tidemark.settings import LOOPBACK, Settings

SHORTEST_SECRET = 16
# What stands in examples, and what people type in place of a secret.
WELL_KNOWN = frozenset(
    "admin change-me change_me changeme default example password pass postgres redis secret test tidemark token".split()
)


def is_exposed(settings: Settings) -> bool:
    """Whether anybody but this machine is served: by where it listens, or by the address that people use."""
    return settings.host not in LOOPBACK or urlsplit(settings.address).hostname not in LOOPBACK


def check(settings: Settings) -> None:
    """Refuse to serve others without a way to sign in, or with secrets that anybody could guess."""
    _check_pairs(settings)
    if not is_exposed(settings):
        return
    found = [*_no_way_to_sign_in(settings), *_weak_secrets(settings)]
    if found:
        where = f"{settings.host}:{settings.port}, as {settings.address}"
        raise Refusal(f"this would serve others than this machine ({where}): " + "; ".join(found))


def _check_pairs(settings: Settings) -> None:
    """Half of what a way to sign in needs is a mistake worth a word."""
    openid = {
        "TIDEMARK_OIDC_ISSUER": settings.oidc_issuer,
        "TIDEMARK_OIDC_CLIENT_ID": settings.oidc_client_id,
        "TIDEMARK_OIDC_CLIENT_SECRET": settings.oidc_client_secret,
    }
    github = {
        "TIDEMARK_GITHUB_CLIENT_ID": settings.github_client_id,
        "TIDEMARK_GITHUB_CLIENT_SECRET": settings.github_client_secret,
    }
    for way in (openid, github):
        missing = [name for name, value in way.items() if not value]
        if missing and len(missing) < len(way):
            raise Refusal(f"{' and '.join(missing)} not set: signing in needs {', '.join(way)}")
    issuer = urlsplit(settings.oidc_issuer or "https://none")
    if issuer.scheme != "https" and not (issuer.scheme == "http" and issuer.hostname in LOOPBACK):
        raise Refusal(f"TIDEMARK_OIDC_ISSUER is {settings.oidc_issuer!r}: accepted is an address with https://")


def _no_way_to_sign_in(settings: Settings) -> list[str]:
    if settings.oidc_issuer or settings.github_client_id or settings.sign_in == "links":
        return []
    return [
        "nobody could sign in: set TIDEMARK_OIDC_ISSUER, _CLIENT_ID and _CLIENT_SECRET for an OpenID provider, "
        "TIDEMARK_GITHUB_CLIENT_ID and _CLIENT_SECRET for GitHub, or TIDEMARK_SIGN_IN=links where the links of "
        "`tidemark sign-in` are enough"
    ]


def _weak_secrets(settings: Settings) -> list[str]:
    database = urlsplit(settings.database_url or "")
    broker = urlsplit(settings.redis_url or "")
    secrets = {
        "TIDEMARK_GITHUB_WEBHOOK_SECRET": settings.github_webhook_secret,
        "TIDEMARK_OIDC_CLIENT_SECRET": settings.oidc_client_secret,
        "TIDEMARK_GITHUB_CLIENT_SECRET": settings.github_client_secret,
        "TIDEMARK_TOKEN": settings.token,
    }
    found = [
        f"{name} is {_why_weak(value)}: set {SHORTEST_SECRET} characters of chance or more (openssl rand -hex 32)"
        for name, value in secrets.items()
        if value is not None and _why_weak(value)
    ]
    for name, address in (("TIDEMARK_DATABASE_URL", database), ("TIDEMARK_REDIS_URL", broker)):
        password = unquote(address.password or "")
        if password.lower() in WELL_KNOWN:
            found.append(f"the password in {name} is publicly known: set another one")
    return found


def _why_weak(secret: str) -> str:
    if secret.lower() in WELL_KNOWN:
        return "a word that everyone tries first"
    return f"only {len(secret)} characters long" if len(secret) < SHORTEST_SECRET else ""
