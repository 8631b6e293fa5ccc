"""Reads of one commit's verdict: its runs, and the standing judgements of its gate metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, text

from backend.store.base.spans import period_of_runs
from backend.store.ingest.record import unpack_document
from backend.store.tables.core import judgement, run, series, testbed


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRun:
    run_id: str
    suite: str
    testbed: str
    state: str
    status: str | None
    error: str | None


def runs_of_commit(c: Connection, commit_id: int, testbed_name: str | None) -> list[CommitRun]:
    statement = (
        select(run.c.id.label("run_id"), run.c.suite, testbed.c.name.label("testbed"), run.c.state, run.c.status)
        .add_columns(run.c.error)
        .join(testbed, testbed.c.id == run.c.testbed_id)
        .where(run.c.commit_id == commit_id, run.c.session_id.is_(None))
        .order_by(run.c.requested_at, run.c.id)
    )
    if testbed_name is not None:
        statement = statement.where(testbed.c.name == testbed_name)
    return [CommitRun(**row._mapping) for row in c.execute(statement)]


def documents_of(c: Connection, run_ids: list[str]) -> dict[str, Mapping[str, Any]]:
    """The delivered runs as their writers said them, without their samples."""
    rows = c.execute(select(run.c.id, run.c.document).where(run.c.id.in_(run_ids), run.c.document.is_not(None)))
    return {row.id: unpack_document(row.document) for row in rows}


_BEFORE = text(
    """SELECT r.document FROM run r
       JOIN branch_commit b ON b.branch_id = :branch AND b.commit_id = r.commit_id
       JOIN testbed t ON t.id = r.testbed_id AND t.name = :testbed
       WHERE b.position BETWEEN :until - :reach AND :until AND r.suite = :suite AND r.status = 'ok'
         AND r.document IS NOT NULL
       ORDER BY b.position DESC, r.received_at DESC LIMIT :most"""
)


def documents_before(
    c: Connection, branch_id: int, suite: str, testbed: str, until: int, *, reach: int, most: int
) -> list[Mapping[str, Any]]:
    """Run documents of a branch and suite at and before a position, newest first."""
    values = {"branch": branch_id, "suite": suite, "testbed": testbed, "until": until, "reach": reach, "most": most}
    return [unpack_document(row.document) for row in c.execute(_BEFORE, values)]


def verdicts_of_runs(c: Connection, run_ids: list[str]) -> Mapping[str, int]:
    """How many standing verdicts of each kind the gate metrics of these runs have."""
    statement = (
        select(judgement.c.verdict, func.count())
        .join(series, series.c.id == judgement.c.series_id)
        .where(*_of_runs(c, run_ids), series.c.role == "gate")
        .group_by(judgement.c.verdict)
    )
    return {verdict: count for verdict, count in c.execute(statement)}


def regressions_of_runs(c: Connection, run_ids: list[str]) -> list[int]:
    statement = (
        select(judgement.c.regression_id)
        .where(*_of_runs(c, run_ids), judgement.c.regression_id.is_not(None))
        .distinct()
        .order_by(judgement.c.regression_id)
    )
    return list(c.execute(statement).scalars())


def _of_runs(c: Connection, run_ids: list[str]) -> list[ColumnElement[bool]]:
    """Conditions for the standing judgements of these runs."""
    since, until = period_of_runs(c, run_ids)
    return [
        judgement.c.run_id.in_(run_ids),
        judgement.c.superseded_at.is_(None),
        judgement.c.measured_at >= since,
        judgement.c.measured_at < until,
    ]
