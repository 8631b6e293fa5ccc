"""Who may make and change a project."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from backend.services.base import projects
from backend.services.base.errors import Forbidden
from backend.services.base.principal import MemberRole
from backend.services.people import saved_projects
from tests.backend.people_of_tests import ROOT, only

NOW = datetime.now(UTC)


def test_an_administrator_of_a_project_changes_it_but_not_what_endangers_workers(connection: Connection) -> None:
    mine = saved_projects.save(connection, ROOT, "a/b", now=NOW).id
    ada = only(MemberRole.ADMIN, mine)
    saved_projects.save(connection, ada, "a/b", private=True, default_branch="trunk", trusted=False, now=NOW)
    assert projects.find_project(connection, "a/b").private
    with pytest.raises(Forbidden, match="administrators of the service"):
        saved_projects.save(connection, ada, "a/b", trusted=True, now=NOW)
    saved_projects.save(connection, ROOT, "a/b", trusted=True, repository_url="https://example.org/a.git", now=NOW)
    for elsewhere in ("file:///var/lib/tidemark/mirrors/1.git", "https://example.org/secret.git", None):
        with pytest.raises(Forbidden, match="where the repository"):
            saved_projects.save(connection, ada, "a/b", repository_url=elsewhere, now=NOW)
    saved_projects.save(connection, ada, "a/b", repository_url="https://example.org/a.git", now=NOW)
    with pytest.raises(Forbidden):
        saved_projects.save(connection, ada, "new/one", now=NOW)
    with pytest.raises(Forbidden):
        saved_projects.save(connection, only(MemberRole.TRIAGER, mine), "a/b", private=False, now=NOW)
