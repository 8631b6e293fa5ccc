"""What an import must know: which of its runs are there already, and what the series are like that it adds to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from backend.contract import Run
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


@dataclass(frozen=True, slots=True)
class SeriesKind:
    """What every measurement of a series must have in common."""

    unit: str
    direction: str
    exact: bool


_KINDS = text(
    """SELECT s.benchmark, s.variant_key, s.preset, s.metric, s.unit, s.direction, s.exact
       FROM series s JOIN project p ON p.id = s.project_id JOIN testbed t ON t.id = s.testbed_id
       WHERE p.slug = :project AND t.name = :testbed AND s.suite = :suite AND s.suite_version = :version
         AND s.benchmark = ANY(:benchmarks)"""
)


def kinds_of_series(c: Connection, run: Run) -> Mapping[tuple[str, str, str, str], SeriesKind]:
    """The kind of each series of the run's benchmarks, by benchmark, variant, preset and metric."""
    values = {"project": run.project, "testbed": run.testbed, "suite": run.suite, "version": run.suite_version}
    rows = c.execute(_KINDS, {**values, "benchmarks": list({result.benchmark for result in run.results})})
    return {tuple(row[:4]): SeriesKind(*row[4:]) for row in rows}
