"""Sessions as rows: whose they are, and when they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, text

from backend.store.base import access, people

NOW = datetime(2026, 11, 20, tzinfo=UTC)
SINCE = NOW - timedelta(days=7)


def test_a_session_brings_the_roles_of_its_person(connection: Connection) -> None:
    ada = people.signed_in(connection, "github", subject="7", login="ada", name="Ada", now=NOW)
    people.set_role(connection, ada, None, "viewer", NOW)
    access.insert_session(connection, b"1", ada, "Firefox", NOW + timedelta(days=1), NOW)
    found = access.find_session(connection, b"1", NOW, seen_since=SINCE)
    assert found is not None and (found.login, found.name) == ("ada", "Ada")
    assert [tuple(each) for each in found.roles] == [(None, "viewer")]
    assert access.find_session(connection, b"1", NOW + timedelta(days=1), seen_since=SINCE) is None


def test_a_session_of_before_there_were_accounts_opens_nothing(connection: Connection) -> None:
    connection.execute(text("INSERT INTO web_session (hash, name, expires_at) VALUES ('\\x01', 'owner', '2030-01-01')"))
    assert access.find_session(connection, b"\x01", NOW, seen_since=SINCE) is None
    assert access.list_sessions(connection, NOW, seen_since=SINCE, account_id=None) == []


def test_a_person_who_is_removed_is_signed_out(connection: Connection) -> None:
    ada = people.signed_in(connection, "github", subject="7", login="ada", name="Ada", now=NOW)
    access.insert_session(connection, b"1", ada, "", NOW + timedelta(days=1), NOW)
    connection.execute(text("DELETE FROM account"))
    assert access.find_session(connection, b"1", NOW, seen_since=SINCE) is None
