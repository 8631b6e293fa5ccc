"""Tokens, sign-in links and web sessions as rows. Only hashes of secrets come here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.base import wire
from backend.store.tables.access import api_token, sign_in_link, web_session
from backend.store.tables.core import project


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token as it may be listed: without its secret."""

    id: int
    name: str
    hint: str
    scopes: tuple[str, ...]
    project: str | None
    project_id: int | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session's person, with (project, role) of each membership; no project: every one."""

    account_id: int
    login: str
    name: str
    last_seen_at: datetime
    roles: list[tuple[int | None, str]]


TOKEN_COLUMNS = (
    api_token.c.id,
    api_token.c.name,
    api_token.c.hint,
    api_token.c.scopes,
    project.c.slug.label("project"),
    api_token.c.project_id,
    api_token.c.created_at,
    api_token.c.last_used_at,
    api_token.c.expires_at,
    api_token.c.revoked_at,
)
TOKENS = select(*TOKEN_COLUMNS).select_from(api_token.outerjoin(project, project.c.id == api_token.c.project_id))


def _token(row: object) -> TokenRow:
    fields = dict(row._mapping)  # type: ignore[attr-defined]
    return TokenRow(**{**fields, "scopes": tuple(fields["scopes"])})


def insert_token(
    c: Connection,
    *,
    name: str,
    hash: bytes,
    hint: str,
    scopes: Sequence[str],
    project_id: int | None,
    expires_at: datetime | None,
    now: datetime,
) -> int:
    """Store a token. The same secret again brings the stored one up to date; one that was revoked stays so."""
    values = {"name": name, "hint": hint, "scopes": list(scopes), "project_id": project_id, "expires_at": expires_at}
    statement = upsert(api_token).values(hash=hash, created_at=now, **values)
    statement = statement.on_conflict_do_update(index_elements=["hash"], set_=values)
    return int(c.execute(statement.returning(api_token.c.id)).scalar_one())


# Asked with every delivery: plain SQL, which the server keeps prepared.
_FIND_TOKEN = """
SELECT t.id, t.name, t.hint, t.scopes, p.slug AS project, t.project_id, t.created_at, t.last_used_at, t.expires_at,
       t.revoked_at
FROM api_token t LEFT JOIN project p ON p.id = t.project_id WHERE t.hash = %(hash)s
"""


def find_token(c: Connection, hash: bytes) -> TokenRow | None:
    (rows,) = wire.send(c, (_FIND_TOKEN, {"hash": hash}))
    if not rows:
        return None
    fields = rows[0]._asdict()
    return TokenRow(**{**fields, "scopes": tuple(fields["scopes"])})


def list_tokens(c: Connection) -> list[TokenRow]:
    return [_token(row) for row in c.execute(TOKENS.order_by(api_token.c.id))]


def touch_tokens(c: Connection, used: Mapping[int, datetime]) -> None:
    """When each of these tokens was last used."""
    statement = text("UPDATE api_token SET last_used_at = greatest(last_used_at, :at) WHERE id = :id")
    if used:
        c.execute(statement, [{"id": token_id, "at": used[token_id]} for token_id in sorted(used)])


def revoke_token(c: Connection, token_id: int, now: datetime) -> bool:
    """False: no such token, or it was revoked before."""
    statement = update(api_token).where(api_token.c.id == token_id, api_token.c.revoked_at.is_(None))
    return c.execute(statement.values(revoked_at=now)).rowcount == 1


def insert_link(c: Connection, hash: bytes, name: str, expires_at: datetime, now: datetime) -> None:
    c.execute(insert(sign_in_link).values(hash=hash, name=name, expires_at=expires_at, created_at=now))


def use_link(c: Connection, hash: bytes, now: datetime) -> str | None:
    """Mark the link as used; who it signs in. None where there is none that may still be used: two clicks at once win
    only once."""
    statement = update(sign_in_link).where(
        sign_in_link.c.hash == hash, sign_in_link.c.used_at.is_(None), sign_in_link.c.expires_at > now
    )
    return c.execute(statement.values(used_at=now).returning(sign_in_link.c.name)).scalar_one_or_none()


def delete_links(c: Connection) -> None:
    c.execute(delete(sign_in_link))


def insert_session(
    c: Connection, hash: bytes, account_id: int, browser: str, expires_at: datetime, now: datetime
) -> None:
    values = {"hash": hash, "account_id": account_id, "browser": browser, "expires_at": expires_at}
    c.execute(insert(web_session).values(**values, created_at=now, last_seen_at=now))


_FIND_SESSION = text(
    """SELECT a.id AS account_id, a.login, a.name, s.last_seen_at,
         (SELECT coalesce(json_agg(json_build_array(m.project_id, m.role)), '[]') FROM member m
          WHERE m.account_id = a.id) AS roles
       FROM web_session s JOIN account a ON a.id = s.account_id
       WHERE s.hash = :hash AND s.expires_at > :now AND s.last_seen_at > :since"""
)


def find_session(c: Connection, hash: bytes, now: datetime, *, seen_since: datetime) -> SessionRow | None:
    row = c.execute(_FIND_SESSION, {"hash": hash, "now": now, "since": seen_since}).one_or_none()
    return None if row is None else SessionRow(**row._mapping)


def touch_sessions(c: Connection, used: Mapping[bytes, datetime]) -> None:
    """When each of these sessions was last used."""
    statement = text("UPDATE web_session SET last_seen_at = greatest(last_seen_at, :at) WHERE hash = :hash")
    if used:
        c.execute(statement, [{"hash": hash, "at": used[hash]} for hash in sorted(used)])


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedInRow:
    """A browser that is signed in. `id` names it, and opens nothing."""

    id: str
    name: str
    login: str
    browser: str
    signed_in_at: datetime
    last_used_at: datetime
    ends_at: datetime


_LIST_SESSIONS = text(
    """SELECT left(encode(sha256(s.hash), 'hex'), 16) AS id, coalesce(nullif(a.name, ''), a.login) AS name, a.login,
         s.browser, s.created_at AS signed_in_at, s.last_seen_at AS last_used_at, s.expires_at AS ends_at
       FROM web_session s JOIN account a ON a.id = s.account_id
       WHERE s.expires_at > :now AND s.last_seen_at > :since
         AND (CAST(:account AS integer) IS NULL OR a.id = :account)
       ORDER BY s.created_at DESC"""
)


def list_sessions(c: Connection, now: datetime, *, seen_since: datetime, account_id: int | None) -> list[SignedInRow]:
    """Those that may still be used, the newest first."""
    found = c.execute(_LIST_SESSIONS, {"now": now, "since": seen_since, "account": account_id})
    return [SignedInRow(**row._mapping) for row in found]


_DELETE_SESSIONS = text(
    """DELETE FROM web_session WHERE (CAST(:account AS integer) IS NULL OR account_id = :account)
         AND (CAST(:id AS text) IS NULL OR left(encode(sha256(hash), 'hex'), 16) = :id)"""
)


def delete_sessions(c: Connection, session_id: str | None, account_id: int | None) -> int:
    """End the session of this id, or all of them; of this person, or of everybody. How many there were."""
    return c.execute(_DELETE_SESSIONS, {"id": session_id, "account": account_id}).rowcount


def delete_session(c: Connection, hash: bytes) -> None:
    c.execute(delete(web_session).where(web_session.c.hash == hash))


def prune(c: Connection, now: datetime) -> None:
    """Forget links and sessions that can no longer be used."""
    c.execute(delete(sign_in_link).where(sign_in_link.c.expires_at < now))
    c.execute(delete(web_session).where(web_session.c.expires_at < now))
