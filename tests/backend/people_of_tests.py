"""People with roles, signed in as a browser is."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
from sqlalchemy import Connection, Engine

from backend.services.base import access, projects
from backend.services.base.principal import OF_ROLE, MemberRole, Principal, Scope, Via
from backend.store.base import people
from tests.conftest import LiveServer

ROOT = Principal(name="root", via=Via.COMMAND, scopes=frozenset(Scope))


def person(c: Connection, login: str, **roles: MemberRole | str) -> int:
    """An account; `roles` are by project, `everywhere` of all of them. Projects are named with _ for /."""
    now = datetime.now(UTC)
    account = people.signed_in(c, "openid", subject=login, login=login, name=login.partition("@")[0].title(), now=now)
    for place, role in roles.items():
        number = None if place == "everywhere" else projects.find_project(c, place.replace("_", "/")).id
        people.set_role(c, account, number, role, now)
    return account


def principal(c: Connection, login: str, **roles: MemberRole | str) -> Principal:
    """The same, as the service sees them."""
    account = person(c, login, **roles)
    session = access.begin_session(c, account, datetime.now(UTC)).session
    return access.identify(c, authorization=None, session=session, public_read=False, now=datetime.now(UTC))


def browser(server: LiveServer, login: str, **roles: MemberRole | str) -> httpx.Client:
    """A client that is signed in, and sends what one of our own pages sends."""
    with server.engine.begin() as c:
        session = access.begin_session(c, person(c, login, **roles), datetime.now(UTC), "Firefox 130").session
    return signed_in(server.url, session)


def signed_in(url: str, session: str) -> httpx.Client:
    client = httpx.Client(base_url=url, timeout=30, trust_env=False, verify=False)
    client.cookies.set(access.SESSION_COOKIE, session)
    client.headers.update({access.CSRF_HEADER: access.csrf_token(session), "Origin": url})
    return client


def make_project(engine: Engine, slug: str, *, private: bool = False) -> int:
    with engine.begin() as c:
        return projects.save_project(c, slug, private=private, now=datetime.now(UTC)).id


def only(role: MemberRole, project_id: int) -> Principal:
    """Somebody with this role in one project, and nothing else."""
    return Principal(name="ada", via=Via.SESSION, scopes=frozenset(), in_projects={project_id: OF_ROLE[role]})
