"""Old months leave the database: measurements go to Parquet files, and their partitions are dropped.

What a board or a chart shows by hour, day or week comes from the roll-ups, which stay, as do runs, series and
regressions. The service just no longer has the single points of that time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from backend.services.archive import dataset
from backend.store.archive import months as store
from backend.store.archive.months import KeptMonth
from backend.store.base.schema import month_of

log = logging.getLogger("tidemark.archive")


def retire(
    engine: Engine,
    archive: Path,
    keep_months: int,
    now: datetime,
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[datetime]:
    """Archive and drop every month that ended more than `keep_months` months ago; returns these months. The month
    before an open change, and those after it, stay: judged again without them, the change would never end."""
    until = month_of(now, -keep_months)
    with engine.begin() as c:
        store.name_months(c)  # before the first file is written: who stops then writes the same file again
        needed = store.first_needed(c, until)
        if needed is not None:
            until = min(until, month_of(needed, -1))
        due = [kept for kept in store.kept_months(c) if kept.month < until]
    gone = []
    for kept in due:
        if is_stopping():
            break
        _retire_month(engine, archive, kept)
        gone.append(kept.month)
    return gone


def _retire_month(engine: Engine, archive: Path, kept: KeptMonth) -> None:
    """In one transaction: what is dropped is what was written, and it is on disk before it goes."""
    with engine.begin() as c:
        store.hold(c, kept.month)
        rows = 0
        for project_id, slug in store.projects(c):
            path = dataset.path_of(archive, slug, kept.month, str(kept.name))
            rows += dataset.write_month(c, project_id, kept.month, path)
        store.drop(c, kept.month)
    log.info("%s is archived: %d measurements, in %s", f"{kept.month:%Y-%m}", rows, archive)
