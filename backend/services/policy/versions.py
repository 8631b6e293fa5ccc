"""The versions of a project's policy: who changed what, when; and the thresholds of a stored version.

A judgement stores the version of its policy: a hash of all thresholds, which differ between series by scopes, by the
project's load and by a series' own false alarms. The tables are kept; they lead back to the thresholds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection

from backend.regression.policy import Policy, PolicyRow
from backend.services.policy.resolve import book_of, overrides_of
from backend.store.base import projects as project_store
from backend.store.policy import policies as store
from backend.store.policy.policies import Tables

KEPT = 50
"""Versions that are kept; those before them are forgotten."""
MOST_DOUBLINGS = 24
MOST_FALSE_ALARMS = 5
SETTING = "policy_versions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """A policy effective from a moment on. `version`: of a series that no scope matches, before any load."""

    version: str
    at: datetime
    by: str
    declared: Mapping[str, Any]
    chosen: Mapping[str, Any]


def note_version(c: Connection, project_id: int, slug: str, *, by: str, now: datetime) -> None:
    """Keep what is in force from now on. Called after every change, by tidemark.toml or by a person."""
    project = project_store.by_id(c, project_id)
    assert project is not None  # its policy has just been changed
    tables = store.tables(c, project_id)
    version = book_of(slug, tables).before_load().version
    entry = {"version": version, "at": now.isoformat(), "by": by, "declared": tables.declared, "chosen": tables.chosen}
    kept = [*project.settings.get(SETTING, []), entry][-KEPT:]
    project_store.set_setting(c, project_id, SETTING, kept)


def versions_of(settings: Mapping[str, Any]) -> tuple[PolicyVersion, ...]:
    """Every version that is kept, the newest first."""
    return tuple(
        PolicyVersion(
            version=entry["version"],
            at=datetime.fromisoformat(entry["at"]),
            by=entry["by"],
            declared=entry["declared"],
            chosen=entry["chosen"],
        )
        for entry in reversed(settings.get(SETTING, []))
    )


class PolicyScope(NamedTuple):
    """The names of a series by which overrides of a policy apply to it."""

    project: str
    suite: str
    benchmark: str
    metric: str
    testbed: str


def thresholds_of(c: Connection, project_id: int, version: str, scope: PolicyScope) -> tuple[PolicyRow, ...] | None:
    """Of the policy that a point of this series was judged by: the thresholds that are not the built-in ones.

    None: it is of a time before the versions that are kept, or a suite's own of one commit.
    """
    known = tuple(json.dumps(tables, sort_keys=True) for tables in _tables(c, project_id))
    return _search(known, version, scope)


def _tables(c: Connection, project_id: int) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Policy tables: the present ones, the ones before, and empty ones."""
    present = store.tables(c, project_id)
    yield present.declared, present.chosen
    project = project_store.by_id(c, project_id)
    for known in versions_of({} if project is None else project.settings):
        yield known.declared, known.chosen
    yield {}, {}


@lru_cache(maxsize=256)  # what is found nowhere has been compared with thousands of policies; each holds all tables
def _search(known: tuple[str, ...], version: str, scope: PolicyScope) -> tuple[PolicyRow, ...] | None:
    for declared, chosen in map(json.loads, dict.fromkeys(known)):
        own = Policy.resolve(overrides_of(Tables(declared, chosen, 0.0)), **scope._asdict())
        for policy in _derived(own):
            if policy.version == version:
                return tuple(row for row in policy.describe() if row.overridden)
    return None


def _derived(policy: Policy) -> Iterator[Policy]:
    """The policy itself, and what a load and false alarms of a series make of it."""
    loaded: Sequence[Policy] = list(dict.fromkeys([policy, *(policy.for_load(2**n) for n in range(MOST_DOUBLINGS))]))
    for alarms in range(MOST_FALSE_ALARMS + 1):
        yield from (each.after_false_alarms(alarms) for each in loaded)
