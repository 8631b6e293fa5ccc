"""The record of a regression: its row, the restated judgements, its history, and the events for open pages.

Nothing else writes any of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.regression import apply_event
from backend.regression.change_points import KnownPoint
from backend.regression.policy import Policy, PolicyBook
from backend.regression.regression_events import Applied, Event, HistoryEntry
from backend.regression.regression_state import TrackedRegression
from backend.regression.restatements import Restatement
from backend.services.base import live
from backend.store.judging import judgements as judgement_store
from backend.store.judging import rollups
from backend.store.judging.series import SeriesRow
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as store
from backend.store.regressions.regressions import Surroundings


@dataclass(frozen=True, kw_only=True)
class RegressionContext(Surroundings):
    """Where and when something about regressions was learned: the run that brought it, and its place."""

    position: int
    run_id: str
    now: datetime
    policies: PolicyBook
    """The policies by which its series are judged."""

    def policy_of(self, series: SeriesRow) -> Policy:
        return self.policies.of(
            suite=series.suite, benchmark=series.benchmark, metric=series.metric, testbed=self.testbed
        )


def record(
    c: Connection,
    where: Surroundings,
    now: datetime,
    before: TrackedRegression,
    points: Sequence[KnownPoint],
    event: Event,
) -> Applied:
    """Apply an event to a locked regression, and store all its results. Raises `StepRefused`."""
    applied = apply_event.apply(before, points, event)
    if applied.regression is not before:
        store.save(c, where.branch_id, applied, now)
    for entry in applied.history:
        add_to_history(c, where, now, before.id, entry)
    if applied.alarms_confirmed:
        point_store.count_alarms(c, applied.alarms_confirmed, confirmed=1)
    if applied.alarms_withdrawn:
        point_store.count_alarms(c, applied.alarms_withdrawn, withdrawn=1)
    restate(c, applied.restatements, now)
    return applied


def add_to_history(c: Connection, where: Surroundings, now: datetime, regression_id: int, entry: HistoryEntry) -> None:
    """Add an entry to the history of a regression, and send it to open pages."""
    detail: dict[str, Any] = dict(entry.detail)
    if "position" in detail:
        detail["commit"] = store.shas_at(c, where.branch_id, [detail["position"]]).get(detail["position"])
    store.insert_event(
        c,
        regression_id,
        entry.kind,
        now=now,
        actor=entry.actor,
        note=entry.note,
        detail=detail,
    )
    payload = {
        "regression_id": regression_id,
        "event": entry.kind,
        "state": entry.state.value,
        "actor": entry.actor,
        "project": where.project,
        "testbed": where.testbed,
    }
    live.publish(c, "regression", where.project_id, payload)


def restate(c: Connection, restatements: Sequence[Restatement], now: datetime) -> list[tuple[int, datetime]]:
    """Update earlier judgements, and the roll-ups over them, to what is known now. Returns the restated
    points: series, and when they were measured."""
    if not restatements:
        return []
    restated = judgement_store.restate(c, restatements, now)
    rollups.recompute_rollups(c, restated)
    return restated


def restate_agreed(c: Connection, run_ids: Sequence[str], series_ids: Sequence[int], now: datetime) -> list[str]:
    """Make regressions of the suspects of these runs, which are of one commit off the default branch and agree.

    Returns the restated runs.
    """
    return judgement_store.restate_agreed(c, run_ids, series_ids, now) if series_ids else []
