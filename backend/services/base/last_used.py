"""When tokens and sessions were last used: noted in memory, written together now and then.

Written within the request, it made each read a write, and every request with one token wait for the others.
"""

import threading
from datetime import datetime, timedelta

from sqlalchemy import Connection

from backend.store.base import access as store

# `last used` is for people: a minute is exact enough.
EVERY = timedelta(minutes=1)


class LastUsed:
    """Times of last use waiting to be written. Shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[int, datetime] = {}
        self._sessions: dict[bytes, datetime] = {}

    def token(self, token_id: int, known: datetime | None, now: datetime) -> None:
        """The token was used just now; `known` is what is written already."""
        if known is None or now - known > EVERY:
            with self._lock:
                self._tokens[token_id] = now

    def session(self, hash: bytes, known: datetime, now: datetime) -> None:
        """The session was used just now; `known` is what is written already."""
        if now - known > EVERY:
            with self._lock:
                self._sessions[hash] = now

    def write(self, c: Connection) -> None:
        """Write what was noted since the last time. Rows that are gone meanwhile stay gone."""
        with self._lock:
            tokens, self._tokens = self._tokens, {}
            sessions, self._sessions = self._sessions, {}
        store.touch_tokens(c, tokens)
        store.touch_sessions(c, sessions)

    @property
    def is_empty(self) -> bool:
        return not self._tokens and not self._sessions
