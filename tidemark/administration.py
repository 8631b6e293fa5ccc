"""Administration at the command line, straight in the database: tokens and sign-in links."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.database import engine_of
from tidemark.machine.datadir import DataDirectory
from tidemark.refusal import Refusal
from tidemark.settings import Settings, service_config

if TYPE_CHECKING:
    from backend.services.base.principal import Principal


def create_token(
    settings: Settings, name: str, scopes: Sequence[str], *, project: str | None = None, days: int | None = None
) -> str:
    """A new token; the only time that its secret is seen."""
    from backend.services.base.errors import ServiceError
    from backend.services.people import tokens

    now = datetime.now(UTC)
    try:
        with engine_of(settings) as engine, engine.begin() as connection:
            return tokens.make(
                connection,
                operator(),
                name,
                scopes,
                now=now,
                project=project,
                expires_at=None if days is None else now + timedelta(days=days),
            ).token
    except ServiceError as error:
        raise Refusal(str(error)) from None


def list_tokens(settings: Settings) -> list[dict[str, Any]]:
    from backend.services.base import access

    with engine_of(settings) as engine, engine.connect() as connection:
        return [
            {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(row).items()}
            for row in access.list_tokens(connection)
        ]


def describe_tokens(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "no tokens"
    lines = [f"{'#':>4}  {'begins':<9} {'scopes':<14} {'project':<20} {'last used':<17} name"]
    for row in rows:
        last_used = (row["last_used_at"] or "never")[:16].replace("T", " ")
        ended = "  (revoked)" if row["revoked_at"] else ""
        lines.append(
            f"{row['id']:>4}  {row['hint']:<9} {','.join(row['scopes']):<14} {row['project'] or 'all':<20} "
            f"{last_used:<17} {row['name']}{ended}"
        )
    return "\n".join(lines)


def revoke_token(settings: Settings, number: int) -> None:
    from backend.services.base.errors import ServiceError
    from backend.services.people import tokens

    try:
        with engine_of(settings) as engine, engine.begin() as connection:
            tokens.revoke(connection, operator(), number, now=datetime.now(UTC))
    except ServiceError as error:
        raise Refusal(str(error)) from None


def runs_here(settings: Settings) -> bool:
    """Whether `tidemark up` runs on this data directory."""
    running = DataDirectory(settings.data_dir).running()
    return running is not None and running.alive


def operator() -> Principal:
    """Who sits at the data directory, and so may do everything."""
    from backend.services.base.principal import Principal, Scope, Via

    return Principal(name=account_name(), via=Via.COMMAND, scopes=frozenset(Scope))


def account_name() -> str:
    """The name of this account of the machine."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number that has no name
        return "administrator"


def sign_in_link(settings: Settings, name: str | None = None) -> str:
    """A link to the service that runs here, or to the configured address."""
    from backend.services.base import access

    running = DataDirectory(settings.data_dir).running()
    address = running.url if running is not None and running.alive and not settings.public_url else settings.address
    with engine_of(settings) as engine, engine.begin() as connection:
        config = service_config(
            settings.changed(public_url=address, database_url="postgresql://", redis_url="redis://")
        )
        return access.create_sign_in_link(connection, config, datetime.now(UTC), name or account_name())


def export_dataset(settings: Settings, project: str, directory: Path) -> tuple[int, int]:
    """Write a project as Parquet files; how many measurements, in how many files."""
    from backend.services.archive import dataset
    from backend.services.base.errors import ServiceError

    try:
        with engine_of(settings) as engine, engine.connect() as connection:
            written = dataset.export(connection, project, directory)
    except ServiceError as error:
        raise Refusal(str(error)) from None
    return written.rows, len(written.files)
