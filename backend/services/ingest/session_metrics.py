"""What a session has measured so far: its metrics, how noisy each is, and what the sequential test says of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping

from backend.contract import Direction, Measurement, Result, ResultStatus, Run, parse_run, variant_key
from backend.regression.confirmation import SessionStatus, next_step, process_spread
from backend.regression.policy import Policy
from backend.services.ingest.round_body import Round
from backend.services.judging.stored_runs import StoredRuns
from backend.services.policy.resolve import policy_book
from backend.services.sessions.request import Purpose
from backend.store.base import lookup, wire
from backend.store.judging import points as series_points
from backend.store.judging import series as series_store
from backend.store.sessions import sessions as store

JUDGED = ("gate", "watch")
PAST_RUNS = 60
SAME_WITHIN = 0.01
"""A comparison of two environments continues until each metric is known to this fraction, or the rounds are used up."""


@dataclass(slots=True)
class SessionMetric:
    """One metric of one variant: the values of its processes so far."""

    result: Result
    measurement: Measurement
    base: list[float]
    head: list[float]
    series_id: int | None = None
    step: SessionStatus | None = None
    decision: str = "continue"
    spread: float = 0.0

    @property
    def direction(self) -> Direction:
        return self.measurement.direction


def metrics_of_round(c: Connection, session: RowMapping, said: Round) -> list[SessionMetric]:
    """The judged metrics of a round just read, with their series."""
    return _with_series(c, session, _gathered((arm, run) for arm, run, _ in said.turns))


def metrics_so_far(c: Connection, session: RowMapping) -> list[SessionMetric]:
    """The judged metrics that both arms have, over all stored turns that count, with their series."""
    turns = store.turns_of(c, session["id"], with_documents=True)
    found = _gathered((t.arm, parse_run(t.document)) for t in turns if t.counted and t.document is not None)
    return _with_series(c, session, {key: metric for key, metric in found.items() if metric.base and metric.head})


def _gathered(arms: Iterable[tuple[str, Run]]) -> dict[tuple[str, ...], SessionMetric]:
    """The judged metrics of runs and the arm of each, by the names of their series."""
    found: dict[tuple[str, ...], SessionMetric] = {}
    for arm, run in arms:
        for result in run.results:
            if result.status is not ResultStatus.OK:
                continue
            for measurement in result.measurements:
                if measurement.role.value not in JUDGED:
                    continue
                key: tuple[str, ...] = (
                    run.suite,
                    result.benchmark,
                    variant_key(result.variant),
                    result.preset,
                    measurement.metric,
                    run.suite_version,
                )
                metric = found.setdefault(key, SessionMetric(result, measurement, [], []))
                values = metric.base if arm == "base" else metric.head
                values += [float(v) for v in measurement.processes or (measurement.value,)]
    return found


def _with_series(
    c: Connection, session: RowMapping, found: dict[tuple[str, ...], SessionMetric]
) -> list[SessionMetric]:
    ids = lookup.series_by_keys(c, session["project_id"], session["testbed_id"], list(found))
    for named, metric in found.items():
        metric.series_id = ids.get(named)
    return list(found.values())


def judged(c: Connection, session: RowMapping, metrics: Sequence[SessionMetric], now: datetime) -> list[SessionMetric]:
    """Those of the metrics that can be judged, each with its noise, the state of its test, and what was decided."""
    known = [metric.series_id for metric in metrics if metric.series_id is not None]
    past = series_points.load_points(c, known, around=series_points.NO_LIMIT, before=PAST_RUNS) if known else {}
    rows = {row.id: row for row in series_store.lock_by_id(c, known)} if known else {}
    comparing = session["purpose"] == Purpose.COMPARE.value
    runs_of = StoredRuns(now)
    book = policy_book(c, session["project"])
    found = []
    for metric in metrics:
        if min(*metric.base, *metric.head) <= 0 and not metric.measurement.exact:
            continue  # a change is a ratio of costs
        points = past.get(metric.series_id or -1, [])
        policy = book.of(suite=session["suite"], testbed=session["testbed"])
        if points and metric.series_id is not None:
            policy = runs_of.of(c, points[-1]).policy_of(rows[metric.series_id])
        runs: list[Sequence[float]] = [point.values for point in points]
        if comparing and len(runs) < 2:
            runs = [metric.base, metric.head]
        metric.spread = 0.0 if metric.measurement.exact else process_spread(runs, policy)
        metric.step = _step(metric, policy)
        metric.decision = _compared(metric, policy) if comparing else metric.step.decision.value
        found.append(metric)
    return found


def _step(metric: SessionMetric, policy: Policy) -> SessionStatus:
    if metric.measurement.exact and min(*metric.base, *metric.head) <= 0:
        # Counters may be 0, where no ratio is; one more keeps "none" and "some" apart.
        base, head = [v + 1 for v in metric.base], [v + 1 for v in metric.head]
        return next_step(base, head, metric.direction, 0.0, policy)
    return next_step(metric.base, metric.head, metric.direction, metric.spread, policy)


def _compared(metric: SessionMetric, policy: Policy) -> str:
    """Verdict on one metric of two environments: slower, faster, same, or unclear as yet."""
    assert metric.step is not None
    low, high = metric.step.low, metric.step.high
    if metric.step.processes_a_side < 2:
        return "unclear"
    if low > 0 and metric.step.change >= SAME_WITHIN:
        return "slower"
    if high < 0 and metric.step.change <= -SAME_WITHIN:
        return "faster"
    return "same" if -policy.min_change < low and high < policy.min_change else "unclear"


def row_of(metric: SessionMetric) -> dict[str, Any]:
    """A judged metric as it is stored with its session."""
    step = metric.step
    assert step is not None
    return {
        "series_id": metric.series_id,
        "benchmark": metric.result.benchmark,
        "variant_key": variant_key(metric.result.variant),
        "metric": metric.measurement.metric,
        "unit": metric.measurement.unit,
        "direction": metric.measurement.direction.value,
        "role": metric.measurement.role.value,
        "base": metric.base,
        "head": metric.head,
        "change": wire.real(step.change),
        "low": wire.real(step.low),
        "high": wire.real(step.high if math.isfinite(step.high) else None),
        "decision": metric.decision,
        "processes_a_side": step.processes_a_side,
        "needed_a_side": step.needed_a_side,
        "spread": wire.real(metric.spread),
    }
