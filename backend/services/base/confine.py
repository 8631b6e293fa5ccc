"""A token of one project sees that project only: what an address names must be the project's, whatever the route."""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from backend.services.base.access import Principal
from backend.services.base.errors import Forbidden, shown
from backend.services.base.scope import storable
from backend.store.base import owners

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
# What exists for everybody is refused to who is of one project; a thing that does not exist is left to the route.
SHARED = frozenset({"project", "worker"})


def confine(c: Connection, principal: Principal, named: Iterable[tuple[str, str]]) -> bool:
    """Refuse a token of another project than that of everything `named` (name in the address, its value).

    False: the token is of one project, and nothing was named that could be another's.
    """
    if principal.project_id is None:
        return True
    things = [(NAMES[name], storable(value)) for name, value in named if name in NAMES]
    for kind, key in things:
        if kind in owners.NUMBERED and not (key.isascii() and key.isdigit()):
            # Routes read "+5", "5.0" and " 5" as 5; what is looked up here must be what they find.
            raise Forbidden(f"token {principal.name!r} belongs to one project, and {shown(key)} is not plain digits")
        owner = owners.project_of(c, kind, key)
        if owner != principal.project_id and (owner is not None or kind in SHARED):
            raise Forbidden(f"token {principal.name!r} belongs to another project")
    return bool(things)


def check_worker(c: Connection, principal: Principal, name: str) -> None:
    """Refuse a token of one project a worker that is not only that project's."""
    if principal.project_id is not None and owners.project_of(c, "worker", name) != principal.project_id:
        raise Forbidden(f"worker {name!r} is not one of the project that token {principal.name!r} belongs to")
