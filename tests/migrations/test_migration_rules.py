"""New migrations can run while the version before them is at work."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import Connection, Engine, event

from backend.store.base import schema
from tests.migrations.migration_rules import broken

BEFORE_THE_RULES = "0023"  # which renames tables: from 0.1.0 the service is stopped for the upgrade
WITH_THE_SERVICE_STOPPED = {
    "0037": "writes every large table anew; the version before it is 0.1.0, from which the service is stopped anyway",
}
"""Migrations to which the rules do not apply, and why."""
KEY_OF_MEASUREMENTS = (
    "20 seconds on 10 million measurements of a busy machine; where the indexes were built before, a moment"
)
EXCUSED: dict[tuple[str, str], str] = {
    ("0024", "require-concurrent-index-creation"): "half a second on the 250,000 runs of 10 million measurements",
    ("0025", "require-concurrent-index-creation"): "two seconds on 50,000 commits; nothing else is written to them",
    ("0031", "adding-serial-primary-key-field"): KEY_OF_MEASUREMENTS,
    ("0031", "constraint-missing-not-valid"): KEY_OF_MEASUREMENTS,
}
"""(revision, rule) with the reason, such as how long it takes on how many rows."""


def statements_of(c: Connection, revision: str) -> list[str]:
    """What a migration sends, reads and Alembic's own bookkeeping left out."""
    sent: list[str] = []

    def hear(connection: Connection, cursor: object, statement: str, *_: object) -> None:
        if re.match(r"\s*(ALTER|CREATE|DROP|UPDATE|DELETE|INSERT|TRUNCATE|WITH)\b", statement, re.IGNORECASE):
            sent.append(statement)

    event.listen(c, "before_cursor_execute", hear)
    try:
        schema.upgrade(c, revision)
    finally:
        event.remove(c, "before_cursor_execute", hear)
    return [statement for statement in sent if "alembic_version" not in statement]


def test_every_new_migration_keeps_the_rules(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        schema.downgrade(c, BEFORE_THE_RULES)
        found = {
            (revision, rule): statement
            for revision in schema.pending(c)
            for rule, statement in broken(statements_of(c, revision))
            if revision not in WITH_THE_SERVICE_STOPPED
        }
    wrong = {key: statement for key, statement in found.items() if key not in EXCUSED}
    assert wrong == {}, "see 'Migrations' in docs/operations.md; what must be, with its reason, goes into EXCUSED"
    assert EXCUSED.keys() <= found.keys(), "an excuse that nothing needs"


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        ("adding-required-field", "ALTER TABLE series ADD COLUMN x int NOT NULL"),
        ("ban-drop-column", "ALTER TABLE worker DROP COLUMN version"),
        ("ban-drop-table", "DROP TABLE worker"),
        ("renaming-column", "ALTER TABLE worker RENAME COLUMN version TO release"),
        ("renaming-table", "ALTER TABLE worker RENAME TO runner"),
        ("changing-column-type", "ALTER TABLE worker ALTER COLUMN id TYPE bigint"),
        ("require-concurrent-index-creation", "CREATE INDEX ix ON judgement (run_id)"),
        ("constraint-missing-not-valid", "ALTER TABLE run ADD CONSTRAINT ck CHECK (attempt > 0)"),
        ("whole-table-write", "UPDATE judgement SET red = false"),
        ("whole-table-write", "DELETE FROM run"),
        ("syntax-error", "ALTER TABEL run ADD COLUMN x int"),
    ],
)
def test_what_would_stop_the_version_before_is_found(rule: str, statement: str) -> None:
    assert rule in {name for name, _ in broken([statement])}


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE series ADD COLUMN x int",
        "ALTER TABLE series ADD COLUMN x boolean NOT NULL DEFAULT false",
        "CREATE TABLE note (id bigint PRIMARY KEY, said text NOT NULL)",
        "CREATE INDEX ix ON worker (name)",
        "ALTER TABLE run ADD CONSTRAINT ck CHECK (attempt > 0) NOT VALID",
        "UPDATE worker SET state = 'ok'",
    ],
)
def test_what_takes_a_moment_and_leaves_the_old_in_place_is_allowed(statement: str) -> None:
    assert broken([statement]) == []
