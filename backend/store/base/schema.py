"""The schema's life: migrate up and down, and the monthly partitions of the two tables that grow."""

from datetime import UTC, datetime
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"
PARTITIONED_TABLES = ("measurement", "judgement")


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration without a file: where the scripts are, and the connection to run on."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the schema to `revision` and make sure this month's and next month's partitions exist."""
    command.upgrade(alembic_config(connection), revision)
    if revision == "head":
        ensure_partitions(connection, datetime.now(UTC))


def downgrade(connection: Connection, revision: str) -> None:
    """Take the schema back to `revision` (`base`: nothing is left)."""
    command.downgrade(alembic_config(connection), revision)


def revisions(connection: Connection) -> tuple[str | None, str | None]:
    """(what the database is at, what this code expects)."""
    at = MigrationContext.configure(connection).get_current_revision()
    return at, ScriptDirectory(str(MIGRATIONS)).get_current_head()


def _month(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)


def ensure_partitions(connection: Connection, *moments: datetime) -> None:
    """Create the partitions that rows of these moments (and of the month after each) need; a no-op when they exist.

    Partitions are made under a lock, so that two deliveries of an old history don't race.
    """
    months = {_month(m.year, m.month + ahead) for m in moments for ahead in (0, 1)}
    names = {f"{table}_{month:%Y_%m}": (table, month) for table in PARTITIONED_TABLES for month in months}
    there = set(
        connection.scalars(
            text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname = ANY(:names)"), {"names": list(names)}
        )
    )
    missing = sorted(names.keys() - there)
    if not missing:
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('tidemark partitions'))"))
    for name in missing:
        table, month = names[name]
        end = _month(month.year, month.month + 1)
        connection.execute(
            text(
                f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} "
                f"FOR VALUES FROM ('{month:%Y-%m-%d} 00:00+00') TO ('{end:%Y-%m-%d} 00:00+00')"
            )
        )
