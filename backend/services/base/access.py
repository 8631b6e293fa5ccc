"""How people and programs prove who they are: bearer tokens, one-time sign-in links, web sessions, CSRF protection.

Secrets have 256 bits of randomness, are shown once and stored as SHA-256; a slow password hash would add nothing.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import Connection

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import BadRequest, Forbidden, NotFound, Unauthenticated
from backend.services.base.last_used import LastUsed
from backend.services.base.principal import IMPLIED, OF_ROLE, MemberRole, Principal, Scope, Via, stranger
from backend.services.base.reads import for_rights
from backend.store.base import access as store
from backend.store.base import people as people_store
from backend.store.base.access import SignedInRow, TokenRow

TOKEN_PREFIX = "tm_"
SESSION_COOKIE = "tidemark_session"
CSRF_HEADER = "X-CSRF-Token"
LINK_LIFE = timedelta(hours=12)
SESSION_LIFE = timedelta(days=30)  # from signing in; using it makes it no longer
SESSION_IDLE = timedelta(days=7)  # not used for so long, it ends earlier
LONGEST_LIFE = timedelta(days=100 * 365)  # of a token; one that never expires says so
LOCAL = "local"
NAMELESS = "administrator"
MAX_BROWSER = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A new token, the only time its secret is known."""

    id: int
    name: str
    token: str
    hint: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """The cookie's value and how long it lives."""

    session: str
    max_age_s: int


def hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


# --- tokens ----------------------------------------------------------------------------------------------------------


def create_token(
    c: Connection,
    name: str,
    scopes: Iterable[str],
    *,
    now: datetime,
    project_id: int | None = None,
    expires_at: datetime | None = None,
    secret: str | None = None,
) -> NewToken:
    """Create a token, or store the given `secret` as one (the launcher keeps the admin token in a file)."""
    name = name.strip()
    if not name or len(name) > 100:
        raise BadRequest.field("name", name, "1 to 100 characters that name who uses the token")
    wanted = _scopes(scopes)
    if project_id is not None and Scope.ADMIN in wanted:
        raise BadRequest.field("scopes", "admin", "read, write, worker or approve: admin is for the whole service")
    if expires_at is not None and not now < expires_at < now + LONGEST_LIFE:
        accepted = f"a time in the future, at most {LONGEST_LIFE.days // 365} years ahead"
        raise BadRequest.field("expires_at", expires_at.isoformat(), accepted)
    token = secret or TOKEN_PREFIX + secrets.token_urlsafe(32)
    hint = token[:8]
    token_id = store.insert_token(
        c,
        name=name,
        hash=hashed(token),
        hint=hint,
        scopes=wanted,
        project_id=project_id,
        expires_at=expires_at,
        now=now,
    )
    return NewToken(id=token_id, name=name, token=token, hint=hint, scopes=wanted)


def _scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    known = [scope.value for scope in Scope]
    wanted = tuple(dict.fromkeys(str(scope) for scope in scopes))
    unknown = [scope for scope in wanted if scope not in known]
    if unknown or not wanted:
        raise BadRequest.field("scopes", unknown[0] if unknown else [], known)
    return wanted


def is_revoked(c: Connection, secret: str) -> bool:
    """Whether this was a token and has been revoked."""
    row = store.find_token(c, hashed(secret))
    return row is not None and row.revoked_at is not None


def list_tokens(c: Connection) -> list[TokenRow]:
    return store.list_tokens(c)


def revoke_token(c: Connection, token_id: int, now: datetime) -> None:
    if not store.revoke_token(c, token_id, now):
        raise NotFound.of("active token", token_id)


def _of_token(c: Connection, secret: str, now: datetime, used: LastUsed) -> Principal:
    row = store.find_token(c, hashed(secret))
    if row is None:
        raise Unauthenticated("unknown token; `tidemark token create` creates one")
    if row.revoked_at is not None:
        raise Unauthenticated(f"token {row.name!r} ({row.hint}…) was revoked")
    if row.expires_at is not None and row.expires_at <= now:
        raise Unauthenticated(f"token {row.name!r} ({row.hint}…) expired on {row.expires_at:%Y-%m-%d %H:%M} UTC")
    used.token(row.id, row.last_used_at, now)
    scopes = frozenset().union(*(IMPLIED[Scope(scope)] for scope in row.scopes))
    if row.project_id is not None:
        scopes -= {Scope.ADMIN}  # which reaches every project, and makes tokens that do
    return Principal(name=row.name, via=Via.TOKEN, scopes=scopes, project_id=row.project_id, token_id=row.id)


# --- people ----------------------------------------------------------------------------------------------------------


def create_sign_in_link(c: Connection, config: ServiceConfig, now: datetime, name: str = "") -> str:
    """A link that signs in whoever opens it first, as an administrator of that name."""
    secret = secrets.token_urlsafe(32)
    name = " ".join(name.split())
    if len(name) > 100 or not name.isprintable():
        raise BadRequest.field("name", name, "at most 100 characters of text")
    store.insert_link(c, hashed(secret), name, now + LINK_LIFE, now)
    return f"{config.public_url.rstrip('/')}/sign-in/{secret}"


def sign_in(c: Connection, link_secret: str, now: datetime, browser: str = "") -> SignedIn:
    """Exchange a sign-in link for a session. Whoever can create links administers the machine, and so the service."""
    name = store.use_link(c, hashed(link_secret), now)
    if name is None:
        raise Forbidden("this sign-in link was used before or has expired; `tidemark sign-in` prints a new one")
    name = name or NAMELESS
    account = people_store.signed_in(c, LOCAL, subject=name, login=name.lower(), name=name, now=now)
    people_store.set_role(c, account, None, MemberRole.ADMIN, now)
    return begin_session(c, account, now, browser)


def begin_session(c: Connection, account_id: int, now: datetime, browser: str = "") -> SignedIn:
    """Sign this person in. `browser`: its own description."""
    session = secrets.token_urlsafe(32)
    said = "".join(character for character in browser if character.isprintable())[:MAX_BROWSER]
    store.insert_session(c, hashed(session), account_id, said, now + SESSION_LIFE, now)
    return SignedIn(session=session, max_age_s=int(SESSION_LIFE.total_seconds()))


def sign_out(c: Connection, session: str) -> None:
    store.delete_session(c, hashed(session))


def list_sign_ins(c: Connection, now: datetime, account_id: int | None = None) -> list[SignedInRow]:
    """The signed-in browsers of one person, or of all."""
    return store.list_sessions(c, now, seen_since=now - SESSION_IDLE, account_id=account_id)


def end_sign_in(c: Connection, session_id: str, account_id: int | None = None) -> None:
    """Sign one browser out; only if it is that person's, if one is given."""
    if not store.delete_sessions(c, session_id, account_id):
        raise NotFound.of("signed-in browser", session_id)


def sign_out_everywhere(c: Connection, account_id: int | None = None) -> None:
    """End every session of a person; without a person, every session and every link that was not opened yet."""
    store.delete_sessions(c, None, account_id)
    if account_id is None:
        store.delete_links(c)


def sign_in_id(session: str) -> str:
    """The id of a sign-in in the list of signed-in browsers: 16 hexadecimal digits."""
    return hashlib.sha256(hashed(session)).hexdigest()[:16]


def _of_session(c: Connection, session: str, now: datetime, used: LastUsed) -> Principal | None:
    row = store.find_session(c, hashed(session), now, seen_since=now - SESSION_IDLE)
    if row is None:
        return None
    used.session(hashed(session), row.last_seen_at, now)
    held = {project_id: OF_ROLE[MemberRole(role)] for project_id, role in row.roles}
    everywhere = held.pop(None, frozenset())
    return Principal(
        name=row.name or row.login,
        via=Via.SESSION,
        scopes=frozenset(Scope) if Scope.ADMIN in everywhere else everywhere,
        in_projects={project_id: scopes for project_id, scopes in held.items() if project_id is not None},
        account_id=row.account_id,
        login=row.login,
    )


def identify(
    c: Connection,
    *,
    authorization: str | None,
    session: str | None,
    public_read: bool,
    now: datetime,
    used: LastUsed | None = None,
) -> Principal:
    """Who sends these headers. A wrong token is an error even where none is needed; otherwise it would hide a mistake.

    Nothing is written; `used` is called with the token or session.
    """
    used = used or LastUsed()
    if authorization is not None:
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unauthenticated("the Authorization header must be `Bearer <token>`")
        return _of_token(c, secret.strip(), now, used)
    person = None
    if session:
        with for_rights(c) as judged:
            person = _of_session(judged, session, now, used)
    if person is not None:
        return replace(person, scopes=person.scopes | stranger(public_read=public_read).scopes)
    return stranger(public_read=public_read)


# --- page actions ----------------------------------------------------------------------------------------------------


def csrf_token(session: str) -> str:
    """The token in the forms of a web session. It needs no storage: only the holder of the cookie can compute it."""
    return hmac.new(session.encode(), b"tidemark page action", hashlib.sha256).hexdigest()


def check_page_action(
    *, session: str, token: str | None, origin: str | None, host: str | None, config: ServiceConfig
) -> None:
    """Refuse an action that did not come from one of our own pages (cookie alone proves nothing)."""
    if not token or not hmac.compare_digest(token.encode(), csrf_token(session).encode()):
        raise Forbidden(f"the page's action token is missing or stale ({CSRF_HEADER}); reload the page and try again")
    if origin is None or not _is_ours(origin, host, config):
        raise Forbidden(f"the request's Origin {origin!r} is not this service ({config.public_url})")


def _is_ours(origin: str, host: str | None, config: ServiceConfig) -> bool:
    sent, public = urlsplit(origin), urlsplit(config.public_url)
    if (sent.scheme, sent.netloc) == (public.scheme, public.netloc):
        return True
    # The Host header was checked against the allow-list before: an origin that equals it is this very address.
    return sent.scheme in ("http", "https") and host is not None and sent.netloc.lower() == host.lower()
