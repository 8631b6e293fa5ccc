"""Stored runs as judging again needs them: where they are, and by which policies their series are judged."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from backend.services.policy.resolve import book_of_run
from backend.services.regressions.ledger import RegressionContext
from backend.store.ingest import record as store
from backend.store.judging.points import StoredPoint


class StoredRuns:
    """Each is read once: the metrics of one run are points of many series."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._known: dict[tuple[str, int], RegressionContext] = {}

    def of(self, c: Connection, point: StoredPoint) -> RegressionContext:
        """The run of a stored point, with the policies in force now and those that the suite of its commit declares."""
        key = point.run_id, point.position  # a force push may move its commit meanwhile
        if key not in self._known:
            self._known[key] = _read(c, point, self._now)
        return self._known[key]


def _read(c: Connection, point: StoredPoint, now: datetime) -> RegressionContext:
    place = store.place_of_stored(c, point.run_id)
    return RegressionContext(
        project_id=place.project_id,
        project=place.project,
        testbed_id=place.testbed_id,
        testbed=place.testbed,
        branch_id=place.default_branch_id,
        position=point.position,
        run_id=point.run_id,
        now=now,
        policies=book_of_run(
            point.run_id,
            place.project,
            declared=place.policy,
            suite=place.suite_policy,
            chosen=place.chosen_policy,
            points_per_week=place.points_per_week,
        ),
    )
