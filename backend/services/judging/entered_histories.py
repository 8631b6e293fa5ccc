"""Histories loaded by a preview are kept for a moment: a person who drags a slider asks again at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from sqlalchemy import Connection

from backend.regression.policy import Policy
from backend.regression.series import history
from backend.regression.series.history import History
from backend.regression.terms import ChangePoint
from backend.store.base import live
from backend.store.policy.policies import Watched

SECONDS = 60


@dataclass(frozen=True, slots=True, eq=False)
class EnteredHistory:
    """The history of a series, and what each policy in question would have reported in it."""

    watched: Watched
    history: History
    _changes: dict[Policy, Sequence[ChangePoint]] = field(default_factory=dict)

    def changes_by(self, policy: Policy) -> Sequence[ChangePoint]:
        """The present policy is asked about each time, and replayed once."""
        if policy not in self._changes:
            self._changes[policy] = history.replay(self.history, policy)
        return self._changes[policy]


Known = dict[int, EnteredHistory]
"""Histories by their series."""
_Key = tuple[str, int, int, int, int]


class EnteredHistories:
    """Those of the last preview: of one project and stretch of time, until anything happens or a minute has passed."""

    def __init__(self) -> None:
        self._key: _Key | None = None
        self._known: Known = {}
        self._lock = Lock()

    def of(self, c: Connection, project_id: int, now: datetime, days: int) -> Known:
        """The histories of this project so far; the caller adds those it enters."""
        minute = int(now.timestamp() // SECONDS)
        key = str(c.engine.url), project_id, minute, days, live.newest_event(c)
        with self._lock:
            if key != self._key:
                self._key, self._known = key, {}
            return self._known


HISTORIES = EnteredHistories()
