"""Answers that are no read model of their own: documented here, so that OpenAPI says what comes back."""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

T = TypeVar("T")


class ListPage(BaseModel, Generic[T]):
    """Part of a list. `next` is the cursor of the following part, null at the end."""

    items: list[T]
    next: str | None


class HeartbeatAnswer(BaseModel):
    cancel: bool


class WorkerAnswer(BaseModel):
    state: Literal["ok", "pause", "drain", "quarantine"]


class WelcomeAnswer(WorkerAnswer):
    queue: str  # of the broker, where this worker's messages are


class NextAnswer(BaseModel):
    run_id: str | None


class EventsAnswer(BaseModel):
    stored: int


class StateAnswer(BaseModel):
    run_id: str
    state: str


class StoredRunEvent(BaseModel):
    id: int
    attempt: int
    at: datetime
    kind: str
    detail: dict[str, Any]


class TokenAnswer(BaseModel):
    """A token without its secret."""

    id: int
    name: str
    hint: str
    scopes: list[str]
    project: str | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class SignInAnswer(BaseModel):
    """A browser that is signed in."""

    id: str
    name: str
    login: str
    browser: str
    signed_in_at: datetime
    last_used_at: datetime
    ends_at: datetime


class ReadinessAnswer(BaseModel):
    ready: bool
    checks: dict[str, str]
    notes: list[str]
