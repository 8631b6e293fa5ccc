"""What is recorded is what PostgreSQL and a spreadsheet can hold, whatever people write."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection

from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.base.audit import AuditFilter
from tests.backend.people_of_tests import ROOT

NOW = datetime.now(UTC)


def test_odd_text_is_kept_as_far_as_it_can_be(connection: Connection) -> None:
    audit.record(connection, ROOT, Did.DECIDED + "note", "R-\x00\ud800", now=NOW, note="\x00 \ud800 é", reason=None)
    (row,) = audit.trail(connection, AuditFilter(), 10)
    assert row.subject == "R-\ufffd?" and row.detail["note"].endswith("é") and "reason" not in row.detail
    assert (row.actor, row.via) == ("root", "command line")


def test_the_table_has_a_line_of_names_and_no_formulas(connection: Connection) -> None:
    audit.record(connection, ROOT, Did.MADE_TOKEN, "=1+1", now=NOW, project="a/b", scopes=("read",))
    head, line = audit.as_csv(audit.whole_trail(connection, AuditFilter())).splitlines()
    assert head == "id,at,actor,via,project,action,subject,detail"
    assert ",a/b,token.create,'=1+1," in line and '{""scopes"": [""read""]}' in line
