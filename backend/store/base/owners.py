"""The project that something belongs to: a run, a series, a regression, by its key in an address."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, text

from backend.store.base import wire


class Owner(NamedTuple):
    """A project, as far as rights depend on it."""

    id: int
    private: bool


def _of(table: str, key: str = "id") -> str:
    return f"SELECT p.id, p.private FROM {table} t JOIN project p ON p.id = t.project_id WHERE t.{key} = %(key)s"


OF: Mapping[str, str] = {
    "project": "SELECT id, private FROM project WHERE slug = %(key)s",
    "run": _of("run"),
    "series": _of("series"),
    "regression": _of("regression"),
    "session": _of("session"),
    "bisection": _of("bisection"),
    "backfill": _of("backfill"),
    "worker": _of("worker", "name"),
}
NUMBERED = frozenset({"series", "regression"})
_BY_ID = text("SELECT id, private FROM project WHERE id = :id")
_HIDDEN = text("SELECT EXISTS (SELECT FROM project WHERE private AND id <> ALL(:seen))")
_VISIBLE = "SELECT id FROM project WHERE (%(open)s AND NOT private) OR id = ANY(%(seen)s)"


def owner_of(c: Connection, kind: str, key: str) -> Owner | None:
    """The project of a thing; None: there is no such thing, or it is no project's."""
    if kind in NUMBERED and not (key.isascii() and key.isdigit() and int(key) < 2**31):
        return None
    (rows,) = wire.send(c, (OF[kind], {"key": int(key) if kind in NUMBERED else key}))
    return Owner(*rows[0]) if rows else None


def project_by_id(c: Connection, project_id: int) -> Owner | None:
    found = c.execute(_BY_ID, {"id": project_id}).one_or_none()
    return None if found is None else Owner(*found)


def is_any_hidden(c: Connection, seen: list[int]) -> bool:
    """Whether there is a private project besides those `seen`."""
    return bool(c.execute(_HIDDEN, {"seen": seen}).scalar_one())


def visible(c: Connection, *, open: bool, seen: list[int]) -> frozenset[int]:
    """The projects that are not private, where these are `open` to who asks, and those `seen`."""
    (rows,) = wire.send(c, (_VISIBLE, {"open": open, "seen": seen}))
    return frozenset(row.id for row in rows)
