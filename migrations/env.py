"""Alembic's entry: runs the migrations on the connection it is given, or on the URL in `sqlalchemy.url`."""

from alembic import context
from sqlalchemy import create_engine, pool
from sqlalchemy.engine import Connection
from sqlalchemy.schema import SchemaItem

from backend.store.tables import access as access_tables
from backend.store.tables import github as github_tables
from backend.store.tables import joint as fleet_tables
from backend.store.tables import notify as notify_tables
from backend.store.tables.core import metadata

LAST_TABLES = (access_tables, fleet_tables, github_tables, notify_tables)  # with those they import: all on `metadata`
PARTITIONED = ("measurement_", "judgement_")


def include_object(
    item: SchemaItem, name: str | None, kind: str, reflected: bool, compare_to: SchemaItem | None
) -> bool:
    """Partitions come and go with the months; the parent tables are what the migrations describe."""
    if kind == "table":
        return not (reflected and name is not None and name.startswith(PARTITIONED))
    if kind == "index" and reflected:
        return not item.table.name.startswith(PARTITIONED)  # type: ignore[attr-defined]
    return True


def run(connection: Connection) -> None:
    context.configure(
        connection=connection, target_metadata=metadata, include_object=include_object, compare_server_default=True
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise SystemExit("migrations: no database URL given (tidemark db upgrade --database-url …)")
    with create_engine(url, poolclass=pool.NullPool).begin() as connection:
        run(connection)
