"""Sessions as they are shown: their arms, rounds, and what each metric's processes measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.services.base.errors import NotFound
from backend.store.sessions import sessions as store


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSeries:
    """One metric in a session: a value for each process, and the result."""

    series_id: int | None
    benchmark: str
    variant_key: str
    metric: str
    unit: str
    direction: str
    role: str
    base: tuple[float, ...]
    head: tuple[float, ...]
    change: float | None
    """Change of cost from base to head, as a fraction, with its 99 % confidence interval."""
    low: float | None
    high: float | None
    decision: str
    processes_a_side: int
    needed_a_side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session as shown on pages."""

    id: str
    project: str
    testbed: str
    suite: str
    purpose: str
    state: str
    decision: str | None
    reason: str
    regression_id: int | None
    bisection_id: str | None
    schedule: str | None
    base_sha: str
    head_sha: str
    base_setup: Mapping[str, Any]
    head_setup: Mapping[str, Any]
    worker: str | None
    order: str
    """Such as "ABBA BAAB": A is the base."""
    rounds_done: int
    rounds_spoiled: int
    max_rounds: int
    runs: tuple[str, ...]
    """The queue entries of its rounds."""
    requested_by: str
    requested_at: datetime
    decided_at: datetime | None
    series: tuple[SessionSeries, ...]


def session_view(c: Connection, session_id: str) -> SessionView:
    row = store.find_session(c, session_id)
    if row is None:
        raise NotFound.of("session", session_id)
    return _views(c, [row])[0]


def sessions_of_regression(c: Connection, regression_id: int) -> list[SessionView]:
    """The newest first."""
    return _views(c, store.sessions_of_regression(c, regression_id))


def list_sessions(
    c: Connection,
    *,
    project_id: int | None = None,
    purpose: str | None = None,
    state: str | None = None,
    schedule: str | None = None,
    limit: int = 100,
) -> list[SessionView]:
    """The newest first."""
    return _views(
        c,
        store.list_sessions(c, project_id=project_id, purpose=purpose, state=state, schedule=schedule, limit=limit),
    )


def _views(c: Connection, rows: Sequence[RowMapping]) -> list[SessionView]:
    ids = [row["id"] for row in rows]
    series: dict[str, list[SessionSeries]] = {session_id: [] for session_id in ids}
    for item in store.series_of(c, ids):
        series[item["session_id"]].append(_series_view(item))
    letters, runs = store.orders_of(c, ids), store.runs_of(c, ids)
    return [
        SessionView(
            id=row["id"],
            project=row["project"],
            testbed=row["testbed"],
            suite=row["suite"],
            purpose=row["purpose"],
            state=row["state"],
            decision=row["decision"],
            reason=row["reason"],
            regression_id=row["regression_id"],
            bisection_id=row["bisection_id"],
            schedule=row["schedule"],
            base_sha=row["base_sha"],
            head_sha=row["head_sha"],
            base_setup=row["base_setup"],
            head_setup=row["head_setup"],
            worker=row["worker"],
            order=" ".join(_in_fours(letters.get(row["id"], ""))),
            rounds_done=row["rounds_done"],
            rounds_spoiled=row["rounds_spoiled"],
            max_rounds=row["max_rounds"],
            runs=tuple(runs.get(row["id"], ())),
            requested_by=row["requested_by"],
            requested_at=row["requested_at"],
            decided_at=row["decided_at"],
            series=tuple(series[row["id"]]),
        )
        for row in rows
    ]


def _in_fours(letters: str) -> list[str]:
    return [letters[start : start + 4] for start in range(0, len(letters), 4)]


def _series_view(row: RowMapping) -> SessionSeries:
    return SessionSeries(
        series_id=row["series_id"],
        benchmark=row["benchmark"],
        variant_key=row["variant_key"],
        metric=row["metric"],
        unit=row["unit"],
        direction=row["direction"],
        role=row["role"],
        base=tuple(row["base"]),
        head=tuple(row["head"]),
        change=row["change"],
        low=row["low"],
        high=row["high"],
        decision=row["decision"],
        processes_a_side=row["processes_a_side"],
        needed_a_side=row["needed_a_side"],
    )
