"""Places in the log: they only grow, and a primary replays nothing."""

from __future__ import annotations

from sqlalchemy import Engine, text

from backend.store.base.replica import replayed_to, written_to


def test_what_is_written_moves_the_end_of_the_log_and_a_primary_replays_nothing(committing_engine: Engine) -> None:
    with committing_engine.begin() as c:
        before = written_to(c)
        c.execute(text("CREATE TABLE moved (id int)"))
        assert written_to(c) > before
        assert replayed_to(c) is None
