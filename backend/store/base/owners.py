"""Whose a thing is: the project of a run, a series, a regression, by the key that stands in an address."""

from collections.abc import Mapping

from sqlalchemy import Connection, TextClause, text

OF: Mapping[str, TextClause] = {
    "project": text("SELECT id FROM project WHERE slug = :key"),
    "run": text("SELECT project_id FROM run WHERE id = :key"),
    "series": text("SELECT project_id FROM series WHERE id = :key"),
    "regression": text("SELECT project_id FROM regression WHERE id = :key"),
    "session": text("SELECT project_id FROM session WHERE id = :key"),
    "bisection": text("SELECT project_id FROM bisection WHERE id = :key"),
    "backfill": text("SELECT project_id FROM backfill WHERE id = :key"),
    "worker": text("SELECT project_id FROM worker WHERE name = :key AND project_id IS NOT NULL"),
}
NUMBERED = frozenset({"series", "regression"})


def project_of(c: Connection, kind: str, key: str) -> int | None:
    """The project's id; None: there is no such thing, or it is no project's."""
    if kind in NUMBERED and not (key.isascii() and key.isdigit() and int(key) < 2**31):
        return None
    found = c.execute(OF[kind], {"key": int(key) if kind in NUMBERED else key}).scalar_one_or_none()
    return None if found is None else int(found)
