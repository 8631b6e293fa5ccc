"""Signing in with a provider that authenticates people: which providers there are, and the resulting session."""

from datetime import datetime

from sqlalchemy import Connection

from backend.identity.github import GitHubProvider
from backend.identity.openid import OpenIdProvider
from backend.identity.provider import Provider, ProviderIdentity
from backend.services.base import access
from backend.services.base.access import SignedIn
from backend.services.base.config import ServiceConfig
from backend.services.base.principal import Principal, Via
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.base import people as store


def providers_of(config: ServiceConfig) -> dict[str, Provider]:
    """The providers with which people can sign in here, by their key in addresses."""
    found: list[Provider] = []
    if config.openid_issuer and config.openid_client_id and config.openid_client_secret:
        found.append(
            OpenIdProvider(
                config.openid_issuer, config.openid_client_id, config.openid_client_secret, config.openid_name
            )
        )
    if config.github_client_id and config.github_client_secret:
        found.append(GitHubProvider(config.github_client_id, config.github_client_secret, config.github_api_url))
    return {provider.key: provider for provider in found}


def come_back(config: ServiceConfig, provider: Provider) -> str:
    """Where the provider sends the browser afterwards."""
    return f"{config.public_url.rstrip('/')}/sign-in/done/{provider.key}"


def begin_session(c: Connection, who: ProviderIdentity, now: datetime, browser: str) -> SignedIn:
    """Sign in whom a provider vouches for; with the roles that they have here, or none."""
    account = store.signed_in(c, who.provider, subject=who.subject, login=who.login, name=who.name, now=now)
    signed_in = access.begin_session(c, account, now, browser)
    person = Principal(name=who.name, via=Via.SESSION, scopes=frozenset(), account_id=account, login=who.login)
    audit.record(c, person, Did.SIGNED_IN, who.provider, now=now)
    return signed_in


def open_link(c: Connection, secret: str, now: datetime, browser: str) -> SignedIn:
    """Sign in who opens a link that the launcher printed."""
    signed_in = access.sign_in(c, secret, now, browser)
    person = access.identify(c, authorization=None, session=signed_in.session, public_read=False, now=now)
    audit.record(c, person, Did.SIGNED_IN, "link", now=now)
    return signed_in
