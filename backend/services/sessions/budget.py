"""How many sessions a project may request automatically: a number per 24 hours, set by its policy.

Nothing is lost beyond it: a suspect without a session is decided by the commits that follow it. Sessions requested by
people, bisections and schedules are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from backend.services.policy.resolve import policy_book
from backend.store.base import projects as project_store
from backend.store.joint import pauses as store

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBudget:
    """Sessions a project may request in 24 hours, and how many it has requested."""

    allowed: int
    asked: int
    free_at: datetime | None
    """When the next may be requested; None: at once, or (if none is allowed) never."""

    @property
    def left(self) -> int:
        return max(0, self.allowed - self.asked)


def budget_of(c: Connection, project_id: int, now: datetime) -> SessionBudget:
    project = project_store.by_id(c, project_id)
    assert project is not None
    policy = policy_book(c, project.slug).general
    asked, allowed = store.asked_since(c, project_id, now - DAY), policy.sessions_per_day
    is_used_up = len(asked) >= allowed > 0
    return SessionBudget(allowed=allowed, asked=len(asked), free_at=asked[allowed - 1] + DAY if is_used_up else None)
