"""How many statements something sends to PostgreSQL, by either way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, event

from backend.store.base import wire


@contextmanager
def counted(c: Connection) -> Iterator[list[str]]:
    """The statements sent by this connection meanwhile."""
    sent: list[str] = []

    def heard(_c: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    def send(c: Connection, *statements: wire.Statement) -> object:
        sent.extend(statement for statement, _ in statements)
        return pipeline(c, *statements)

    pipeline = wire.send
    event.listen(c, "before_cursor_execute", heard)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "send", send)
            yield sent
    finally:
        event.remove(c, "before_cursor_execute", heard)
