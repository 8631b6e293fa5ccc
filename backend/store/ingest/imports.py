"""What an import must know before it stores anything: which of its runs are there already."""

from collections.abc import Iterable

from sqlalchemy import Connection, select

from backend.store.tables.core import run

BATCH = 1000


def stored_runs(c: Connection, ids: Iterable[str]) -> set[str]:
    """Those of the runs whose result has been stored."""
    wanted = list(ids)
    found: set[str] = set()
    for at in range(0, len(wanted), BATCH):
        statement = select(run.c.id).where(run.c.id.in_(wanted[at : at + BATCH]), run.c.body_sha256.is_not(None))
        found.update(c.execute(statement).scalars())
    return found
