"""Connections that have rested are looked at before they are used: the server may have closed them meanwhile.

A connection that was in use a moment ago is not asked: with results coming in, the question would be asked of every
delivery, and cost a round trip each.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

RESTED_S = 0.5


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
