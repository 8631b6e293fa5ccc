"""Which artifacts a run has. The bytes are files (services/base/artifacts.py); rows say what they are."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.base.projects import project_of
from backend.store.tables.core import artifact, run


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArtifact:
    run_id: str
    name: str
    content_type: str
    size: int
    sha256: bytes
    received_at: datetime


COLUMNS = (
    artifact.c.run_id,
    artifact.c.name,
    artifact.c.content_type,
    artifact.c.size,
    artifact.c.sha256,
    artifact.c.received_at,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHolder:
    """Whose run it is, and what its worker's lease hashes to; None: no worker holds it."""

    project_id: int
    lease_hash: bytes | None


def lock_run(c: Connection, run_id: str) -> RunHolder | None:
    """The run, whose row is locked: its artifacts change one after the other."""
    statement = select(run.c.project_id, run.c.lease_hash).where(run.c.id == run_id)
    row = c.execute(statement.with_for_update()).one_or_none()
    return None if row is None else RunHolder(**row._mapping)


def find(c: Connection, run_id: str, name: str) -> StoredArtifact | None:
    row = c.execute(select(*COLUMNS).where(artifact.c.run_id == run_id, artifact.c.name == name)).one_or_none()
    return None if row is None else StoredArtifact(**row._mapping)


def of_run(c: Connection, run_id: str) -> list[StoredArtifact]:
    statement = select(*COLUMNS).where(artifact.c.run_id == run_id).order_by(artifact.c.name)
    return [StoredArtifact(**row._mapping) for row in c.execute(statement)]


def count_and_size(c: Connection, run_id: str) -> tuple[int, int]:
    """How many artifacts the run has, and how many bytes they are together."""
    size = func.coalesce(func.sum(artifact.c.size), 0)
    row = c.execute(select(func.count(), size).where(artifact.c.run_id == run_id)).one()
    return int(row[0]), int(row[1])


def forget_before(c: Connection, before: datetime, limit: int) -> list[tuple[str, str]]:
    """Forget so many of the oldest that came before then: (run, name) of each."""
    old = select(artifact.c.run_id, artifact.c.name).where(artifact.c.received_at < before)
    chosen = old.order_by(artifact.c.received_at).limit(limit).subquery()
    statement = delete(artifact).where(artifact.c.run_id == chosen.c.run_id, artifact.c.name == chosen.c.name)
    return [(row.run_id, row.name) for row in c.execute(statement.returning(artifact.c.run_id, artifact.c.name))]


def store(c: Connection, row: StoredArtifact) -> None:
    values = {
        "content_type": row.content_type,
        "size": row.size,
        "sha256": row.sha256,
        "received_at": row.received_at,
    }
    statement = upsert(artifact).values(
        run_id=row.run_id, project_id=project_of(run, row.run_id), name=row.name, **values
    )
    c.execute(statement.on_conflict_do_update(index_elements=["run_id", "name", "project_id"], set_=values))
