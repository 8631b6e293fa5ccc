"""A connection that the server closed while it rested must not fail whoever asks for it next."""

import pytest
from sqlalchemy import Engine, create_engine, text

from backend.store.base import pool


@pytest.fixture
def pooled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:  # type: ignore[misc]
    monkeypatch.setattr(pool, "RESTED_S", 0.0)
    pooled = create_engine(engine.url, pool_size=1, max_overflow=0)
    pool.check_rested(pooled)
    yield pooled  # type: ignore[misc]
    pooled.dispose()


def test_a_rested_connection_that_was_closed_is_replaced(pooled: Engine, engine: Engine) -> None:
    with pooled.connect() as connection:
        first = connection.scalar(text("SELECT pg_backend_pid()"))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": first})
    with pooled.connect() as connection:
        assert connection.scalar(text("SELECT pg_backend_pid()")) != first


def test_a_connection_that_was_used_just_now_is_not_asked(pooled: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RESTED_S", 60.0)
    asked: list[object] = []
    with pooled.connect():
        pass
    monkeypatch.setattr(pooled.dialect, "do_ping", asked.append)
    with pooled.connect():
        pass
    assert asked == []


def test_the_first_connection_is_opened_before_it_is_needed(engine: Engine) -> None:
    early = create_engine(engine.url, pool_size=1, max_overflow=0)
    pool.open_early(early)
    assert early.pool.checkedin() == 1  # type: ignore[attr-defined]
    early.dispose()
