"""Connections: the first is opened before it is needed, and one that has rested is looked at before it is used.

The server may have closed it meanwhile. A connection that was in use a moment ago is not asked: with results coming in,
the question would be asked of every delivery, and cost a round trip each.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DisconnectionError

RESTED_S = 0.5
# PostgreSQL reads once for each connection what it must know of a table, its months and indexes.
_LARGE_TABLES = text("SELECT 1 FROM run, result, measurement, judgement, series, rollup, commit, branch_commit LIMIT 0")


def open_early(engine: Engine) -> None:
    """Open a connection and have the server look up the large tables, 40 ms that whoever asks first need not wait."""
    with engine.connect() as connection:
        connection.execute(_LARGE_TABLES)
        connection.rollback()


def check_rested(engine: Engine) -> None:
    """A connection of this pool that rested for half a second, and is dead, is replaced unnoticed."""

    def came_back(connection: Any, record: Any) -> None:
        record.info["since"] = time.monotonic()

    def goes_out(connection: Any, record: Any, proxy: Any) -> None:
        if time.monotonic() - record.info.get("since", 0.0) < RESTED_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError("the server has closed this connection") from error

    event.listen(engine, "checkin", came_back)
    event.listen(engine, "checkout", goes_out)
