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
    name: str
    last_seen_at: datetime


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


def insert_link(c: Connection, hash: bytes, expires_at: datetime, now: datetime) -> None:
    c.execute(insert(sign_in_link).values(hash=hash, expires_at=expires_at, created_at=now))


def use_link(c: Connection, hash: bytes, now: datetime) -> bool:
    """Mark the link as used. False when there is none that may still be used: two clicks at once win only once."""
    statement = update(sign_in_link).where(
        sign_in_link.c.hash == hash, sign_in_link.c.used_at.is_(None), sign_in_link.c.expires_at > now
    )
    return c.execute(statement.values(used_at=now)).rowcount == 1


def delete_links(c: Connection) -> None:
    c.execute(delete(sign_in_link))


def insert_session(c: Connection, hash: bytes, name: str, expires_at: datetime, now: datetime) -> None:
    c.execute(insert(web_session).values(hash=hash, name=name, expires_at=expires_at, created_at=now, last_seen_at=now))


def find_session(c: Connection, hash: bytes, now: datetime, *, seen_since: datetime) -> SessionRow | None:
    row = c.execute(
        select(web_session.c.name, web_session.c.last_seen_at).where(
            web_session.c.hash == hash, web_session.c.expires_at > now, web_session.c.last_seen_at > seen_since
        )
    ).one_or_none()
    return None if row is None else SessionRow(name=row.name, last_seen_at=row.last_seen_at)


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
    signed_in_at: datetime
    last_used_at: datetime
    ends_at: datetime


def list_sessions(c: Connection, now: datetime, *, seen_since: datetime) -> list[SignedInRow]:
    """Those that may still be used, the newest first."""
    statement = text(
        """SELECT left(encode(sha256(hash), 'hex'), 16) AS id, name, created_at AS signed_in_at,
                  last_seen_at AS last_used_at, expires_at AS ends_at
           FROM web_session WHERE expires_at > :now AND last_seen_at > :since ORDER BY created_at DESC"""
    )
    return [SignedInRow(**row._mapping) for row in c.execute(statement, {"now": now, "since": seen_since})]


def delete_sessions(c: Connection, session_id: str | None) -> int:
    """End the session of this id, or all of them; how many there were."""
    statement = text(
        "DELETE FROM web_session WHERE CAST(:id AS text) IS NULL OR left(encode(sha256(hash), 'hex'), 16) = :id"
    )
    return c.execute(statement, {"id": session_id}).rowcount


def delete_session(c: Connection, hash: bytes) -> None:
    c.execute(delete(web_session).where(web_session.c.hash == hash))


def prune(c: Connection, now: datetime) -> None:
    """Forget links and sessions that can no longer be used."""
    c.execute(delete(sign_in_link).where(sign_in_link.c.expires_at < now))
    c.execute(delete(web_session).where(web_session.c.expires_at < now))
