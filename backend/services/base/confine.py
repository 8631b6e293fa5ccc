"""Limits a caller with rights in one project to it, whatever the route: by what an address or a body names.

About a project that a caller may not see, and what belongs to it, nothing is revealed: not even that it exists.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from backend.services.base.errors import Forbidden, NotFound, ServiceError, shown
from backend.services.base.principal import Principal, Scope, Via
from backend.services.base.reads import for_rights, is_of_replica
from backend.services.base.scope import storable
from backend.store.base import owners, projects
from backend.store.base.owners import Owner

SHOWN = 20
# The names that addresses use, in paths and in queries, and what each names.
NAMES: Mapping[str, str] = {
    "project": "project",
    "run_id": "run",
    "run": "run",
    "series_id": "series",
    "regression_id": "regression",
    "regression": "regression",
    "session_id": "session",
    "bisection_id": "bisection",
    "backfill_id": "backfill",
}
# What exists for everybody is refused to a token of one project; a thing that does not exist is left to the route.
SHARED = frozenset({"project", "worker"})


def confine(c: Connection, principal: Principal, named: Iterable[tuple[str, str]], scope: Scope = Scope.READ) -> bool:
    """Refuse callers who may not do this in the project of everything `named` (name in the address, its value).

    False: nothing was named, so the request is about all projects.
    """
    things = [(NAMES[name], storable(value)) for name, value in named if name in NAMES]
    for kind, key in things:
        owner = require_of(c, principal, scope, kind, key)
        if owner is None and kind == "project" and not sees_all(principal):
            # Said here, and as soon as of one that is hidden: who measures the time learns no more than who reads.
            raise unknown(c, kind, key)
    return bool(things)


def require_of(c: Connection, principal: Principal, scope: Scope, kind: str, key: str) -> Owner | None:
    """Refuse callers who may not do this in the project of an object; a missing one is reported by its reader. Returns
    the project, if it was looked up."""
    if kind in owners.NUMBERED and not (key.isascii() and key.isdigit()) and not sees_all(principal):
        # Routes read "+5", "5.0" and " 5" as 5; what is looked up here must be what they find.
        if principal.project_id is not None:
            raise Forbidden(f"token {principal.name!r} belongs to one project, and {shown(key)} is not plain digits")
        if any(character.isdigit() for character in key):
            raise NotFound.of(kind, key)
        return None  # it names nothing, which the route says in its own words
    if sees_all(principal) and principal.may(scope):
        return None
    with for_rights(c) as judged:
        owner = owners.owner_of(judged, kind, key)
    if owner is not None:
        if not principal.may_in(scope, owner) and not principal.may_in(Scope.READ, owner):
            raise _unseen(c, principal, owner, kind, key)
        principal.require_in(scope, owner)
    elif principal.project_id is not None and kind in SHARED:
        raise _of_another_project(principal, kind, key)
    elif kind not in SHARED and is_of_replica(c):
        raise NotFound.of(kind, key)  # it was removed; the replica may still have it, and does not say whose it was
    return owner


def require_in(c: Connection, principal: Principal, scope: Scope, project_id: int) -> None:
    """Refuse callers who may not do this in the project with this number."""
    with for_rights(c) as judged:
        owner = owners.project_by_id(judged, project_id)
    if owner is not None:
        principal.require_in(scope, owner)


def scope_of_deliverer(principal: Principal) -> Scope:
    """The scope needed to deliver results; a workflow's own token states its project more precisely."""
    if principal.via is Via.WORKFLOW:
        return Scope.READ
    return Scope.WORKER if principal.may_somewhere(Scope.WORKER) else Scope.SUBMIT


def require_deliverer(c: Connection, principal: Principal, project_id: int) -> None:
    """Refuse callers who may not deliver to the project with this number."""
    require_in(c, principal, scope_of_deliverer(principal), project_id)


def _unseen(c: Connection, principal: Principal, owner: Owner, kind: str, key: str) -> ServiceError:
    if principal.project_id is not None:
        return _of_another_project(principal, kind, key)
    if not owner.private:
        return Forbidden(f"{principal.name!r} has no role in that project")
    return unknown(c, kind, key)


def _of_another_project(principal: Principal, kind: str, key: str) -> Forbidden:
    """Says the same of a project whether there is such a one or not."""
    thing = shown(key) if kind == "project" else f"{kind} {shown(key)}"
    return Forbidden(f"token {principal.name!r} belongs to another project than {thing}")


def unknown(c: Connection, kind: str, key: str) -> NotFound:
    """The refusal of what does not exist, or is hidden from who asks."""
    with for_rights(c) as judged:
        return NotFound.of(kind, key, projects.slugs(judged, SHOWN) if kind == "project" else ())


def sees_all(principal: Principal) -> bool:
    """Whether no project, present or future, is hidden from them."""
    return principal.sees_private and principal.may(Scope.READ)


def hides_something(c: Connection, principal: Principal) -> bool:
    """Whether there is a project that they may not see."""
    if sees_all(principal):
        return False
    if principal.project_id is not None or not principal.may(Scope.READ):
        return True
    seen = [*principal.in_projects]
    with for_rights(c) as judged:
        # A private project that was just removed is no longer known to the primary, and still on the replica's pages.
        return any(owners.is_any_hidden(each, seen) for each in {c, judged})


def visible_projects(c: Connection, principal: Principal) -> frozenset[int] | None:
    """The numbers of the projects that they may see; None: all."""
    if sees_all(principal):
        return None
    if principal.project_id is not None:
        return frozenset({principal.project_id} if principal.may(Scope.READ) else ())
    with for_rights(c) as judged:
        return owners.visible(judged, open=principal.may(Scope.READ), seen=[*principal.in_projects])


def require_all(c: Connection, principal: Principal, scope: Scope) -> None:
    """Refuse a request about all projects to callers who may not do it in each of them, or may not see each."""
    if principal.project_id is not None:
        raise Forbidden(
            f"token {principal.name!r} belongs to one project, and this is about all of them; where `project` may be "
            "given, give it"
        )
    principal.require_everywhere(scope)
    if hides_something(c, principal):
        about = "this is about all projects, and some are private; where `project` may be given, give it"
        raise Forbidden(about if principal.via is not Via.ANONYMOUS else f"{about}, or sign in")


def check_worker(c: Connection, principal: Principal, name: str) -> None:
    """Refuse a project's worker to callers who may not see that project, and any other worker to a project's token."""
    with for_rights(c) as judged:
        owner = owners.owner_of(judged, "worker", name)
    if principal.project_id is not None and (owner is None or owner.id != principal.project_id):
        raise Forbidden(f"worker {name!r} is not one of the project that token {principal.name!r} belongs to")
    if owner is not None and not principal.may_in(Scope.READ, owner):
        raise NotFound.of("worker", name)
