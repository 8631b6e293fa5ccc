"""Projects as a data set of Parquet files, a folder for each and its months, as DuckDB, pandas and Spark read it.

A row is one measurement: what was measured, when, where, for which commit, and its current judgement.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection

from backend.services.base.errors import BadRequest
from backend.services.base.projects import find_project
from backend.store.archive import months as store
from backend.store.base.schema import month_after


@dataclass(frozen=True, slots=True)
class Written:
    """Counts of an export."""

    rows: int
    files: tuple[Path, ...]


def export(c: Connection, project: str, directory: Path) -> Written:
    """Write all that a project measured under `directory`, as project=you%2Floom/month=2026-11/part-0.parquet and so
    on. `BadRequest`: it is no directory that we may write to."""
    found = find_project(c, project)
    rows, files = 0, []
    for kept in store.kept_months(c):
        path = path_of(directory, project, kept.month, "0")
        try:
            written = write_month(c, found.id, kept.month, path)
        except OSError as error:
            raise BadRequest(f"{path} cannot be written: {error.strerror or error}") from error
        rows += written
        files += [path] if written else []
    return Written(rows, tuple(files))


def path_of(directory: Path, project: str, month: datetime, part: str) -> Path:
    return directory / f"project={quote(project, safe='')}" / f"month={month:%Y-%m}" / f"part-{part}.parquet"


def write_month(c: Connection, project_id: int, month: datetime, path: Path) -> int:
    """Write what a project measured in a month to a file, on disk when this returns; the number of rows. No file, and
    none from before, where there is nothing."""
    rows = 0
    batches = store.rows_of(c, project_id, month, month_after(month))
    first = next(batches, None)
    if first is None:
        path.unlink(missing_ok=True)
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".writing")
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")  # heavy, and rarely asked for
    schema = _schema(pyarrow)
    with parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
        for batch in _with(first, batches):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            rows += len(batch)
    _settle(draft)
    draft.replace(path)
    _settle(path.parent)
    return rows


def _with(first: list[dict[str, Any]], others: Iterable[list[dict[str, Any]]]) -> Iterable[list[dict[str, Any]]]:
    yield first
    yield from others


def _settle(path: Path) -> None:
    """Until it is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _schema(pyarrow: Any) -> Any:
    text, number, floats = pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.float64())
    names = pyarrow.dictionary(pyarrow.int32(), text)
    return pyarrow.schema(
        {
            "series_id": pyarrow.int32(),
            "testbed": names,
            "suite": names,
            "suite_version": names,
            "benchmark": names,
            "variant": names,
            "preset": names,
            "metric": names,
            "unit": names,
            "direction": names,
            "role": names,
            "commit": names,
            "branch": names,
            "position": pyarrow.int32(),
            "run_id": names,
            "worker": names,
            "measured_at": pyarrow.timestamp("us", tz="UTC"),
            "value": number,
            "processes": floats,
            "samples": floats,
            "sample_counts": pyarrow.list_(pyarrow.int32()),
            "verdict": names,
            "red": pyarrow.bool_(),
            "onset": pyarrow.bool_(),
            "change": pyarrow.float32(),
            "change_low": pyarrow.float32(),
            "change_high": pyarrow.float32(),
            "baseline": number,
            "regression_id": pyarrow.int32(),
        }
    )
