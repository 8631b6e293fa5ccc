"""Of a project that one may not see nothing is said, not even that it is there."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, text

from backend.services.base import confine, projects
from backend.services.base.errors import Forbidden, NotFound
from backend.services.base.principal import ANONYMOUS_READER, IMPLIED, MemberRole, Principal, Scope, Via
from tests.backend.people_of_tests import ROOT, only

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture
def secret(connection: Connection) -> int:
    projects.save_project(connection, "open/one", now=NOW)
    return projects.save_project(connection, "secret/one", private=True, now=NOW).id


def test_a_private_project_answers_as_one_that_does_not_exist(connection: Connection, secret: int) -> None:
    with pytest.raises(NotFound) as hidden:
        confine.confine(connection, ANONYMOUS_READER, [("project", "secret/one")])
    with pytest.raises(NotFound) as missing:
        projects.find_project(connection, "secret/two")
    assert hidden.value.detail == missing.value.detail.replace("two", "one")
    assert "secret/one'; known: open/one" in hidden.value.detail.replace('"', "'")
    assert confine.confine(connection, only(MemberRole.VIEWER, secret), [("project", "secret/one")])


def test_a_project_that_does_not_exist_is_refused_where_a_private_one_is(connection: Connection, secret: int) -> None:
    """Further on, the time that it takes would tell one from the other."""
    reader = Principal(name="x", via=Via.TOKEN, scopes=IMPLIED[Scope.READ])
    for principal in (ANONYMOUS_READER, reader, only(MemberRole.VIEWER, secret)):
        with pytest.raises(NotFound, match="known: open/one"):
            confine.confine(connection, principal, [("project", "secret/two")])
    assert confine.confine(connection, ROOT, [("project", "secret/two")])  # which is to be made


def test_what_belongs_to_a_private_project_is_not_there_either(connection: Connection, secret: int) -> None:
    connection.execute(text("INSERT INTO testbed (name) VALUES ('t1')"))
    number = connection.scalar(
        text(
            """INSERT INTO regression (project_id, testbed_id, state, first_bad_position)
               SELECT :project, id, 'confirmed', 1 FROM testbed RETURNING id"""
        ),
        {"project": secret},
    )
    for written in (str(number), f"+{number}", f"{number}.0", f" {number}"):
        with pytest.raises(NotFound, match="unknown regression"):
            confine.confine(connection, ANONYMOUS_READER, [("regression_id", written)])


def test_what_is_about_all_projects_needs_sight_of_all(connection: Connection, secret: int) -> None:
    reader = Principal(name="x", via=Via.TOKEN, scopes=IMPLIED[Scope.READ])
    confine.require_all(connection, ROOT, Scope.READ)
    for principal in (reader, ANONYMOUS_READER):
        with pytest.raises(Forbidden, match="some are private"):
            confine.require_all(connection, principal, Scope.READ)
    connection.execute(text("UPDATE project SET private = false"))
    confine.require_all(connection, reader, Scope.READ)


def test_everybody_sees_their_own_projects(connection: Connection, secret: int) -> None:
    opened = projects.find_project(connection, "open/one").id
    assert confine.visible_projects(connection, ROOT) is None
    assert confine.visible_projects(connection, ANONYMOUS_READER) == {opened}
    assert confine.visible_projects(connection, only(MemberRole.VIEWER, secret)) == {secret}
    token = Principal(name="x", via=Via.TOKEN, scopes=IMPLIED[Scope.READ], project_id=secret)
    assert confine.visible_projects(connection, token) == {secret}


def test_a_token_of_one_project_is_told_the_same_of_another_whether_it_exists_or_not(
    connection: Connection, secret: int
) -> None:
    mine = projects.save_project(connection, "mine/one", now=NOW).id
    token = Principal(name="x", via=Via.TOKEN, scopes=IMPLIED[Scope.WRITE], project_id=mine)
    said = []
    for name in ("open/one", "secret/one", "none/one"):
        with pytest.raises(Forbidden) as refused:
            confine.require_of(connection, token, Scope.WRITE, "project", name)
        said.append(refused.value.detail.replace(name, "…"))
    assert said == ["token 'x' belongs to another project than '…'"] * 3
