"""Measurements that Tidemark starts by itself, advanced by the housekeeping loop. Every step can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection

from backend.services.base.config import ServiceConfig
from backend.services.base.savepoints import apart
from backend.services.plans import backfill, bisect, schedule
from backend.services.sessions import request as confirm
from backend.store.sessions import sessions as session_store

PATIENCE = timedelta(hours=24)
"""A session of which no worker took the next round for so long is not waited for any more."""


def give_up_lost_sessions(c: Connection, now: datetime) -> list[str]:
    """Sessions whose round ended without a delivery (lost too often, cancelled), or is taken by no worker."""
    ended = []
    for session_id, state, error in session_store.lost_rounds(c):
        session = session_store.find_session(c, session_id, lock=True)
        if session is not None and session["state"] in session_store.OPEN:
            reached = "cancelled" if state == "cancelled" else "failed"
            confirm.end(c, session, reached, error or f"its round is {state}", now)
            ended.append(session_id)
    for session_id in session_store.forgotten(c, now - PATIENCE):
        with apart(c, f"session {session_id}"):  # a worker may take it this very moment
            confirm.cancel(c, session_id, f"no worker took it for {PATIENCE.total_seconds() / 3600:.0f} hours", now)
            ended.append(session_id)
    confirm.take_back(c, session_store.rounds_without_session(c), "its session is over", now)
    return ended


Step = Callable[[Connection, ServiceConfig, datetime], object]

STEPS: Mapping[str, Step] = {
    "sessions": lambda c, config, now: give_up_lost_sessions(c, now),
    "bisections": bisect.advance_all,
    "backfills": lambda c, config, now: backfill.advance_all(c, now),
    "schedules": schedule.serve_due,
}
"""The work of one iteration of the loop, each part in its own transaction."""
