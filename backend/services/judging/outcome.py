"""The findings of the judge on their way into the store: applied to regressions, written down, and answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.contract import Run
from backend.records import record
from backend.regression.change_points import ChangeEvent, KnownPoints
from backend.regression.policy import Policy
from backend.regression.restatements import of_events, verdict_now
from backend.regression.series.explain import explain
from backend.regression.series.state import SeriesState
from backend.regression.terms import Judgement, Verdict
from backend.services.judging.state_cache import new_state
from backend.services.judging.together import RecordedTogether
from backend.services.regressions import apply, ledger
from backend.services.regressions.ledger import RegressionContext
from backend.store.base import wire
from backend.store.base.wire import Statement
from backend.store.judging import judgements as judgement_store
from backend.store.judging import rollups
from backend.store.judging import series as series_store
from backend.store.judging.judgements import JudgementRow
from backend.store.judging.series import SeriesRow
from backend.store.regressions import regressions as regression_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A run that has arrived at its place: stored, not judged yet."""

    run: Run
    context: RegressionContext
    commit_id: int
    branch_id: int | None
    """None: the default branch. Else the position is on this one."""
    base_position: int | None
    """Of another branch: where it leaves the default branch; None: not known."""
    measured_at: datetime
    together: RecordedTogether | None = None
    """The runs that it is recorded with, which write their states at the end; None: it is on its own."""

    @property
    def position(self) -> int:
        return self.context.position

    @property
    def now(self) -> datetime:
        return self.context.now

    def policy_of(self, series: SeriesRow) -> Policy:
        return self.context.policies.of(
            suite=series.suite, benchmark=series.benchmark, metric=series.metric, testbed=self.run.testbed
        )

    @property
    def worker(self) -> str:
        return self.run.worker or ""


@record(kw_only=True)
class SeriesVerdict:
    """The verdict on one measurement of a run."""

    series_id: int
    benchmark: str
    variant: str
    metric: str
    unit: str
    role: str
    verdict: str
    red: bool
    """A gate got worse, and the code may be the cause."""
    change: float | None
    change_low: float | None
    change_high: float | None
    baseline: float | None
    value: float
    needed_runs: int
    """More of them until such a point is judged; 0: it is."""
    regression_id: int | None
    explanation: str


Within = tuple[float | None, float | None, float | None]
"""A change, and the ends of its interval."""


@dataclass(slots=True)
class Outcome:
    """The findings on a run, on their way into the store."""

    rows: list[JudgementRow] = field(default_factory=list)
    said: list[tuple[SeriesRow, Judgement]] = field(default_factory=list)
    """The run's own judgements."""
    after: list[tuple[SeriesRow, SeriesState, Judgement]] = field(default_factory=list)
    """The judge's state of each series now, and its last verdict."""
    events: list[ChangeEvent] = field(default_factory=list)
    """Change events that regressions do not know yet."""
    history: list[ChangeEvent] = field(default_factory=list)
    """All change events that say something of earlier points, known or not."""
    rejudged: list[tuple[int, datetime]] = field(default_factory=list)
    """Points whose roll-up must be computed again."""
    restated: list[tuple[int, datetime]] = field(default_factory=list)
    """Points whose current judgement differs from their original one."""
    statements: list[Statement] = field(default_factory=list)
    """Still to be sent."""


def row_at(
    arrival: Arrival, series: SeriesRow, judgement: Judgement, *, more: Mapping[str, Any] | None = None
) -> JudgementRow:
    return JudgementRow(
        measured_at=arrival.measured_at,
        series_id=series.id,
        branch_id=arrival.branch_id,
        commit_id=arrival.commit_id,
        run_id=arrival.run.id,
        judgement=judgement,
        regression_id=None,
        more=more or {},
    )


def events_of(series_id: int, judgement: Judgement) -> list[ChangeEvent]:
    noise = judgement.noise or 0.0
    return [ChangeEvent(series_id=series_id, change=change, noise=noise) for change in judgement.events]


def apply_changes(c: Connection, context: RegressionContext, found: Outcome) -> KnownPoints:
    """Bring regressions in line with what happened. Returns the change points that the judgements are part of."""
    part_of_something = {row.series_id for row in found.rows if row.judgement.since_position is not None}
    if found.events:
        ids = part_of_something | {event.series_id for event in found.events}
        watched = sum(judgement.verdict is not Verdict.INSUFFICIENT for _, judgement in found.said)
        return apply.apply_changes(c, context, found.events, sorted(ids), watched=watched)
    return apply.known_points(c, part_of_something) if part_of_something else KnownPoints()


def write_down(c: Connection, context: RegressionContext, found: Outcome, known: KnownPoints) -> list[JudgementRow]:
    """Write the judgements as they may be said, and what they make clear about earlier ones."""
    rows = said_rows(found.rows, known)
    inserted = judgement_store.insert_statement(context.project_id, rows, context.now)
    changes = of_events(found.history, known)
    if changes or found.rejudged:
        wire.send(c, inserted)
    else:
        found.statements.append(inserted)
    found.restated = ledger.restate(c, changes, context.now)
    touched = {series_id for series_id, _ in found.restated}
    found.rejudged += [(row.series_id, row.measured_at) for row in rows if row.series_id in touched]
    rollups.recompute_rollups(c, found.rejudged)
    return rows


def said_rows(rows: Sequence[JudgementRow], known: KnownPoints) -> list[JudgementRow]:
    """Judgements as they may be said: each with its regression, and red only where the code may be the cause."""
    return [_said_row(row, known) for row in rows] if known.points else list(rows)


def _said_row(row: JudgementRow, known: KnownPoints) -> JudgementRow:
    point = known.at(row.series_id, row.judgement.since_position)
    if point is None:
        return row
    judgement = verdict_now(row.judgement, point)
    regression_id = None if judgement.since_position is None else point.regression_id
    return replace(row, judgement=judgement, regression_id=regression_id)


def rollup_statements(arrival: Arrival, found: Outcome) -> list[Statement]:
    """Statements that add the run to the roll-ups; those of points that were judged again are recomputed instead."""
    again = {series_id for series_id, _ in found.rejudged}
    said = [(series.id, judgement) for series, judgement in found.said if series.id not in again]
    if not said:
        return []
    project_id = arrival.context.project_id
    return [rollups.rollup_statement(project_id, said, measured_at=arrival.measured_at, position=arrival.position)]


def state_statements(measured_at: datetime, found: Outcome) -> list[Statement]:
    """Statements that store the states."""
    states = [new_state(series, state, judgement) for series, state, judgement in found.after]
    return [series_store.save_statement(states, measured_at)] if states else []


def statements_of(arrival: Arrival, found: Outcome) -> tuple[Statement, ...]:
    """All that is still to be sent."""
    if arrival.together is not None:
        arrival.together.take(found.after, found.said, arrival.measured_at)
        return tuple(found.statements)
    return *found.statements, *state_statements(arrival.measured_at, found), *rollup_statements(arrival, found)


# --- the answer ------------------------------------------------------------------------------------------------------


def verdict_of(series: SeriesRow, row: JudgementRow, change: Within, names: Mapping[int, str]) -> SeriesVerdict:
    """What is said of a measurement; `change` as it is stored."""
    said = row.judgement
    return SeriesVerdict(
        series_id=series.id,
        benchmark=series.benchmark,
        variant=series.variant_key,
        metric=series.metric,
        unit=series.unit,
        role=series.role,
        verdict=said.verdict.value,
        red=said.red,
        change=change[0],
        change_low=change[1],
        change_high=change[2],
        baseline=said.baseline,
        value=said.value,
        needed_runs=said.needed_runs,
        regression_id=row.regression_id,
        explanation=explanation(said, series.metric, series.unit, names),
    )


def explanation(said: Judgement, metric: str, unit: str, names: Mapping[int, str]) -> str:
    """Why a point is judged as it is, for people."""
    if said.numbers.get("not_positive"):
        return f"{metric} is {said.value:g} {unit} here: not judged, as a change is a ratio and needs values above 0."
    # Of its events the regressions tell; a point says the same whenever it is asked.
    return explain(replace(said, events=()) if said.events else said, metric, unit, names)


def names_in(c: Connection, arrival: Arrival, rows: Sequence[JudgementRow]) -> dict[int, str]:
    """Short shas of the onsets that the answer speaks of, by position."""
    own = [row for row in rows if row.run_id == arrival.run.id]
    positions = {row.judgement.since_position for row in own} | {
        event.onset_position for row in own for event in row.judgement.events
    }
    onsets = [position for position in positions if position is not None]
    shas = regression_store.shas_at(c, arrival.context.branch_id, onsets) if onsets else {}
    return {position: sha[:10] for position, sha in shas.items()}


def verdicts_of(
    arrival: Arrival, found: Outcome, rows: Sequence[JudgementRow], names: Mapping[int, str]
) -> tuple[SeriesVerdict, ...]:
    """The answer: what is said of each measurement of the run."""
    own = {row.series_id: row for row in rows if row.run_id == arrival.run.id}
    asked = [(series, own[series.id]) for series, _ in found.said]
    said = [row.judgement for _, row in asked]
    changes = zip(
        wire.stored_reals([judgement.change for judgement in said]),
        wire.stored_reals([judgement.change_low for judgement in said]),
        wire.stored_reals([judgement.change_high for judgement in said]),
        strict=True,
    )
    return tuple(verdict_of(series, row, change, names) for (series, row), change in zip(asked, changes, strict=True))
