"""Errors a caller can get: one class per kind of response.

The API turns each into a problem document (RFC 9457) in one handler; pages render the same fields.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

MAX_SHOWN = 120


def shown(value: object) -> str:
    """`value` for an error message: quoted, and at most one line long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


class ServiceError(Exception):
    """A response other than success. `detail` is a sentence for people, `extra` has further members for programs."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Something failed inside the service"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra: Mapping[str, Any] = extra


class BadRequest(ServiceError):
    """The request was understood but is invalid."""

    status = 400
    slug = "bad-request"
    title = "The request is not valid"

    @classmethod
    def field(cls, field: str, value: object, accepted: str | Sequence[str]) -> "BadRequest":
        """`field` had `value`; what is `accepted` is a phrase or the list of values."""
        accepted_text = accepted if isinstance(accepted, str) else ", ".join(accepted)
        return cls(
            f"{field}: {shown(value)} is not accepted; accepted: {accepted_text}",
            field=field,
            value=shown(value),
            accepted=accepted if isinstance(accepted, str) else list(accepted),
        )


class Unauthenticated(ServiceError):
    """No valid proof of identity."""

    status = 401
    slug = "unauthenticated"
    title = "A token or a signed-in session is needed"


class Forbidden(ServiceError):
    """A known caller who may not do this."""

    status = 403
    slug = "forbidden"
    title = "This is not allowed"


class NotFound(ServiceError):
    status = 404
    slug = "not-found"
    title = "There is no such thing"

    @classmethod
    def of(cls, what: str, key: object, known: Sequence[str] = ()) -> "NotFound":
        """No `what` is called `key`; if there are only a few known ones, they are named."""
        hint = f"; known: {', '.join(known)}" if known else ""
        return cls(f"unknown {what} {shown(key)}{hint}")


class Conflict(ServiceError):
    """No longer possible, or in conflict with what exists."""

    status = 409
    slug = "conflict"
    title = "This contradicts what is stored"


class Outdated(ServiceError):
    """The versions of caller and service are incompatible."""

    status = 426
    slug = "outdated"
    title = "The versions do not fit together"


class Gone(ServiceError):
    status = 410
    slug = "gone"
    title = "This is over"


class TooLarge(ServiceError):
    status = 413
    slug = "too-large"
    title = "The body is too large"


class InvalidContent(ServiceError):
    """A document that violates its contract; `errors` name the place, the value and what is accepted."""

    status = 422
    slug = "invalid-content"
    title = "The document breaks its contract"


class TooMany(ServiceError):
    """This caller has reached a limit."""

    status = 429
    slug = "too-many-requests"
    title = "Too many requests"
    retry_after_s: int = 30


class Unavailable(ServiceError):
    status = 503
    slug = "unavailable"
    title = "Not now"
    retry_after_s: int = 2
