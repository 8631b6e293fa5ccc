"""Reads of an import: which of its runs are there already, and the kinds of the series it adds to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select, text

from backend.contract import Run
from backend.store.base.commits import WAITS_FOR_COMMIT
from backend.store.tables.core import measurement, run

BATCH = 1000


_WAITING = text(
    f"""SELECT r.id, p.default_branch
        FROM run r JOIN project p ON p.id = r.project_id
        JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
        WHERE r.id = ANY(:runs) AND {WAITS_FOR_COMMIT}"""
)


def waiting_runs(c: Connection, ids: Iterable[str]) -> Mapping[str, str]:
    """Those of the runs that wait for their commit to be on the default branch, each with the name of that branch."""
    return {row[0]: row[1] for row in c.execute(_WAITING, {"runs": list(ids)})}


def stored_runs(c: Connection, ids: Iterable[str]) -> Mapping[str, int]:
    """Those of the runs whose result has been stored, each with how many measurements of it were."""
    wanted = list(ids)
    found: dict[str, int] = {}
    for at in range(0, len(wanted), BATCH):
        part = wanted[at : at + BATCH]
        stored = select(run.c.id, func.count(measurement.c.run_id)).outerjoin_from(
            run, measurement, measurement.c.run_id == run.c.id
        )
        stored = stored.where(run.c.id.in_(part), run.c.body_sha256.is_not(None)).group_by(run.c.id)
        found.update((row[0], row[1]) for row in c.execute(stored))
    return found


@dataclass(frozen=True, slots=True)
class ImportedSeries:
    """Properties that every measurement of a series must share."""

    unit: str
    direction: str
    exact: bool


_KINDS = text(
    """SELECT s.benchmark, s.variant_key, s.preset, s.metric, s.unit, s.direction, s.exact
       FROM series s JOIN project p ON p.id = s.project_id JOIN testbed t ON t.id = s.testbed_id
       WHERE p.slug = :project AND t.name = :testbed AND s.suite = :suite AND s.suite_version = :version
         AND s.benchmark = ANY(:benchmarks)"""
)


def kinds_of_series(c: Connection, run: Run) -> Mapping[tuple[str, str, str, str], ImportedSeries]:
    """The kind of each series of the run's benchmarks, by benchmark, variant, preset and metric."""
    values = {"project": run.project, "testbed": run.testbed, "suite": run.suite, "version": run.suite_version}
    rows = c.execute(_KINDS, {**values, "benchmarks": list({result.benchmark for result in run.results})})
    return {tuple(row[:4]): ImportedSeries(*row[4:]) for row in rows}


# What a repository said of a commit stands; a history only fills what nobody said yet.
_DESCRIBE = text(
    """INSERT INTO commit (project_id, sha, parents, message, author_name, committed_at)
       VALUES (:project, :sha, :parents, :message, :author_name, :committed_at)
       ON CONFLICT (project_id, sha) DO UPDATE SET
         message = coalesce(nullif(commit.message, ''), excluded.message),
         author_name = coalesce(nullif(commit.author_name, ''), excluded.author_name),
         committed_at = coalesce(commit.committed_at, excluded.committed_at)"""
)
_DATED_LINE = text(
    """SELECT k.sha, k.committed_at FROM branch_commit bc JOIN commit k ON k.id = bc.commit_id
       WHERE bc.branch_id = :branch ORDER BY bc.position"""
)


def describe_commits(c: Connection, project_id: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Store commits that a history tells of: when they were made, by whom, and their message."""
    listed = [{"project": project_id, **row} for row in rows]
    if listed:
        c.execute(_DESCRIBE, listed)


def dated_line(c: Connection, branch_id: int) -> list[tuple[str, datetime | None]]:
    """The commits of a branch in their order, each with its time, where it is known."""
    return [(row.sha, row.committed_at) for row in c.execute(_DATED_LINE, {"branch": branch_id})]


def lock_branch(c: Connection, branch_id: int) -> None:
    """No one else appends to the branch until the end of the transaction."""
    c.execute(text("SELECT FROM branch WHERE id = :branch FOR NO KEY UPDATE"), {"branch": branch_id})
