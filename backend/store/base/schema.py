"""The schema's life cycle: migrations up and down, and the monthly partitions of the two tables that grow.

Alembic is imported where it is used: most processes only make partitions, and it takes a tenth of their start.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"
PARTITIONED_TABLES = ("measurement", "judgement")
LOCK_WAIT_S = 3.0
LOCK_TRIES = 10
LOCK_NOT_AVAILABLE = "55P03"


class SetTooLow(Exception):
    """A migration needs more of something than PostgreSQL is set to; the message names the setting."""


class LockHeld(Exception):
    """A migration could not get the lock it needs: something holds a table for too long."""


def alembic_config(connection: Connection | None = None) -> "Config":
    """Alembic's configuration without a file: where the scripts are, and the connection to use."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Upgrade the schema to `revision` and make sure this month's and next month's partitions exist."""
    from alembic import command

    command.upgrade(alembic_config(connection), revision)
    if revision == "head":
        ensure_partitions(connection, datetime.now(UTC))


def upgrade_while_in_use(engine: Engine, begins: Callable[[str], None] = lambda migration: None) -> None:
    """Upgrade the schema to head while a service may be using it. `begins` is told of what may take minutes: waiting
    for another upgrade, and each migration of what is stored there; in a new database none takes long.

    Each migration is a transaction of its own, so that no lock outlives the migration that needs it. One that waits
    for a lock longer than a moment gives way to those queued behind it, and is retried; after
    `LOCK_TRIES` attempts `LockHeld` says so, with everything up to the last complete migration done. If two run at
    once, the second waits for the first, and finds nothing left to do.
    """
    with engine.connect() as guard:
        if not guard.scalar(text("SELECT pg_try_advisory_lock(hashtext('tidemark migrations'))")):
            begins("waiting for another upgrade to end")
            guard.execute(text("SELECT pg_advisory_lock(hashtext('tidemark migrations'))"))
        guard.commit()
        try:
            is_new = _revision_of(guard) is None
            to_do = pending(guard)
            guard.commit()
            for revision in to_do:
                if not is_new:
                    begins(f"migration {revision}: {_title_of(revision)}")
                _step(engine, revision)
            with engine.begin() as connection:
                ensure_partitions(connection, datetime.now(UTC))
        finally:
            guard.rollback()
            guard.execute(text("SELECT pg_advisory_unlock(hashtext('tidemark migrations'))"))
            guard.commit()


def _title_of(revision: str) -> str:
    said = " ".join(_scripts().get_revision(revision).doc.split())
    return said[:1].lower() + said[1:]


def _step(engine: Engine, revision: str) -> None:
    from alembic import command

    for again in range(LOCK_TRIES):
        try:
            with engine.begin() as connection:
                connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S * 1000:.0f}ms'"))
                command.upgrade(alembic_config(connection), revision)
            return
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            time.sleep(again)
    raise LockHeld(f"migration {revision} got no lock in {LOCK_TRIES} tries of {LOCK_WAIT_S:.0f} s")


def pending(connection: Connection) -> list[str]:
    """The revisions between the database's and head, in the order in which they run."""
    at = _revision_of(connection)
    scripts = _scripts().iterate_revisions("head", at or "base")
    return [script.revision for script in scripts][::-1]


def downgrade(connection: Connection, revision: str) -> None:
    """Take the schema back to `revision` (`base`: nothing is left)."""
    from alembic import command

    command.downgrade(alembic_config(connection), revision)


def revisions(connection: Connection) -> tuple[str | None, str | None]:
    """(the database's revision, the one this code expects)."""
    at = _revision_of(connection)
    return at, _scripts().get_current_head()


def is_known(revision: str) -> bool:
    """Whether this code has that migration; if not, it belongs to a later version."""
    return any(script.revision == revision for script in _scripts().walk_revisions())


def _revision_of(connection: Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _scripts() -> "ScriptDirectory":
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(MIGRATIONS))


def month_of(moment: datetime, ahead: int = 0) -> datetime:
    """The first moment of a moment's month, or of the month that many months later (earlier, if negative)."""
    moment = moment.astimezone(UTC)
    months = moment.year * 12 + moment.month - 1 + ahead
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


def month_after(month: datetime) -> datetime:
    return month_of(month, 1)


def ensure_partitions(connection: Connection, *moments: datetime) -> None:
    """Create the partitions needed by rows of these moments (and of the month after each); a no-op if they exist.

    Partitions are created under a lock, so that two deliveries of an old history don't race.
    """
    missing = missing_partitions(connection, *moments)
    if not missing:
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('tidemark partitions'))"))
    for name, (table, month) in sorted(missing.items()):
        end = month_after(month)
        connection.execute(
            text(
                f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} "
                f"FOR VALUES FROM ('{month:%Y-%m-%d} 00:00+00') TO ('{end:%Y-%m-%d} 00:00+00')"
            )
        )


def missing_partitions(connection: Connection, *moments: datetime) -> dict[str, tuple[str, datetime]]:
    """Partitions that rows of these moments, and of the month after each, lack: table and month by name."""
    months = {month_of(moment, ahead) for moment in moments for ahead in (0, 1)}
    names = {f"{table}_{month:%Y_%m}": (table, month) for table in PARTITIONED_TABLES for month in months}
    there = set(
        connection.scalars(
            text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname = ANY(:names)"), {"names": list(names)}
        )
    )
    return {name: place for name, place in names.items() if name not in there}
