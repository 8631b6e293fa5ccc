"""The outermost layer of every request: Host allow-list, size of the body, request id, security headers, metrics.

Plain ASGI: it sees streaming responses as they are and costs microseconds.
"""

import logging
import re
import secrets
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.metrics import Metrics
from backend.api.problems import UNEXPECTED, Problem, of_service_error
from backend.contract import MAX_BODY_BYTES
from backend.services.base.config import MIB, ServiceConfig
from backend.services.base.errors import TooLarge, shown

log = logging.getLogger("tidemark.api")

REQUEST_ID = re.compile(r"[0-9A-Za-z._-]{1,64}\Z")
SMALL_BODY_BYTES = 1 * MIB
LOGGED_FROM = 400
HUNG_UP = 499  # never sent: who asked was gone before the whole request was here
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


class BodyTooLarge(HTTPException):
    """Raised while the body is read, so whoever reads it is stopped at once."""


def body_limit(method: str, path: str, config: ServiceConfig) -> int:
    """How many bytes a request to this path may carry."""
    if path == "/api/v1/webhooks/github":
        return config.max_webhook_bytes
    if method == "PUT" and path.startswith("/api/v1/runs/"):
        return config.max_body_bytes if "/artifacts/" in path else min(config.max_body_bytes, MAX_BODY_BYTES)
    if path.startswith("/api/v1/import/"):
        return min(config.max_body_bytes, MAX_BODY_BYTES)
    if path.startswith("/api/v1/runs/") and path.endswith("/events"):
        return EVENTS_BODY_BYTES
    return SMALL_BODY_BYTES


def host_name(header: str) -> str:
    """The Host header without its port, in lower case."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdigit() else header).lower()


class Edge:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, config: ServiceConfig, metrics: Metrics) -> None:
        self.app = app
        self.config = config
        self.hosts = config.hosts
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not REQUEST_ID.match(request_id):
            request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        exchange = _Exchange(scope, send, request_id)
        refused = self._refusal(scope, headers)
        if refused is not None:
            await refused.response(request_id)(scope, receive, exchange.send)
        else:
            limit = body_limit(scope["method"], scope["path"], self.config)
            await self._call(scope, _limited(receive, limit), exchange)
        seconds = time.perf_counter() - exchange.started
        self.metrics.observe(scope, exchange.status, seconds)
        if exchange.status >= LOGGED_FROM:
            # Never the query or the headers: they may hold secrets. The path of a sign-in link is one.
            path = "/sign-in/…" if scope["path"].startswith("/sign-in/") else scope["path"]
            log.info(
                "%s %s: %d (%s, %.0f ms)", scope["method"], shown(path), exchange.status, request_id, seconds * 1e3
            )

    async def _call(self, scope: Scope, receive: Receive, exchange: "_Exchange") -> None:
        try:
            await self.app(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = exchange.status or HUNG_UP
        except Exception:
            log.exception("unexpected error in %s %s (%s)", scope["method"], shown(scope["path"]), exchange.request_id)
            if exchange.status:
                raise  # half of a response is out; only closing the connection can tell the client
            await UNEXPECTED.response(exchange.request_id)(scope, receive, exchange.send)

    def _refusal(self, scope: Scope, headers: Headers) -> Problem | None:
        host = headers.get("host", "")
        if host_name(host) not in self.hosts:
            return Problem(
                status=421,
                slug="unknown-host",
                title="This service does not answer to that name",
                detail=f"Host {shown(host)} is not among the allowed hosts; TIDEMARK_ALLOWED_HOSTS names them",
            )
        length = headers.get("content-length", "")
        limit = body_limit(scope["method"], scope["path"], self.config)
        if length.isdigit() and int(length) > limit:
            return of_service_error(TooLarge(f"the body has {length} bytes; at most {limit} are accepted", limit=limit))
        return None


class _Exchange:
    """One response on its way out: remembers its status, adds our headers."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self._send = send
        self._path = scope["path"]
        self.request_id = request_id
        self.status = 0
        self.started = time.perf_counter()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self.request_id
            # What a page shows changes with every result; browsers may keep it but must ask.
            headers.setdefault("Cache-Control", "no-store" if self._path.startswith("/api/") else "no-cache")
        await self._send(message)


def _limited(receive: Receive, limit: int) -> Receive:
    """`receive`, which stops after `limit` bytes: a body without a stated length can be of any size."""
    received = 0

    async def receive_some() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > limit:
                raise BodyTooLarge(413, detail=f"the body has more than the {limit} bytes that are accepted")
        return message

    return receive_some
