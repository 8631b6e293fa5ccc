"""What judging found, on its way into the store: told, written down, and what is answered of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.regression.series.judge import SeriesState
from backend.regression.terms import Judgement, Reason, Verdict
from backend.services.alarms import alarms
from backend.services.alarms.alarms import News, Told
from backend.services.base.arrival import Arrival
from backend.services.judging.series_states import new_state
from backend.services.judging.verdicts import SeriesVerdict, restatements, verdict_of
from backend.store.base import wire
from backend.store.base.wire import Statement
from backend.store.judging import judgements as judgement_store
from backend.store.judging import series as series_store
from backend.store.judging.judgements import JudgementRow
from backend.store.judging.series import SeriesRow
from backend.store.regressions import regressions as regression_store


@dataclass(slots=True)
class Outcome:
    """What judging a run has found, on its way into the store."""

    rows: list[JudgementRow] = field(default_factory=list)
    said: list[tuple[SeriesRow, Judgement]] = field(default_factory=list)
    """The run's own judgements."""
    after: list[tuple[SeriesRow, SeriesState, Judgement]] = field(default_factory=list)
    """What the judge remembers of each series now, and what it said last."""
    news: list[News] = field(default_factory=list)
    """What nobody was told yet."""
    stories: list[News] = field(default_factory=list)
    """Everything that says something of earlier points, told or not."""
    rejudged: list[tuple[int, datetime]] = field(default_factory=list)
    """Points whose roll-up must be computed again."""
    restated: list[tuple[int, datetime]] = field(default_factory=list)
    """Points of which something else stands than was said when they were judged."""
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


def news_of(series: SeriesRow, judgement: Judgement) -> list[News]:
    return [News(series=series, event=event, noise=judgement.noise or 0.0) for event in judgement.events]


def tell(c: Connection, arrival: Arrival, found: Outcome) -> Told:
    """Write what happened into change points and regressions; find the regression of each point that has one."""
    part_of_something = {row.series_id for row in found.rows if row.judgement.since_position is not None}
    if found.news:
        ids = part_of_something | {item.series.id for item in found.news}
        watched = sum(judgement.verdict is not Verdict.INSUFFICIENT for _, judgement in found.said)
        return alarms.tell(c, arrival, found.news, sorted(ids), watched=watched)
    return alarms.known_points(c, part_of_something) if part_of_something else Told()


def store(c: Connection, arrival: Arrival, found: Outcome, told: Told) -> list[JudgementRow]:
    """Write the judgements as they may be told, and what they make clear about earlier ones."""
    rows = [as_told(row, told) for row in found.rows] if told.points else found.rows
    inserted = judgement_store.insert_statement(rows, arrival.now)
    changes = restatements(found.stories, told)
    if changes or found.rejudged:
        wire.send(c, inserted)
    else:
        found.statements.append(inserted)
    found.restated = judgement_store.restate(c, changes, arrival.now)
    touched = {series_id for series_id, _ in found.restated}
    found.rejudged += found.restated + [(row.series_id, row.measured_at) for row in rows if row.series_id in touched]
    series_store.recompute_rollups(c, found.rejudged)
    return rows


def names_in(c: Connection, arrival: Arrival, rows: Sequence[JudgementRow]) -> dict[int, str]:
    """Short shas of the onsets that the answer speaks of, by position."""
    own = [row for row in rows if row.run_id == arrival.run.id]
    positions = {row.judgement.since_position for row in own} | {
        event.onset_position for row in own for event in row.judgement.events
    }
    shas = regression_store.shas_at(c, arrival.default_branch_id, [p for p in positions if p is not None])
    return {position: sha[:10] for position, sha in shas.items()}


def verdicts_of(
    arrival: Arrival, found: Outcome, rows: Sequence[JudgementRow], names: Mapping[int, str]
) -> tuple[SeriesVerdict, ...]:
    """The answer: what is said of each measurement of the run."""
    own = {row.series_id: row for row in rows if row.run_id == arrival.run.id}
    return tuple(verdict_of(series, own[series.id], names) for series, _ in found.said)


def as_told(row: JudgementRow, told: Told) -> JudgementRow:
    """The judgement as it may be told: with its regression; and red only where the code may be the cause."""
    since = row.judgement.since_position
    judgement = row.judgement
    if told.is_over(row.series_id, since, judgement.position):
        quiet = replace(judgement, verdict=Verdict.UNCHANGED, reason=Reason.RETURNED, red=False, since_position=None)
        return replace(row, judgement=quiet)
    if judgement.verdict is Verdict.REGRESSION and told.held_back(row.series_id, since):
        judgement = replace(judgement, verdict=Verdict.SUSPECT, red=False)
    return replace(row, judgement=judgement, regression_id=told.regression_of(row.series_id, since))


def rollup_statements(arrival: Arrival, found: Outcome) -> list[Statement]:
    """What adds the run to the roll-ups; those of points that were judged again are computed anew instead."""
    again = {series_id for series_id, _ in found.rejudged}
    said = [(series.id, judgement) for series, judgement in found.said if series.id not in again]
    if not said:
        return []
    return [series_store.rollup_statement(said, measured_at=arrival.measured_at, position=arrival.position)]


def state_statements(arrival: Arrival, found: Outcome) -> list[Statement]:
    """What stores the states."""
    states = [new_state(series, state, judgement) for series, state, judgement in found.after]
    return [series_store.save_statement(states, arrival.measured_at)] if states else []


def statements_of(arrival: Arrival, found: Outcome) -> tuple[Statement, ...]:
    """All that is still to be sent."""
    return *found.statements, *state_statements(arrival, found), *rollup_statements(arrival, found)
