"""The outermost layer of every request: Host allow-list, rate, the sender of a large body, its size and pace, a slot,
request id, security headers, metrics.

Plain ASGI: it passes streaming responses through unchanged and costs microseconds.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from psycopg import errors as postgres
from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from backend.api import dependencies
from backend.api.admission import Lane, Lanes
from backend.api.edge.incoming import HEAVY_BYTES, SMALL_BYTES, IncomingBody
from backend.api.edge.rates import Rates
from backend.api.metrics import Metrics
from backend.api.problems import (
    SLUGS,
    UNEXPECTED,
    ProblemDocument,
    answer,
    of_database_error,
    of_http_error,
    of_service_error,
)
from backend.contract import MAX_BODY_BYTES
from backend.services.base.config import MIB, ServiceConfig
from backend.services.base.errors import ServiceError, TooLarge, Unauthenticated, shown
from backend.services.base.reads import OWN_ACTION_COOKIE, OWN_ACTION_S, SAFE_METHODS

log = logging.getLogger("tidemark.api")

REQUEST_ID = re.compile(r"[0-9A-Za-z._-]{1,64}\Z")
RUN_PATH = re.compile(r"(?:/api/v1)?/runs/([0-9A-Za-z._-]{8,64})(?:/|\Z)")
SMALL_BODY_BYTES = 1 * MIB
LOGGED_FROM = 400
HUNG_UP = 499  # never sent: who asked was gone before the whole request was here
WEBHOOK = "/api/v1/webhooks/github"
IMPORT = "/api/v1/import/"
UNPACKED = ("identity", "gzip", "zstd")
HEALTH = frozenset({"/healthz", "/readyz"})
HSTS = "max-age=31536000"
EVENTS_BODY_BYTES = 4 * MIB  # 200 lines of 4 kB, several of them

SECURITY_HEADERS: Mapping[str, str] = {
    # Plotly writes style attributes; scripts come from our own files only.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def body_limit(method: str, path: str, config: ServiceConfig) -> int:
    """How many bytes a request to this path may carry."""
    if path == WEBHOOK:
        return config.max_webhook_bytes
    if method == "PUT" and path.startswith("/api/v1/runs/"):
        return config.max_body_bytes if "/artifacts/" in path else min(config.max_body_bytes, MAX_BODY_BYTES)
    if path.startswith(IMPORT):
        return min(config.max_body_bytes, MAX_BODY_BYTES)
    if path.startswith("/api/v1/runs/") and path.endswith("/events"):
        return EVENTS_BODY_BYTES
    return SMALL_BODY_BYTES


def host_name(header: str) -> str:
    """The Host header without its port, in lower case."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdigit() else header).lower()


def names_of(scope: Scope) -> dict[str, str]:
    """The ids of this request for the log: its own, and that of the run in its path."""
    run_id = run_in(scope["path"])
    return {"request_id": scope["state"]["request_id"], **({} if run_id is None else {"run_id": run_id})}


def run_in(path: str) -> str | None:
    """The run named in a path, if any."""
    found = RUN_PATH.match(path)
    return None if found is None else found.group(1)


class Edge:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, config: ServiceConfig, metrics: Metrics, lanes: Lanes) -> None:
        self.app = app
        self.config = config
        self.hosts = config.hosts
        self.metrics = metrics
        self.lanes = lanes
        self.rates = Rates(config)
        self.always = dict(SECURITY_HEADERS)
        if config.public_url.startswith("https:"):
            self.always["Strict-Transport-Security"] = HSTS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not REQUEST_ID.match(request_id):
            request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        with bound_contextvars(**names_of(scope)):
            exchange = _Exchange(scope, send, request_id, self.always, own_action=self._own_action(headers))
            await self._exchange(scope, headers, receive, exchange)

    def _own_action(self, headers: Headers) -> str | None:
        """The cookie by which a browser that changes something reads from the primary for a while."""
        if self.config.read_database_url is None or "authorization" in headers:
            return None
        secure = "; Secure" if self.config.public_url.startswith("https:") else ""
        return f"{OWN_ACTION_COOKIE}=1; Max-Age={OWN_ACTION_S}; Path=/; HttpOnly; SameSite=Lax{secure}"

    async def _exchange(self, scope: Scope, headers: Headers, receive: Receive, exchange: "_Exchange") -> None:
        refused = self._refusal(scope, headers)
        if refused is not None:
            await answer(Request(scope), refused)(scope, receive, exchange.send)
        else:
            await self._let_in(scope, headers, receive, exchange)
        if exchange.status == 401 and "authorization" in headers:
            self.rates.refused(scope)
        seconds = time.perf_counter() - exchange.started
        self.metrics.observe(scope, exchange.status, seconds)
        if exchange.status >= LOGGED_FROM:
            # Never the query or the headers: they may hold secrets. The path of a sign-in link is one.
            path = "/sign-in/…" if scope["path"].startswith("/sign-in/") else scope["path"]
            log.info(
                "%s %s: %d (%s, %.0f ms)",
                scope["method"],
                shown(path),
                exchange.status,
                exchange.request_id,
                seconds * 1e3,
            )

    async def _let_in(self, scope: Scope, headers: Headers, receive: Receive, exchange: "_Exchange") -> None:
        """Read the body, find a place, and have the application answer."""
        try:
            if not _has_body(headers):
                await self._at_work(scope, receive, exchange)
                return
            body = IncomingBody(self.config.incoming_dir)
            try:
                await self._read(scope, headers, receive, body)
                receive = body.receive_from(receive)
                if body.size <= HEAVY_BYTES:
                    await self._at_work(scope, receive, exchange)
                else:
                    async with self.lanes.heavy.place():
                        await self._at_work(scope, receive, exchange)
            finally:
                body.close()
        except ClientDisconnect:
            exchange.status = exchange.status or HUNG_UP
        except Exception as error:
            problem = _of(error, scope)
            if problem is UNEXPECTED:
                name = shown(scope["path"])
                log.exception("unexpected error in %s %s (%s)", scope["method"], name, exchange.request_id)
            if exchange.status:
                raise  # half of a response is out; only closing the connection can tell the client
            await answer(Request(scope), problem)(scope, receive, exchange.send)

    async def _read(self, scope: Scope, headers: Headers, receive: Receive, body: IncomingBody) -> None:
        """Small bodies from anybody, large ones from who is known; and GitHub's, which are known by their signature."""
        limit = body_limit(scope["method"], scope["path"], self.config)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) <= SMALL_BYTES:
            await body.read(receive, limit)
        elif scope["path"] == WEBHOOK:
            async with self.lanes.unnamed.place():
                await body.read(receive, limit)
        else:
            await self._identify(scope)
            await body.read(receive, limit)

    async def _identify(self, scope: Scope) -> None:
        """Refuse who is nobody we know."""
        connection = HTTPConnection(scope)
        if not dependencies.names_itself(connection):
            raise Unauthenticated(
                f"a body of more than {SMALL_BYTES} bytes needs a token (header `Authorization: Bearer <token>`) "
                "or signing in"
            )
        async with self._lane(scope).place():
            await run_in_threadpool(dependencies.check_known, connection, self.config)

    async def _at_work(self, scope: Scope, receive: Receive, exchange: "_Exchange") -> None:
        """A place from here to the first byte of the answer: the transaction is over by then."""
        lane = self._lane(scope)
        await lane.enter()
        exchange.on_start = lane.leave
        try:
            await self.app(scope, receive, exchange.send)
        finally:
            exchange.leave()

    def _lane(self, scope: Scope) -> Lane:
        if scope["path"] in HEALTH:
            return self.lanes.health
        return self.lanes.reading if scope["method"] in SAFE_METHODS else self.lanes.writing

    def _refusal(self, scope: Scope, headers: Headers) -> ProblemDocument | None:
        host = headers.get("host", "")
        if host_name(host) not in self.hosts:
            return ProblemDocument(
                status=421,
                slug="unknown-host",
                title="This service does not answer to that name",
                detail=f"Host {shown(host)} is not among the allowed hosts; TIDEMARK_ALLOWED_HOSTS names them",
            )
        length = headers.get("content-length", "")
        limit = body_limit(scope["method"], scope["path"], self.config)
        if length.isdigit() and int(length) > limit:
            return _closing(
                of_service_error(TooLarge(f"the body has {length} bytes; at most {limit} are accepted", limit=limit))
            )
        wait_s = self.rates.wait_s(scope, headers)
        if wait_s is not None:
            return ProblemDocument(
                status=429,
                slug="too-many-requests",
                title="Too many requests",
                detail=f"this caller asks more often than is answered here; come back in {wait_s} s",
                headers={"Retry-After": str(wait_s)},
            )
        return _compressed(scope, headers) if _has_body(headers) else None


def _has_body(headers: Headers) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers


def _compressed(scope: Scope, headers: Headers) -> ProblemDocument | None:
    """Refuse a body that would have to be unpacked: nobody knows how large it becomes. Imported files are unpacked, up
    to a limit."""
    accepted = UNPACKED if scope["path"].startswith(IMPORT) else ("identity",)
    stated = ", ".join(headers.getlist("content-encoding"))
    if {word.strip().lower() for word in stated.split(",")} <= {"", *accepted}:
        return None
    known = ", ".join(accepted)
    return _closing(
        ProblemDocument(
            status=415,
            slug=SLUGS[415],
            title="A body compressed like this is not accepted here",
            detail=f"Content-Encoding is {shown(stated)}; accepted: {known}, or no such header",
            headers={"Accept-Encoding": known},
        )
    )


def _of(error: Exception, scope: Scope) -> ProblemDocument:
    """Refuse a request before the application is called. The rest of the body stays unread: the connection ends."""
    if isinstance(error, ServiceError):
        return _closing(of_service_error(error))
    if isinstance(error, HTTPException):
        return _closing(of_http_error(error, scope["method"], scope["path"]))
    if isinstance(error, DBAPIError | postgres.Error):
        return _closing(of_database_error(error))
    return UNEXPECTED


def _closing(problem: ProblemDocument) -> ProblemDocument:
    return replace(problem, headers={**problem.headers, "Connection": "close"})


class _Exchange:
    """One response on its way out: remembers its status, adds our headers."""

    def __init__(
        self, scope: Scope, send: Send, request_id: str, always: Mapping[str, str], *, own_action: str | None
    ) -> None:
        self._send = send
        self._reads_only = scope["method"] in SAFE_METHODS
        self._own_action = own_action
        self._path = scope["path"]
        self._always = always
        self.request_id = request_id
        self.status = 0
        self.started = time.perf_counter()
        self.on_start: Callable[[], None] | None = None

    def leave(self) -> None:
        """Give the place back, once."""
        on_start, self.on_start = self.on_start, None
        if on_start is not None:
            on_start()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.leave()
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self._always.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self.request_id
            # What signs somebody in is a GET, and sets a cookie.
            if self._own_action is not None and (not self._reads_only or "set-cookie" in headers):
                headers.append("Set-Cookie", self._own_action)
            # What a page shows changes with every result; browsers may keep it but must ask.
            headers.setdefault("Cache-Control", "no-store" if self._path.startswith("/api/") else "no-cache")
        await self._send(message)
