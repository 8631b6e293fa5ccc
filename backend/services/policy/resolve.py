"""The policies of a project: the built-in ones, those of tidemark.toml, those chosen on the server; later ones win."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from backend.regression.policy import Override, PolicyBook, PolicyError, parse_overrides
from backend.store.policy import policies as store

Table = Mapping[str, Any]

log = logging.getLogger("tidemark.policies")


def policy_book(c: Connection, project: str) -> PolicyBook:
    """The effective policies of a project's series; the built-in thresholds if there is no such project (yet)."""
    tables = store.tables_of(c, project)
    return PolicyBook(project) if tables is None else book_of(project, tables)


def book_of(project: str, tables: store.Tables) -> PolicyBook:
    """The policies that these tables define."""
    return PolicyBook(project, overrides_of(tables), tables.points_per_week)


def book_of_run(
    run_id: str,
    project: str,
    *,
    declared: Table | None,
    suite: Table | None,
    chosen: Table | None,
    points_per_week: float | None,
) -> PolicyBook:
    """The policies that a run is judged by: the project's, overridden by what the suite of this very commit declares,
    and then by what a person chose."""
    tables = {"project": declared, "suite": suite, "chosen": chosen}
    overrides = _readable(tables, f"run {run_id} of {project}")
    return PolicyBook(project, overrides, points_per_week or 0.0)


def overrides_of(tables: store.Tables) -> tuple[Override, ...]:
    """All overrides of a project; later ones win."""
    return _readable({"tidemark.toml": tables.declared, "chosen": tables.chosen}, "a project")


def _readable(tables: Mapping[str, Table | None], what: str) -> tuple[Override, ...]:
    """The overrides in tables, by where they stand. A table that is none (any more) changes nothing: a result is never
    lost to a bad threshold."""
    found: list[Override] = []
    for where, table in tables.items():
        try:
            found += parse_overrides(table or {}, f"{where}.policy")
        except PolicyError as error:
            log.warning("%s is judged without its %s's policy: %s", what, where, error)
    return tuple(found)
