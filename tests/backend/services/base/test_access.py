"""Who may do what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.services.base.errors import BadRequest, Forbidden, NotFound, Unauthenticated
from backend.services.base.principal import Principal, Scope, Via

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CONFIG = ServiceConfig(
    database_url="postgresql://x", redis_url="redis://x", data_dir=Path("x"), public_url="http://127.0.0.1:8000"
)


def identify(c: Connection, authorization: str | None = None, session: str | None = None, **more: bool) -> Principal:
    return access.identify(
        c, authorization=authorization, session=session, public_read=more.get("public_read", True), now=NOW
    )


def test_a_token_is_shown_once_and_stored_hashed(connection: Connection) -> None:
    made = access.create_token(connection, "ci", ["write"], now=NOW)
    assert made.token.startswith("tm_") and len(made.token) > 40
    stored = connection.execute(text("SELECT * FROM api_token WHERE name = 'ci'")).one()
    assert made.token not in str(stored) and stored.hash == access.hashed(made.token)
    assert made.token not in str(access.list_tokens(connection))


@pytest.mark.parametrize(
    ("held", "may", "may_not"),
    [
        ("read", {"read"}, {"submit", "write", "worker", "admin"}),
        ("submit", {"read", "submit"}, {"write", "approve", "worker", "admin"}),
        ("write", {"read", "submit", "write"}, {"approve", "worker", "admin"}),
        ("worker", {"read", "worker"}, {"submit", "write", "approve", "admin"}),
        ("approve", {"read", "approve"}, {"submit", "write", "worker", "admin"}),
        ("admin", {"read", "submit", "write", "worker", "approve", "admin"}, set()),
    ],
)
def test_what_a_scope_allows(connection: Connection, held: str, may: set[str], may_not: set[str]) -> None:
    token = access.create_token(connection, held, [held], now=NOW).token
    principal = identify(connection, f"Bearer {token}")
    assert principal.scopes == may
    for scope in may_not:
        with pytest.raises(Forbidden, match=f"this needs '{scope}'"):
            principal.require(Scope(scope))


def test_a_token_that_is_unknown_revoked_or_expired_says_so(connection: Connection) -> None:
    revoked = access.create_token(connection, "old", ["read"], now=NOW)
    access.revoke_token(connection, revoked.id, NOW)
    expiring = access.create_token(
        connection, "short", ["read"], now=NOW - timedelta(days=2), expires_at=NOW - timedelta(days=1)
    )
    for secret, told in (
        ("tm_nonsense", "unknown token"),
        (revoked.token, "'old' .* was revoked"),
        (expiring.token, "expired on 2026-11-19"),
    ):
        with pytest.raises(Unauthenticated, match=told):
            identify(connection, f"Bearer {secret}")
    with pytest.raises(NotFound):
        access.revoke_token(connection, revoked.id, NOW)


def test_a_token_of_one_project_cannot_administer(connection: Connection) -> None:
    project = connection.scalar(text("INSERT INTO project (slug) VALUES ('a/b') RETURNING id"))
    with pytest.raises(BadRequest, match="for the whole service"):
        access.create_token(connection, "x", ["read", "admin"], now=NOW, project_id=project)
    made = access.create_token(connection, "x", ["admin"], now=NOW)
    connection.execute(text("UPDATE api_token SET project_id = :p WHERE id = :id"), {"p": project, "id": made.id})
    assert identify(connection, f"Bearer {made.token}").scopes == set(Scope) - {Scope.ADMIN}


def test_a_token_may_not_outlive_everybody(connection: Connection) -> None:
    for expires_at in (NOW, datetime(9999, 12, 31, tzinfo=UTC)):
        with pytest.raises(BadRequest, match="at most 100 years"):
            access.create_token(connection, "x", ["read"], now=NOW, expires_at=expires_at)


def test_a_secret_from_a_file_is_taken_up_again_and_again(connection: Connection) -> None:
    for _ in range(2):
        access.create_token(connection, "admin", ["admin"], now=NOW, secret="tm_from_the_file")
    assert identify(connection, "bearer tm_from_the_file").may(Scope.ADMIN)
    assert len(access.list_tokens(connection)) == 1


@pytest.mark.parametrize("header", ["tm_x", "Basic dTpw", "Bearer ", "Bearer"])
def test_a_header_that_is_no_bearer_token_is_refused_even_where_none_is_needed(
    connection: Connection, header: str
) -> None:
    with pytest.raises(Unauthenticated, match="Bearer <token>"):
        identify(connection, header)


@pytest.mark.parametrize(
    ("name", "scopes", "field"), [("", ["read"], "name"), ("x", [], "scopes"), ("x", ["root"], "scopes")]
)
def test_a_token_needs_a_name_and_known_scopes(
    connection: Connection, name: str, scopes: list[str], field: str
) -> None:
    with pytest.raises(BadRequest, match=field):
        access.create_token(connection, name, scopes, now=NOW)


def test_strangers_may_read_only_where_that_is_public(connection: Connection) -> None:
    identify(connection, public_read=True).require(Scope.READ)
    with pytest.raises(Unauthenticated):
        identify(connection, public_read=False).require(Scope.READ)
    with pytest.raises(Unauthenticated, match="scope 'write'"):
        identify(connection, public_read=True).require(Scope.WRITE)


def test_a_sign_in_link_works_once(connection: Connection) -> None:
    link = access.create_sign_in_link(connection, CONFIG, NOW)
    assert link.startswith("http://127.0.0.1:8000/sign-in/")
    secret = link.rpartition("/")[2]
    signed_in = access.sign_in(connection, secret, NOW)
    assert identify(connection, session=signed_in.session).via is Via.SESSION
    with pytest.raises(Forbidden, match="used before or has expired"):
        access.sign_in(connection, secret, NOW)


def test_a_sign_in_link_expires(connection: Connection) -> None:
    secret = access.create_sign_in_link(connection, CONFIG, NOW).rpartition("/")[2]
    with pytest.raises(Forbidden):
        access.sign_in(connection, secret, NOW + timedelta(hours=13))


def test_a_session_ends_by_signing_out(connection: Connection) -> None:
    secret = access.create_sign_in_link(connection, CONFIG, NOW).rpartition("/")[2]
    session = access.sign_in(connection, secret, NOW).session
    access.sign_out(connection, session)
    assert identify(connection, session=session).via is Via.ANONYMOUS


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("http://127.0.0.1:9000", "127.0.0.1:8000", False),
        ("http://evil.example", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False),
        (None, "127.0.0.1:8000", False),
    ],
)
def test_a_page_action_comes_from_our_own_page(origin: str | None, host: str, allowed: bool) -> None:
    def act() -> None:
        access.check_page_action(session="s", token=access.csrf_token("s"), origin=origin, host=host, config=CONFIG)

    if allowed:
        act()
    else:
        with pytest.raises(Forbidden, match="Origin"):
            act()


@pytest.mark.parametrize("token", [None, "", "wrong", "é", access.csrf_token("another session")])
def test_a_page_action_carries_the_token_of_its_session(token: str | None) -> None:
    with pytest.raises(Forbidden, match="action token"):
        access.check_page_action(
            session="s", token=token, origin="http://127.0.0.1:8000", host="127.0.0.1:8000", config=CONFIG
        )
