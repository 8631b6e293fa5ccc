"""Tokens are made and revoked by who administers what they reach."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from backend.services.base import projects
from backend.services.base.errors import Forbidden, NotFound
from backend.services.base.principal import MemberRole
from backend.services.people import tokens
from tests.backend.people_of_tests import ROOT, only

NOW = datetime.now(UTC)


def test_an_administrator_of_a_project_makes_tokens_of_that_one_alone(connection: Connection) -> None:
    mine = projects.save_project(connection, "a/b", now=NOW).id
    projects.save_project(connection, "c/d", now=NOW)
    ada = only(MemberRole.ADMIN, mine)
    made = tokens.make(connection, ada, "ci", ["submit"], project="a/b", now=NOW)
    theirs = tokens.make(connection, ROOT, "ci", ["submit"], project="c/d", now=NOW)
    for project in ("c/d", None):
        with pytest.raises(Forbidden):
            tokens.make(connection, ada, "ci", ["submit"], project=project, now=NOW)
    assert [row.id for row in tokens.listed(connection, ada)] == [made.id]
    with pytest.raises(NotFound):
        tokens.revoke(connection, ada, theirs.id, now=NOW)
    tokens.revoke(connection, ada, made.id, now=NOW)
    assert [row.revoked_at is None for row in tokens.listed(connection, ROOT)] == [False, True]


@pytest.mark.parametrize("role", [MemberRole.VIEWER, MemberRole.SUBMITTER, MemberRole.TRIAGER])
def test_nobody_below_sees_or_makes_any(connection: Connection, role: MemberRole) -> None:
    mine = projects.save_project(connection, "a/b", now=NOW).id
    with pytest.raises(Forbidden):
        tokens.listed(connection, only(role, mine))
    with pytest.raises(Forbidden):
        tokens.make(connection, only(role, mine), "ci", ["read"], project="a/b", now=NOW)
