"""The audit trail is added to, and never changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from backend.store.base import audit
from backend.store.base.audit import AuditFilter

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def fill(c: Connection) -> None:
    for hour, (actor, project, action) in enumerate(
        [("ada", "a/b", "token.create"), ("bob", None, "worker.state"), ("ada", "c/d", "token.revoke")]
    ):
        audit.add(
            c, at=NOW + timedelta(hours=hour), actor=actor, via="session", project=project, action=action, subject="x"
        )


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_event SET actor = 'nobody'", "DELETE FROM audit_event", "TRUNCATE audit_event",
     "DELETE FROM audit_event WHERE false"],
)  # fmt: skip
def test_no_statement_changes_what_was_recorded(connection: Connection, statement: str) -> None:
    fill(connection)
    with pytest.raises(ProgrammingError, match="audit_event is append-only"), connection.begin_nested():
        connection.execute(text(statement))
    assert len(audit.read(connection, AuditFilter(), 10)) == 3


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AuditFilter(), ["token.revoke", "worker.state", "token.create"]),
        (AuditFilter(projects=("a/b",)), ["token.create"]),
        (AuditFilter(actor="AD"), ["token.revoke", "token.create"]),
        (AuditFilter(actor="%"), []),
        (AuditFilter(action="token."), ["token.revoke", "token.create"]),
        (AuditFilter(since=NOW + timedelta(hours=1), until=NOW + timedelta(hours=1)), ["worker.state"]),
    ],
)
def test_the_trail_is_filtered_the_newest_first(connection: Connection, wanted: AuditFilter, found: list[str]) -> None:
    fill(connection)
    assert [row.action for row in audit.read(connection, wanted, 10)] == found
    assert [row.action for row in audit.read_all(connection, wanted)] == found


def test_the_trail_is_read_page_by_page(connection: Connection) -> None:
    fill(connection)
    (first,) = audit.read(connection, AuditFilter(), 1)
    assert [row.action for row in audit.read(connection, AuditFilter(before=first.id), 1)] == ["worker.state"]
