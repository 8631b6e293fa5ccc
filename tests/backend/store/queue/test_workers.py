"""A worker makes itself known, and learns what state it should be in."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, text

from backend.store.queue.workers import DescribedWorker, SeenWorker, register_worker, set_wanted_state, worker_statement

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WORKER = DescribedWorker(
    name="w1", testbed="cpu", project_id=None, token_id=None, version="1", capabilities={"cores": 2}, protection="user"
)


def say(connection: Connection, *, starting: bool = True, **changed: Any) -> SeenWorker | None:
    return register_worker(connection, worker_statement(replace(WORKER, **changed), starting=starting, now=NOW))


def test_a_worker_is_stored_at_its_first_word_and_refreshed_at_the_next(connection: Connection) -> None:
    first = say(connection)
    again = say(connection, version="2", starting=False)
    assert first is not None and again is not None and first.id == again.id
    row = connection.execute(text("SELECT version, started_at, last_seen_at, capabilities FROM worker")).one()
    assert tuple(row) == ("2", NOW, NOW, {"cores": 2})


def test_the_state_that_a_person_wants_reaches_the_worker_with_its_next_word(connection: Connection) -> None:
    say(connection)
    assert set_wanted_state(connection, "w1", "pause")
    seen = say(connection)
    assert seen is not None and seen.wanted_state == "pause"
    assert not set_wanted_state(connection, "nobody", "pause")


def test_a_name_stays_with_the_token_that_is_still_good(connection: Connection) -> None:
    tokens = connection.execute(
        text(
            """INSERT INTO api_token (name, hash, hint, scopes, created_at)
               SELECT n, n::bytea, n, '{worker}', now() FROM unnest(ARRAY['a', 'b']) AS n RETURNING id"""
        )
    ).scalars()
    own, other = tokens
    assert say(connection, token_id=own) is not None
    assert say(connection, token_id=other) is None
    connection.execute(text("UPDATE api_token SET revoked_at = now() WHERE id = :own"), {"own": own})
    assert say(connection, token_id=other) is not None
