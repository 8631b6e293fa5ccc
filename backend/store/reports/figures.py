"""Counts for monitoring."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select, text

from backend.store.joint.pauses import paused_by_project
from backend.store.tables.core import run, testbed, worker
from backend.store.tables.github import github_outbox
from backend.store.tables.regressions import regression


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    runs_by_state: Mapping[str, int]
    queued_by_testbed: Mapping[str, int]
    oldest_queued_s_by_testbed: Mapping[str, float]
    workers_by_testbed: Mapping[str, int]
    quarantined_by_testbed: Mapping[str, int]
    regressions_by_state: Mapping[str, int]
    github_by_state: Mapping[str, int]
    paused_by_project: Mapping[str, int]


def load_figures(c: Connection, *, live_within_s: int) -> Figures:
    alive = worker.c.last_seen_at > func.now() - text("make_interval(secs => :secs)").bindparams(secs=live_within_s)
    return Figures(
        runs_by_state=_counts(c, select(run.c.state, func.count()).group_by(run.c.state)),
        queued_by_testbed=_counts(
            c,
            select(testbed.c.name, func.count())
            .join(run, run.c.testbed_id == testbed.c.id)
            .where(run.c.state == "queued")
            .group_by(testbed.c.name),
        ),
        oldest_queued_s_by_testbed=_counts(
            c,
            select(testbed.c.name, func.extract("epoch", func.now() - func.min(run.c.requested_at)))
            .join(run, run.c.testbed_id == testbed.c.id)
            .where(run.c.state == "queued")
            .group_by(testbed.c.name),
        ),
        quarantined_by_testbed=_counts(
            c,
            select(testbed.c.name, func.count())
            .join(worker, worker.c.testbed_id == testbed.c.id)
            .where(alive, worker.c.wanted_state == "quarantine")
            .group_by(testbed.c.name),
        ),
        workers_by_testbed=_counts(
            c,
            select(testbed.c.name, func.count())
            .join(worker, worker.c.testbed_id == testbed.c.id)
            .where(alive)
            .group_by(testbed.c.name),
        ),
        regressions_by_state=_counts(c, select(regression.c.state, func.count()).group_by(regression.c.state)),
        github_by_state=_counts(
            c,
            select(github_outbox.c.state, func.count())
            .where(github_outbox.c.state != "sent")
            .group_by(github_outbox.c.state),
        ),
        paused_by_project=paused_by_project(c),
    )


def _counts(c: Connection, statement: Select[Any]) -> dict[str, Any]:
    return {name: count for name, count in c.execute(statement)}
