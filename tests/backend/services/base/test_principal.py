"""What a role allows, in one project and in others."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from backend.services.base.errors import Forbidden, Unauthenticated
from backend.services.base.principal import (
    ANONYMOUS,
    ANONYMOUS_READER,
    IMPLIED,
    OF_ROLE,
    MemberRole,
    Principal,
    Scope,
    Via,
)
from tests.backend.people_of_tests import only


@dataclass(frozen=True)
class Project:
    id: int
    private: bool = False


MINE, OTHER, SECRET = Project(1), Project(2), Project(3, private=True)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (MemberRole.VIEWER, {"read"}),
        (MemberRole.SUBMITTER, {"read", "submit"}),
        (MemberRole.TRIAGER, {"read", "submit", "write"}),
        (MemberRole.ADMIN, {"read", "submit", "write", "approve", "admin"}),
    ],
)
def test_what_a_role_allows_is_allowed_in_its_project_alone(role: MemberRole, may: set[str]) -> None:
    ada = only(role, MINE.id)
    assert {scope.value for scope in Scope if ada.may_in(scope, MINE)} == may
    assert not any(ada.may_in(scope, project) for scope in Scope for project in (OTHER, SECRET))
    assert not any(ada.may(scope) for scope in Scope)
    assert {scope.value for scope in Scope if ada.may_somewhere(scope)} == may


def test_each_role_may_what_those_before_it_may() -> None:
    held = [OF_ROLE[role] for role in MemberRole]
    assert all(less < more for less, more in pairwise(held))


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT, Scope.WRITE, Scope.APPROVE])
def test_a_token_of_all_projects_does_not_reach_a_private_one(scope: Scope) -> None:
    token = Principal(name="ci", via=Via.TOKEN, scopes=IMPLIED[scope])
    assert token.may_in(scope, OTHER) and not token.may_in(scope, SECRET)


@pytest.mark.parametrize("scope", [Scope.ADMIN, Scope.WORKER])
def test_who_administers_and_workers_reach_private_projects(scope: Scope) -> None:
    assert Principal(name="x", via=Via.TOKEN, scopes=IMPLIED[scope]).may_in(Scope.READ, SECRET)


def test_a_token_of_a_private_project_reaches_that_one() -> None:
    token = Principal(name="ci", via=Via.TOKEN, scopes=IMPLIED[Scope.WRITE], project_id=SECRET.id)
    assert token.may_in(Scope.WRITE, SECRET) and not token.may_in(Scope.READ, OTHER)
    with pytest.raises(Forbidden, match="belongs to another project"):
        token.require_in(Scope.WRITE, OTHER)
    with pytest.raises(Forbidden, match="belongs to one project"):
        token.require_everywhere(Scope.WRITE)


def test_who_is_refused_is_told_what_they_have_and_what_it_takes() -> None:
    with pytest.raises(Forbidden, match=r"'ada' has scopes read in this project; this needs 'write'"):
        only(MemberRole.VIEWER, MINE.id).require_in(Scope.WRITE, MINE)
    with pytest.raises(Forbidden, match="ada has no role for the whole service yet"):
        only(MemberRole.ADMIN, MINE.id).require_everywhere(Scope.ADMIN)
    with pytest.raises(Unauthenticated, match="signing in"):
        ANONYMOUS.require(Scope.READ)


def test_a_stranger_who_may_read_sees_no_private_project() -> None:
    assert ANONYMOUS_READER.may_in(Scope.READ, OTHER) and not ANONYMOUS_READER.may_in(Scope.READ, SECRET)


def test_the_record_names_a_person_by_what_nobody_else_can_call_themselves() -> None:
    ada = Principal(name="Grace", via=Via.SESSION, scopes=frozenset(), login="ada@example.org")
    assert ada.identity == "Grace (ada@example.org)"
    assert Principal(name="ci", via=Via.TOKEN, scopes=frozenset(), token_id=4).identity == "token ci (#4)"
