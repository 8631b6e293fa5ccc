"""Which thresholds are in force: the built-in ones, those of tidemark.toml, and what was chosen; the later ones win."""

from __future__ import annotations

import logging

from sqlalchemy import Connection

from backend.regression.policy import Override, Policy, PolicyError, parse_overrides
from backend.store.policy import policies as store

log = logging.getLogger("tidemark.policies")


def overrides_of(tables: store.Tables) -> tuple[Override, ...]:
    """All overrides of a project, the later ones winning. A table that is none (any more) changes nothing."""
    found: list[Override] = []
    for where, table in (("tidemark.toml", tables.declared), ("chosen", tables.chosen)):
        try:
            found += parse_overrides(table, f"{where}.policy")
        except PolicyError as error:
            log.warning("%s", error)
    return tuple(found)


def policy_in_force(
    c: Connection, project_id: int, *, project: str, suite: str, benchmark: str, metric: str, testbed: str
) -> Policy:
    """What the next point of a series will be judged by."""
    tables = store.tables(c, project_id)
    return Policy.resolve(
        overrides_of(tables), project=project, suite=suite, benchmark=benchmark, metric=metric, testbed=testbed
    ).for_load(tables.points_per_week)
