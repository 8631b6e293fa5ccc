"""Bisections as they are shown: how far, how sure, which steps, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, RowMapping

from backend.regression.bisection import BisectionStatus
from backend.services.base.errors import NotFound
from backend.services.plans.bisection_evidence import places_of, standings_of
from backend.store.plans import bisections as store


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionStep:
    """One commit that was measured, or is to be."""

    sha: str
    position: int | None
    state: str
    change: float | None
    """Of cost against the good level, as a fraction."""
    reason: str
    run_id: str | None
    session_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionView:
    """A bisection as it is shown."""

    id: str
    state: str
    regression_id: int
    project: str
    testbed: str
    suite: str
    last_good_sha: str
    first_bad_sha: str
    remaining: int
    """Commits that are still possible."""
    steps_done: int
    steps_left: int
    eta_s: float | None
    confidence: float
    """Of the most likely commit."""
    culprit_sha: str | None
    side_of: str | None
    """The merge whose merged side is searched."""
    reason: str
    requested_by: str
    requested_at: datetime
    finished_at: datetime | None
    steps: tuple[BisectionStep, ...]
    candidates: tuple[tuple[str, float], ...]
    """(commit, probability to be the first bad one), oldest first."""


def bisection_of_regression(c: Connection, regression_id: int) -> BisectionView | None:
    """The newest one."""
    row = store.newest_of_regression(c, regression_id)
    return None if row is None else view_of(c, row)


def bisection_view(c: Connection, bisection_id: str) -> BisectionView:
    row = store.find_bisection(c, bisection_id)
    if row is None:
        raise NotFound.of("bisection", bisection_id)
    return view_of(c, row)


def list_bisections(
    c: Connection, *, project_id: int | None = None, regression_id: int | None = None, limit: int = 50
) -> list[BisectionView]:
    """The newest first."""
    return _views(c, store.list_bisections(c, project_id, regression_id, limit))


def view_of(c: Connection, row: RowMapping) -> BisectionView:
    """One that has been read already."""
    return _views(c, [row])[0]


def _views(c: Connection, rows: Sequence[RowMapping]) -> list[BisectionView]:
    """Bisections as they are shown; what they need of the store is asked for all of them at once."""
    running = [row for row in rows if row["state"] == "running"]
    steps = store.steps_of_all(c, [row["id"] for row in rows])
    standings = standings_of(c, running, steps)
    durations = store.typical_durations_s(c, [_place(row) for row in running]) if running else {}
    return [_view(row, steps[row["id"]], standings.get(row["id"]), durations.get(_place(row))) for row in rows]


def _place(row: RowMapping) -> store.Place:
    return row["project_id"], row["testbed_id"], row["suite"]


def _view(
    row: RowMapping, steps: Sequence[RowMapping], standing: BisectionStatus | None, typical_s: float | None
) -> BisectionView:
    """`standing`: of one that is running."""
    waiting = sum(1 for step in steps if step["state"] in ("waiting", "running"))
    left = max(waiting, standing.steps_left) if standing else 0
    probabilities = standing.probabilities if standing else [stored["probability"] for stored in row["candidates"]]
    return BisectionView(
        id=row["id"],
        state=row["state"],
        regression_id=row["regression_id"],
        project=row["project"],
        testbed=row["testbed"],
        suite=row["suite"],
        last_good_sha=row["last_good_sha"],
        first_bad_sha=row["first_bad_sha"],
        remaining=sum(1 for probability in probabilities if probability > 0.01),
        steps_done=len(steps) - waiting,
        steps_left=left,
        eta_s=None if typical_s is None else typical_s * left,
        confidence=standing.confidence if standing else float(row["confidence"]),
        culprit_sha=row["culprit_sha"],
        side_of=row["side_of"],
        reason=row["reason"],
        requested_by=row["requested_by"],
        requested_at=row["requested_at"],
        finished_at=row["finished_at"],
        steps=tuple(
            BisectionStep(
                sha=step["sha"],
                position=step["position"],
                state=step["state"],
                change=step["change"],
                reason=step["reason"],
                run_id=step["run_id"],
                session_id=step["session_id"],
            )
            for step in steps
        ),
        candidates=tuple((place.sha, float(p)) for place, p in zip(places_of(row), probabilities, strict=True)),
    )
