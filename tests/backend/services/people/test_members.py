"""Which account a login means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from backend.services.base.errors import Conflict
from backend.services.people import members
from backend.store.base import people
from tests.backend.people_of_tests import ROOT, principal

NOW = datetime.now(UTC)


@pytest.mark.parametrize(("login", "provider"), [("ada@example.org", "openid"), ("ada", "github")])
def test_who_has_an_at_signs_in_by_the_openid_provider_and_others_by_github(
    connection: Connection, login: str, provider: str
) -> None:
    found = members.set_role(connection, ROOT, None, login, "viewer", provider=None, now=NOW)
    assert [(it.login, it.provider) for it in found.items] == [(login, provider)]


def test_a_login_that_means_two_people_is_refused_until_the_provider_is_named(connection: Connection) -> None:
    for provider in ("github", "openid"):
        people.signed_in(connection, provider, subject="7", login="ada", name="Ada", now=NOW)
    with pytest.raises(Conflict, match="name the provider"):
        members.set_role(connection, ROOT, None, "ada", "viewer", provider=None, now=NOW)
    members.set_role(connection, ROOT, None, "ada", "viewer", provider="openid", now=NOW)


@pytest.mark.parametrize("has_signed_in", [True, False])
def test_who_has_no_verified_address_is_named_by_what_the_provider_calls_them(
    connection: Connection, has_signed_in: bool
) -> None:
    def sign_in() -> int:
        return people.signed_in(connection, "openid", subject="AbC-9", login="AbC-9", name="Ada", now=NOW)

    if has_signed_in:
        sign_in()
    members.set_role(connection, ROOT, None, "AbC-9", "viewer", provider="openid", now=NOW)
    assert people.role_of(connection, sign_in(), None) == "viewer"
    members.remove_role(connection, ROOT, None, "AbC-9", now=NOW)
    assert people.role_of(connection, sign_in(), None) is None


def test_everybody_who_is_known_may_be_assigned_and_is_called_by_name(connection: Connection) -> None:
    people.signed_in(connection, "github", subject="7", login="ada", name="Ada Lovelace", now=NOW)
    people.name_account(connection, "github", "bob", NOW)
    assert {it.login for it in members.assignable(connection)} == {"ada", "bob"}
    assert members.name_of_assignee(connection, "Ada") == "Ada Lovelace"
    assert members.name_of_assignee(connection, "bob") == "bob"


def test_roles_are_told_by_the_names_of_projects(connection: Connection) -> None:
    ada = principal(connection, "ada", everywhere="admin")
    assert members.roles_of(ada, {}) == [("of every project", "admin")]
