"""Every error as one kind of document: `application/problem+json` (RFC 9457), whatever raised it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from psycopg import errors as postgres
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.routing import Match

from backend.api import shapes
from backend.contract import Invalid
from backend.services.base.errors import BadRequest, InvalidContent, ServiceError, TooMany, Unavailable, shown

log = logging.getLogger("tidemark.api")

MEDIA_TYPE = "application/problem+json"
MAX_PROBLEMS = 50
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

SLUGS = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 415: "unsupported-media-type"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDocument:
    """One error, as sent in a response."""

    status: int
    slug: str
    title: str
    detail: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self, request_id: str | None) -> dict[str, Any]:
        stated = {
            "type": f"urn:tidemark:problem:{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        more = {name: value for name, value in self.extra.items() if name not in stated}
        return {**stated, **more, **({"request_id": request_id} if request_id else {})}

    def response(self, request_id: str | None) -> Response:
        body = orjson.dumps(self.document(request_id), default=str)
        return Response(body, status_code=self.status, media_type=MEDIA_TYPE, headers=dict(self.headers))


# The frontend sets `app.state.problem_page`: how a problem looks to a person.
ProblemPage = Callable[[Request, ProblemDocument], Response]


def answer(request: Request, problem: ProblemDocument) -> Response:
    """The problem as a page for browsers that prefer one, as a document for everyone else."""
    page: ProblemPage | None = getattr(request.app.state, "problem_page", None)
    if page is not None and not request.url.path.startswith("/api/") and _wants_html(request):
        response = page(request, problem)
        response.headers.update(problem.headers)
        return response
    return problem.response(getattr(request.state, "request_id", None))


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def of_service_error(error: ServiceError) -> ProblemDocument:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else {}
    if isinstance(error, TooMany | Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    return ProblemDocument(
        status=error.status, slug=error.slug, title=error.title, detail=error.detail, extra=error.extra, headers=headers
    )


def of_http_error(error: HTTPException, method: str, path: str) -> ProblemDocument:
    status = HTTPStatus(error.status_code)
    detail = str(error.detail)
    if detail == status.phrase:
        detail = _explained(error, method, path)
    slug = SLUGS.get(error.status_code, status.phrase.lower().replace(" ", "-"))
    return ProblemDocument(
        status=error.status_code, slug=slug, title=status.phrase, detail=detail, headers=dict(error.headers or {})
    )


def _explained(error: HTTPException, method: str, path: str) -> str:
    """A message for an error that the framework answers without one."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return f"nothing is at {shown(path)}; /openapi.json lists every route"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{method} is not accepted at {shown(path)}; accepted: {(error.headers or {}).get('Allow')}"
    status = HTTPStatus(error.status_code)
    return status.description or status.phrase


def _methods_at(request: Request) -> str:
    """Every method that is accepted at this path: the router names those of its first route there alone."""
    routes = request.app.routes
    asked = {method: {**request.scope, "method": method} for method in METHODS}
    return ", ".join(m for m in METHODS if any(route.matches(asked[m])[0] is Match.FULL for route in routes))


def of_validation_error(error: RequestValidationError) -> ProblemDocument:
    """The problem document of a request that FastAPI's validation refused."""
    found = [
        {
            "path": ".".join(str(part) for part in item["loc"]),
            "message": _said(item),
            "value": shown(item.get("input")),
        }
        for item in error.errors()[:MAX_PROBLEMS]
    ]
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return of_service_error(BadRequest(f"the body is not JSON: {found[0]['message']}", errors=found))
    sentence = "; ".join(f"{item['path']}: {item['message']} (was {item['value']})" for item in found[:3])
    return of_service_error(InvalidContent(sentence, errors=found))


def _said(item: Mapping[str, Any]) -> str:
    """A pattern in the words that describe it; every other rule says itself what it accepts."""
    words = shapes.WORDS.get(item.get("ctx", {}).get("pattern", ""))
    return str(item["msg"]) if words is None else f"must be {words}"


def of_invalid_run(error: Invalid) -> ProblemDocument:
    """A run that violates its contract."""
    found = [
        {"path": item.path, "value": item.value, "accepted": item.accepted} for item in error.problems[:MAX_PROBLEMS]
    ]
    return of_service_error(InvalidContent(str(error), errors=found))


def of_database_error(error: DBAPIError | postgres.Error) -> ProblemDocument:
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, postgres.DataError):
        # Such as a NUL character: text that JSON allows and Postgres cannot keep.
        return of_service_error(BadRequest(f"a value cannot be stored: {_first_line(cause)}"))
    if isinstance(cause, postgres.IntegrityError):
        log.error("integrity error: %s", cause)
        return ProblemDocument(
            status=409,
            slug="conflict",
            title="This contradicts what is stored",
            detail="changed by someone else; retry",
        )
    if isinstance(cause, postgres.SerializationFailure | postgres.DeadlockDetected | postgres.LockNotAvailable):
        return of_service_error(Unavailable("another request changes the same rows; try again"))
    if isinstance(cause, postgres.DiskFull):
        log.error("the disk of the database is full: %s", _first_line(cause))
        return of_service_error(Unavailable("the disk of the database is full; nothing is stored until it has room"))
    if isinstance(cause, postgres.OperationalError):
        log.error("the database does not answer: %s", _first_line(cause))
        return of_service_error(Unavailable("the database does not answer; try again in a moment"))
    return UNEXPECTED


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().split("\n", 1)[0]


UNEXPECTED = ProblemDocument(
    status=500,
    slug="internal-error",
    title="Something failed inside the service",
    detail="an unexpected error; the service's log has it under this request id",
)


def install(app: FastAPI) -> None:
    """Register the handlers. They run on the event loop, so none does I/O."""

    async def on_service_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return answer(request, of_service_error(error))

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            error.headers = {"Allow": _methods_at(request)}
        return answer(request, of_http_error(error, request.method, request.url.path))

    async def on_validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(request, of_validation_error(error))

    async def on_invalid_run(request: Request, error: Exception) -> Response:
        assert isinstance(error, Invalid)
        return answer(request, of_invalid_run(error))

    async def on_database_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, DBAPIError | postgres.Error)
        problem = of_database_error(error)
        if problem.slug == "conflict" and request.method == "PUT":
            # Somebody was faster. A worker takes a 409 for the last word; sent again, it is answered by what stands.
            problem = of_service_error(Unavailable("another request changes the same rows; try again"))
        if problem is UNEXPECTED:
            log.error("unexpected database error in %s %s", request.method, request.url.path, exc_info=error)
        return answer(request, problem)

    async def on_pool_timeout(request: Request, error: Exception) -> Response:
        log.error("no database connection was free: %s", error)
        return answer(request, of_service_error(Unavailable("too many requests at once; try again in a moment")))

    app.add_exception_handler(ServiceError, on_service_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(Invalid, on_invalid_run)
    app.add_exception_handler(DBAPIError, on_database_error)
    app.add_exception_handler(postgres.Error, on_database_error)  # results take the short way to the driver
    app.add_exception_handler(PoolTimeout, on_pool_timeout)
