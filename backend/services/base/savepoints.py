"""Several things moved on in one transaction, none of them held up by another that cannot be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors as postgres
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from backend.store.base import wire

log = logging.getLogger("tidemark.measuring")


@contextmanager
def apart(c: Connection, what: str) -> Iterator[None]:
    """Run a block in a savepoint: a failure is undone and logged, the transaction continues; a lost database raises."""
    try:
        with c.begin_nested():
            yield
    except Exception:
        if is_lost(c):
            raise
        log.exception("%s could not be moved on", what)


def is_lost(c: Connection) -> bool:
    """Whether the database itself is gone."""
    return bool(c.invalidated or wire.driver(c).closed)


def met_another(error: BaseException) -> bool:
    """Whether only another transaction was in the way, at this moment: what failed can be done again at once."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, postgres.DeadlockDetected | postgres.SerializationFailure | postgres.LockNotAvailable)
