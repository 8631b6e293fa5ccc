"""Members: which person has which role, in one project or in all of them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from backend.identity.openid import UNVERIFIED
from backend.services.base.confine import require_all, require_of
from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.base.principal import OF_ROLE, MemberRole, Principal, Scope
from backend.services.base.projects import find_project
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.base import people as store
from backend.store.base.people import AccountRow, MemberRow

LOGIN = re.compile(r"[^\s\x00-\x1f\x7f/\\]{1,200}\Z")
GITHUB_LOGIN = re.compile(r"[0-9a-z](?:-?[0-9a-z])*(?:_[0-9a-z]+)?\Z")
PROVIDERS = ("openid", "github", "local")
MOST = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Who has a role in the project, and who has one in every project."""

    items: tuple[MemberRow, ...]
    next: str | None = None


def members(c: Connection, by: Principal, project: str | None) -> Members:
    """Those of a project, and of every one; without a project, the latter alone."""
    _require(c, by, Scope.READ if project else Scope.ADMIN, project)
    return Members(items=tuple(store.members(c, _number(c, project))))


def set_role(
    c: Connection, by: Principal, project: str | None, login: str, role: str, *, provider: str | None, now: datetime
) -> Members:
    """Give a person a role, or another one. Who has not signed in yet gets it when they do."""
    _require(c, by, Scope.ADMIN, project)
    if role not in set(MemberRole):
        raise BadRequest.field("role", role, [each.value for each in MemberRole])
    account = _account(c, login, provider, now)
    number = _number(c, project)
    before = store.role_of(c, account, number)
    if before == role:
        return members(c, by, project)
    if number is None and before == MemberRole.ADMIN:
        _keep_one(c)
    store.set_role(c, account, number, role, now)
    audit.record(c, by, Did.SET_ROLE, login, now=now, project=project, role=role, before=before)
    return members(c, by, project)


def remove_role(c: Connection, by: Principal, project: str | None, login: str, *, now: datetime) -> None:
    """Take a person's role back."""
    _require(c, by, Scope.ADMIN, project)
    number = _number(c, project)
    for account in store.with_login(c, login.strip()):
        before = store.role_of(c, account.id, number)
        if before is None:
            continue
        if number is None and before == MemberRole.ADMIN:
            _keep_one(c)
        store.remove_role(c, account.id, number)
        audit.record(c, by, Did.REMOVED_ROLE, login, now=now, project=project, before=before)
        return
    raise NotFound.of("member", login, [each.login for each in store.members(c, number)][:20])


def roles_of(by: Principal, names: Mapping[int, str]) -> list[tuple[str, str]]:
    """(where, role) of who asks, as words; `names` are those of projects."""
    found = [("of every project", by.scopes)] if by.may(Scope.ADMIN) else []
    found += [(f"of {names[number]}", held) for number, held in by.in_projects.items() if number in names]
    return [(where, _role(held)) for where, held in found]


def _role(held: Collection[Scope]) -> str:
    return next(role.value for role in reversed(MemberRole) if OF_ROLE[role] <= set(held))


def assignable(c: Connection) -> Sequence[AccountRow]:
    """Everybody who may be named as the one who looks into something: who signs in, and who is a member."""
    return store.accounts(c, MOST)


def name_of(c: Connection, text: str) -> str:
    """The name of whom this text names by login; else the text itself, which may be anybody's name."""
    found = store.with_login(c, text)
    return (found[0].name or found[0].login) if found else text


def name_of_assignee(c: Connection, login: str) -> str:
    """The name to show for a person with this login."""
    found = store.with_login(c, login.strip())
    if not found:
        raise NotFound.of("person", login, [each.login for each in store.accounts(c, 20)])
    return found[0].name or found[0].login


def _require(c: Connection, by: Principal, scope: Scope, project: str | None) -> None:
    if project is None:
        require_all(c, by, scope)
    else:
        require_of(c, by, scope, "project", project)


def _number(c: Connection, project: str | None) -> int | None:
    return None if project is None else find_project(c, project).id


def _account(c: Connection, login: str, provider: str | None, now: datetime) -> int:
    """The account of this login, made where there is none: of the OpenID provider for an address, else of GitHub."""
    login = login.strip()
    if provider is not None and provider not in PROVIDERS:
        raise BadRequest.field("provider", provider, PROVIDERS)
    if not LOGIN.match(login):
        raise BadRequest.field("login", login, "a GitHub login, or the address that the OpenID provider vouches for")
    found = store.with_login(c, login, provider)
    if len(found) > 1:
        raise Conflict(f"{login!r} signs in with {' and by '.join(each.provider for each in found)}; name the provider")
    if found:
        return found[0].id
    meant = provider or ("openid" if "@" in login else "github")
    if meant != "openid" or (not login.startswith(UNVERIFIED) and "@" in login):
        login = login.lower()  # as it will be when they sign in; the number that a provider has for somebody stays
    if meant == "github" and not GITHUB_LOGIN.match(login):
        raise BadRequest.field("login", login, "a GitHub login, or an address with @")
    return store.name_account(c, meant, login, now)


def _keep_one(c: Connection) -> None:
    if store.administrators(c) <= 1:
        raise Conflict("the service needs at least one administrator; make someone else one first")
