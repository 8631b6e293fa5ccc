"""The policies of a project: the built-in ones, those of tidemark.toml, and what was chosen; the later ones win."""

from __future__ import annotations

import logging

from sqlalchemy import Connection

from backend.regression.policy import Override, PolicyBook, PolicyError, parse_overrides
from backend.store.policy import policies as store

log = logging.getLogger("tidemark.policies")


def policy_book(c: Connection, project: str) -> PolicyBook:
    """What the next points of a project's series will be judged by; the built-in thresholds where there is no such
    project (yet)."""
    tables = store.tables_of(c, project)
    return PolicyBook(project) if tables is None else book_of(project, tables)


def book_of(project: str, tables: store.Tables) -> PolicyBook:
    """The policies that these tables make."""
    return PolicyBook(project, overrides_of(tables), tables.points_per_week)


def overrides_of(tables: store.Tables) -> tuple[Override, ...]:
    """All overrides of a project, the later ones winning. A table that is none (any more) changes nothing."""
    found: list[Override] = []
    for where, table in (("tidemark.toml", tables.declared), ("chosen", tables.chosen)):
        try:
            found += parse_overrides(table, f"{where}.policy")
        except PolicyError as error:
            log.warning("%s", error)
    return tuple(found)
