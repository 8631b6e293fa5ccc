"""Dependencies of routes: a transaction, the time, who is calling, the raw body. The only place that commits, but for a
delivery, whose commit goes with its last statements (`backend/services/ingest/delivery.py`)."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Annotated, NamedTuple, cast

import psycopg
from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection

from backend.api.admission import Busy
from backend.api.turns import Turn, Turns
from backend.github.oidc import looks_like_oidc
from backend.services.base import access
from backend.services.base.config import ServiceConfig
from backend.services.base.confine import confine, require_all, sees_all
from backend.services.base.errors import ServiceError
from backend.services.base.live import Hub
from backend.services.base.principal import Principal, Scope, Via, require_name, stranger
from backend.services.base.reads import SAFE_METHODS, Reads, may_lag
from backend.services.github import oidc_access

KNOWN_S = 1.0
"""For so long the sender of a request, once looked up, is not looked up again for that same request."""


def _engine(request: HTTPConnection) -> Engine:
    return cast(Engine, request.app.state.engine)


def transaction(request: Request) -> Iterator[Connection]:
    """One transaction per request: committed before the response is sent, rolled back by any error. Reads by
    callers who have not just changed something may come from the replica.

    A request that does its work in pieces may commit each of them (`commit_piece`).
    """
    reads = cast(Reads, request.app.state.reads)
    with reads.connect(may_lag=may_lag(request.method, request.headers, request.cookies)) as connection:
        connection.begin()
        yield connection
        connection.commit()


def writing_transaction(request: Request) -> Iterator[Connection]:
    """The same for a GET that writes."""
    with _engine(request).begin() as connection:
        yield connection


def in_transaction(request: Request) -> AbstractContextManager[Connection]:
    """A transaction that ends before the route does, for what must follow the commit."""
    return _engine(request).begin()


# Scope "function": the commit happens before the response is sent, so "201" means it is on disk.
Transaction = Annotated[Connection, Depends(transaction, scope="function")]
WritingTransaction = Annotated[Connection, Depends(writing_transaction, scope="function")]


def commit_piece(c: Connection) -> None:
    """Commit what a long request did so far, so that nothing later can lose it and nobody waits for its locks; it
    continues in a new transaction. Not inside a savepoint."""
    c.commit()
    c.begin()


async def config(request: Request) -> ServiceConfig:
    return cast(ServiceConfig, request.app.state.config)


Config = Annotated[ServiceConfig, Depends(config)]


async def hub(request: Request) -> Hub:
    return cast(Hub, request.app.state.hub)


LiveHub = Annotated[Hub, Depends(hub)]


async def now() -> datetime:
    return datetime.now(UTC)


Now = Annotated[datetime, Depends(now)]


async def raw_body(request: Request) -> bytes:
    return await request.body()


RawBody = Annotated[bytes, Depends(raw_body)]


def names_itself(request: HTTPConnection) -> bool:
    """Whether the request shows a token or a session, be it one of ours or not."""
    return "authorization" in request.headers or bool(request.cookies.get(access.SESSION_COOKIE))


class _Known(NamedTuple):
    """The sender of a request, looked up before its body was read."""

    principal: Principal
    at: float
    """On the monotonic clock."""


def check_known(request: HTTPConnection, config: ServiceConfig) -> None:
    """Refuse who shows no token or session of ours: before a large body is read, which may take long."""
    at = time.monotonic()
    with _engine(request).begin() as c:
        principal = _shown_by(request, c, config, datetime.now(UTC))
    require_name(principal)
    request.state.known = _Known(principal, at)


def _shown_by(request: HTTPConnection, c: Connection, config: ServiceConfig, now: datetime) -> Principal:
    """Whose token or session this is."""
    known: _Known | None = getattr(request.state, "known", None)
    if known is not None and time.monotonic() - known.at < KNOWN_S:
        return known.principal
    authorization = request.headers.get("authorization")
    if authorization is not None and looks_like_oidc(secret := authorization.partition(" ")[2].strip()):
        return oidc_access.identify(c, secret, request.app.state.workflows, now)
    return access.identify(
        c,
        authorization=authorization,
        session=request.cookies.get(access.SESSION_COOKIE),
        public_read=config.public_read,
        now=now,
        used=request.app.state.last_used,
    )


def identified(request: Request, c: Connection, config: ServiceConfig, now: datetime) -> Principal:
    """Who sends this request. What a signed-in page changes needs its CSRF token and our own Origin as well."""
    principal = _shown_by(request, c, config, now)
    if principal.via is Via.SESSION and request.method not in SAFE_METHODS:
        access.check_page_action(
            session=request.cookies.get(access.SESSION_COOKIE) or "",
            token=request.headers.get(access.CSRF_HEADER),
            origin=request.headers.get("origin"),
            host=request.headers.get("host"),
            config=config,
        )
    return principal


async def may_still_read(request: Request, config: ServiceConfig) -> bool:
    """Whether who sent this request, some time ago, may still read what it names: a token may be revoked, a session
    ended, a role taken away."""
    try:
        async with request.app.state.lanes.reading.place():
            return await run_in_threadpool(_may_read, request, config)
    except Busy:
        return True  # asked again in a moment


def _may_read(request: Request, config: ServiceConfig) -> bool:
    try:
        with _engine(request).begin() as c:
            principal = identified(request, c, config, datetime.now(UTC))
            principal.require(Scope.READ)
            _hold_to_address(request, c, principal, Scope.READ)
            return True
    except (ServiceError, psycopg.Error, SQLAlchemyError):
        return False


async def caller(request: Request, c: Transaction, config: Config, now: Now) -> Principal:
    """Who sends this request."""
    if not names_itself(request):
        # Most reads; they need not wait for a thread to learn that they are anonymous.
        return stranger(public_read=config.public_read)
    return await run_in_threadpool(identified, request, c, config, now)


def _with(scope: Scope) -> Callable[[Principal], Awaitable[Principal]]:
    """Who calls, if this scope is held in some project at least."""

    async def allowed(principal: Annotated[Principal, Depends(caller)]) -> Principal:
        principal.require(scope)
        return principal

    return allowed


def _within(scope: Scope) -> Callable[..., Awaitable[Principal]]:
    """The caller, who holds this scope in the project that the address names; in every project, if it names none."""

    async def allowed(
        request: Request, c: Transaction, principal: Annotated[Principal, Depends(_with(scope))]
    ) -> Principal:
        if not (sees_all(principal) and principal.may(scope)):
            await run_in_threadpool(_hold_to_address, request, c, principal, scope)
        return principal

    return allowed


def _hold_to_address(request: Request, c: Connection, principal: Principal, scope: Scope) -> None:
    named = [*((name, str(value)) for name, value in request.path_params.items()), *request.query_params.multi_items()]
    if not confine(c, principal, named, scope):
        require_all(c, principal, scope)


async def _everywhere(principal: Annotated[Principal, Depends(caller)]) -> Principal:
    principal.require_everywhere(Scope.ADMIN)
    return principal


# Who may read, write, work: in the project that is named in the address, or in all of them.
Reader = Annotated[Principal, Depends(_within(Scope.READ))]
Submitter = Annotated[Principal, Depends(_within(Scope.SUBMIT))]
Writer = Annotated[Principal, Depends(_within(Scope.WRITE))]
WorkerCaller = Annotated[Principal, Depends(_within(Scope.WORKER))]
# Who administers the project in the address, or the service where it names none.
ProjectAdmin = Annotated[Principal, Depends(_within(Scope.ADMIN))]
Admin = Annotated[Principal, Depends(_everywhere)]
# Where the body names the project, or the answer is cut down to what the caller sees: the route itself sees to that.
Caller = Annotated[Principal, Depends(caller)]
UnconfinedReader = Annotated[Principal, Depends(_with(Scope.READ))]
UnconfinedSubmitter = Annotated[Principal, Depends(_with(Scope.SUBMIT))]
UnconfinedWorker = Annotated[Principal, Depends(_with(Scope.WORKER))]
UnconfinedApprover = Annotated[Principal, Depends(_with(Scope.APPROVE))]
UnconfinedAdmin = Annotated[Principal, Depends(_with(Scope.ADMIN))]


async def deliverer(principal: Annotated[Principal, Depends(caller)]) -> Principal:
    """Results come from workers, and from CI jobs that measured something themselves."""
    _require_deliverer(principal)
    return principal


Deliverer = Annotated[Principal, Depends(deliverer)]


def _require_deliverer(principal: Principal) -> None:
    if principal.via is not Via.WORKFLOW and not principal.may_somewhere(Scope.WORKER):
        principal.require(Scope.SUBMIT)


Take = Callable[[Connection, Principal, Turn], Response]
Delivery = Callable[[int, Take], Awaitable[Response]]
"""What takes a result of so many bytes."""


async def delivery(request: Request, config: Config, now: Now) -> Delivery:
    """Runs what takes a result, in one transaction, with who brings it, and when it is its turn, in one thread.

    Small results come often; with `Transaction` and `Deliverer` each would wait for a thread four times.
    """

    turns = cast(Turns, request.app.state.turns)

    def deliver(size: int, take: Take) -> Response:
        with turns.one(size) as turn, _engine(request).begin() as connection:
            principal = identified(request, connection, config, now)
            _require_deliverer(principal)
            return take(connection, principal, turn)

    async def in_thread(size: int, take: Take) -> Response:
        return await run_in_threadpool(deliver, size, take)

    return in_thread


Deliver = Annotated[Delivery, Depends(delivery)]
