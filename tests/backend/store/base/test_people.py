"""A person is who the provider says, whatever they call themselves."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection

from backend.store.base import people

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def sign_in(c: Connection, subject: str, login: str, provider: str = "github") -> int:
    return people.signed_in(c, provider, subject=subject, login=login, name=login.title(), now=NOW)


def test_the_same_subject_is_the_same_person_under_a_new_login(connection: Connection) -> None:
    before = sign_in(connection, "7", "ada")
    assert sign_in(connection, "7", "ada-l") == before
    assert [each.login for each in people.accounts(connection, 10)] == ["ada-l"]


def test_who_gets_a_login_that_somebody_gave_up_gets_none_of_their_roles(connection: Connection) -> None:
    ada = sign_in(connection, "7", "ada")
    people.set_role(connection, ada, None, "admin", NOW)
    thief = sign_in(connection, "8", "ada")
    assert thief != ada
    assert people.role_of(connection, thief, None) is None and people.role_of(connection, ada, None) == "admin"


def test_the_same_login_at_another_provider_is_somebody_else(connection: Connection) -> None:
    assert sign_in(connection, "7", "ada") != sign_in(connection, "7", "ada", "openid")


def test_who_was_named_before_they_signed_in_has_the_role_then(connection: Connection) -> None:
    named = people.name_account(connection, "github", "ada", NOW)
    people.set_role(connection, named, None, "triager", NOW)
    assert not people.with_login(connection, "ada")[0].signs_in
    assert sign_in(connection, "7", "ada") == named
    assert people.role_of(connection, named, None) == "triager" and people.with_login(connection, "ada")[0].signs_in


def test_who_was_named_by_a_login_they_took_later_has_that_role_too(connection: Connection) -> None:
    ada = sign_in(connection, "7", "ada")
    named = people.name_account(connection, "github", "ada-l", NOW)
    people.set_role(connection, named, None, "triager", NOW)
    assert sign_in(connection, "7", "ada-l") == ada
    assert people.role_of(connection, ada, None) == "triager"
    assert [each.id for each in people.accounts(connection, 10)] == [ada]


def test_a_person_has_one_role_in_a_place(connection: Connection) -> None:
    ada = sign_in(connection, "7", "ada")
    for role in ("viewer", "admin"):
        people.set_role(connection, ada, None, role, NOW)
    assert [each.role for each in people.members(connection, None)] == ["admin"]
    assert people.administrators(connection) == 1
    assert people.remove_role(connection, ada, None) and not people.remove_role(connection, ada, None)
