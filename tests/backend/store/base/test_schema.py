"""Migrations of a database that is in use: step by step, giving way to who holds a lock, one upgrade at a time."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import Engine, text

from backend.store.base import schema
from tidemark.machine.processes import wait_until


def put_back(engine: Engine, revision: str) -> None:
    with engine.begin() as c:
        schema.downgrade(c, revision)


def revision_of(engine: Engine) -> str | None:
    with engine.connect() as c:
        return schema.revisions(c)[0]


def test_pending_are_the_migrations_between_the_database_and_head_in_their_order(committing_engine: Engine) -> None:
    with committing_engine.connect() as c:
        assert schema.pending(c) == []
    put_back(committing_engine, "0020")
    with committing_engine.connect() as c:
        expected = schema.pending(c)
    assert expected[:2] == ["0021", "0022"]
    told: list[str] = []
    schema.upgrade_while_in_use(committing_engine, told.append)
    assert [line.split(":")[0] for line in told] == [f"migration {revision}" for revision in expected]
    assert told[0].startswith("migration 0021: whether a judgement is red") and "\n" not in "".join(told)


def test_a_migration_waits_for_who_reads_and_goes_on(
    committing_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_WAIT_S", 0.05)
    put_back(committing_engine, "0021")
    with committing_engine.connect() as reader:
        reader.execute(text("SELECT count(*) FROM judgement"))
        upgrading = threading.Thread(target=schema.upgrade_while_in_use, args=(committing_engine,))
        upgrading.start()
        upgrading.join(0.5)
        assert upgrading.is_alive() and revision_of(committing_engine) == "0021"
    upgrading.join(30)
    with committing_engine.connect() as c:
        assert schema.pending(c) == []


def test_a_lock_that_is_never_given_up_ends_an_upgrade_with_what_was_done_so_far(
    committing_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_WAIT_S", 0.05)
    monkeypatch.setattr(schema, "LOCK_TRIES", 1)
    put_back(committing_engine, "0019")
    with committing_engine.connect() as reader:
        reader.execute(text("SELECT count(*) FROM judgement"))
        with pytest.raises(schema.LockHeld, match="migration 0021 got no lock"):
            schema.upgrade_while_in_use(committing_engine)
    assert revision_of(committing_engine) == "0020"
    schema.upgrade_while_in_use(committing_engine)


def test_an_upgrade_that_waits_for_another_says_so(committing_engine: Engine) -> None:
    told: list[str] = []
    with committing_engine.begin() as other:
        other.execute(text("SELECT pg_advisory_xact_lock(hashtext('tidemark migrations'))"))
        waiting = threading.Thread(target=schema.upgrade_while_in_use, args=(committing_engine, told.append))
        waiting.start()
        assert wait_until(lambda: bool(told), 20) and waiting.is_alive()
    waiting.join(30)
    assert told == ["waiting for another upgrade to end"] and not waiting.is_alive()


def test_two_upgrades_at_once_are_one(committing_engine: Engine) -> None:
    put_back(committing_engine, "0018")
    failures: list[BaseException] = []

    def upgrade() -> None:
        try:
            schema.upgrade_while_in_use(committing_engine)
        except BaseException as failure:
            failures.append(failure)

    both = [threading.Thread(target=upgrade) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(60)
    assert failures == []
    with committing_engine.connect() as c:
        assert schema.pending(c) == []
