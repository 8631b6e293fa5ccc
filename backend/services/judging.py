"""Judging: each point of a run against the state of its series, in the order of the branch, whenever it arrives.

A point at the newest position goes on from the stored state. A point that arrives late, or a second run of a commit,
is inserted at its place and the series is judged again from there. A point of another branch is judged against the
state at the merge base and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from backend.contract import Run, parse_run
from backend.regression.judge import SeriesState, judge_many
from backend.regression.policy import Override, Policy, PolicyError, parse_overrides
from backend.regression.terms import ChangeState, Judgement, Point, Reason, Verdict
from backend.services import alarms, live
from backend.services.alarms import News, Told
from backend.services.arrival import Arrival
from backend.services.remembered import STATES, Forgotten
from backend.services.replay import (
    POINTS_BEFORE,
    difference,
    judgeable,
    kind_of,
    not_judgeable,
    points_to_replay,
    replay,
    with_arrival,
)
from backend.services.verdicts import SeriesVerdict, restatements, verdict_of
from backend.store import ingest as ingest_store
from backend.store import judgements as judgement_store
from backend.store import regressions as regression_store
from backend.store import series as series_store
from backend.store import wire
from backend.store.ingest import Place
from backend.store.judgements import JudgementRow
from backend.store.series import NewState, RollupPoint, SeriesRow, StoredPoint
from backend.store.wire import Statement

log = logging.getLogger("tidemark.judging")

MOST_LATER_POINTS = 20_000
"""Points after a late run's own that are judged again while it waits for its answer, over all its series: about two
seconds. What is more is judged again in the background."""

MANY = 16
"""From so many measurements on it pays to let the server begin early, for one round trip more."""

@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement of the run, with its series."""

    series: SeriesRow
    values: tuple[float, ...]


@dataclass(slots=True)
class _Outcome:
    """What judging a run has found, on its way into the store."""

    rows: list[JudgementRow] = field(default_factory=list)
    said: list[tuple[SeriesRow, Judgement]] = field(default_factory=list)
    """The run's own judgements."""
    states: list[NewState] = field(default_factory=list)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    verdicts: tuple[SeriesVerdict, ...]
    regressions: tuple[int, ...]
    """Those that this run opened or changed."""
    statements: tuple[Statement, ...]
    """Still to be sent: few judgements, the new states, the roll-ups."""
    restated: bool = False
    """Something else stands of this run than its verdicts say: what came after it on its branch was known already."""


def judge_arrival(
    c: Connection, arrival: Arrival, measured: Sequence[Measured], *statements: Statement
) -> Judged:
    """Judge what a run measured, store what was found, and tell whoever must know. `statements` are to be sent, too:
    while the judge thinks, or with those returned."""
    found = _Outcome(statements=list(statements))
    if arrival.branch_id is not None:
        return _judge_on_branch(c, arrival, measured, found)
    late = [item for item in measured if _is_late(item.series, arrival)]
    newest = [item for item in measured if not _is_late(item.series, arrival)] if late else measured
    _judge_newest(c, arrival, newest, found)
    if late:
        _judge_late(c, arrival, late, found)
    told = _tell(c, arrival, found)
    if found.stories or found.rejudged:
        rows = _store(c, arrival, found, told)
        verdicts = _verdicts(arrival, found, rows, _names(c, arrival, rows))
        own = {(series.id, arrival.measured_at) for series, _ in found.said}
        return Judged(
            verdicts=verdicts,
            regressions=tuple(told.regressions),
            statements=_statements(arrival, found),
            restated=not own.isdisjoint(found.restated),
        )
    rows = [_as_told(row, told) for row in found.rows] if told.points else found.rows
    names = _names(c, arrival, rows)
    statements = (judgement_store.insert_statement(rows, arrival.now), *_statements(arrival, found))
    if len(rows) < MANY:
        verdicts = _verdicts(arrival, found, rows, names)
        return Judged(verdicts=verdicts, regressions=tuple(told.regressions), statements=statements)
    with wire.ahead(c, *statements):  # the server writes while the answer is put together
        verdicts = _verdicts(arrival, found, rows, names)
    return Judged(verdicts=verdicts, regressions=tuple(told.regressions), statements=())


def _is_late(series: SeriesRow, arrival: Arrival) -> bool:
    return series.state_position is not None and series.state_position >= arrival.position


# --- the newest point ------------------------------------------------------------------------------------------------


def _judge_newest(c: Connection, arrival: Arrival, measured: Sequence[Measured], found: _Outcome) -> None:
    """Judge the points that follow all others of their series, together."""
    points = [_point(arrival, item) for item in measured]
    policies = [arrival.policy_of(item.series) for item in measured]
    may = [judgeable(item.series, point) for item, point in zip(measured, points, strict=True)]
    states = states_of(c, [item.series for item, sound in zip(measured, may, strict=True) if sound])
    sound_ones = [
        (states[item.series.id], point, policy)
        for item, point, policy, sound in zip(measured, points, policies, may, strict=True)
        if sound
    ]
    judged = iter(_judge_together(c, sound_ones, found))
    for item, point, policy, sound in zip(measured, points, policies, may, strict=True):
        series = item.series
        if sound:
            judgement, state = next(judged)
            found.states.append(new_state(series, state, judgement))
        else:
            judgement = not_judgeable(point, policy)
        found.said.append((series, judgement))
        found.rows.append(_row(arrival, series, judgement))
        if judgement.events:
            news = _news(series, judgement)
            found.news += news
            found.stories += news


def _judge_together(
    c: Connection, points: Sequence[tuple[SeriesState, Point, Policy]], found: _Outcome
) -> list[tuple[Judgement, SeriesState]]:
    """What the judge says of each point; of many, while the server works on what it is to be sent anyway."""
    if len(points) < MANY:
        return judge_many(points)
    with wire.ahead(c, *found.statements):
        judged = judge_many(points)
    found.statements.clear()
    return judged


def _point(arrival: Arrival, item: Measured) -> Point:
    run = arrival.run
    return Point(arrival.position, run.commit, item.values, arrival.environment_hash, arrival.worker, run.suite_version)


def states_of(c: Connection, series: Sequence[SeriesRow]) -> dict[int, SeriesState]:
    """What the judge remembers of each of these series, which the caller has locked."""
    found: dict[int, SeriesState] = {}
    forgotten = []
    for row in series:
        try:
            found[row.id] = state_of(row)
        except Forgotten:
            forgotten.append(row)
    if forgotten:
        wholes = series_store.load_wholes(c, [row.id for row in forgotten])
        found.update({row.id: state_of(replace(row, state=wholes[row.id])) for row in forgotten})
    return found


def state_of(series: SeriesRow) -> SeriesState:
    if series.state is None and series.state_tail is None:
        return SeriesState.new(kind_of(series))
    # The role may have changed since: it decides what turns red, not how a series is judged.
    state, kind = STATES.decoded(series), kind_of(series)
    return state if state.kind == kind else replace(state, kind=kind)


def new_state(series: SeriesRow, state: SeriesState, judgement: Judgement) -> NewState:
    stored, profile = STATES.encoded(series, state), None
    if stored.whole is not None:  # noise is what the model says, and a new model is a new whole
        profile = {"noise": judgement.noise, "minimum_detectable_effect": judgement.minimum_detectable_effect}
    return NewState(
        series_id=series.id,
        state=stored.whole,
        state_tail=stored.tail,
        position=state.last_position,
        profile=profile,
    )


def _row(
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


def _news(series: SeriesRow, judgement: Judgement) -> list[News]:
    return [News(series=series, event=event, noise=judgement.noise or 0.0) for event in judgement.events]


# --- a late point ----------------------------------------------------------------------------------------------------


def _judge_late(c: Connection, arrival: Arrival, late: Sequence[Measured], found: _Outcome) -> None:
    """Insert the run's points at their place and judge the series again from there."""
    series = [item.series for item in late]
    # Of each series at most as many points stand after the run's as there are positions.
    if sum((row.state_position or 0) - arrival.position for row in series) > MOST_LATER_POINTS:
        _judge_in_place(c, arrival, late, found)
        return
    by_series = points_to_replay(c, [row.id for row in series], arrival.position)
    stored = {item.series.id: with_arrival(by_series[item.series.id], arrival, item.values) for item in late}
    _judge_again(c, arrival, series, stored, arrival.position, found)


def _judge_in_place(c: Connection, arrival: Arrival, late: Sequence[Measured], found: _Outcome) -> None:
    """Judge the run's points by what stands before them, and leave all that follows to the background.

    Until then nothing of it is told, and what comes next is judged as if the run had not come.
    """
    ids = [item.series.id for item in late]
    place = arrival.position
    before = series_store.load_points(c, ids, around=place, before=POINTS_BEFORE, until=place)
    decisions = regression_store.decisions(c, ids)
    for item in late:
        stored = with_arrival(before[item.series.id], arrival, item.values)
        point, judgement = replay(item.series, stored, arrival.policy_of(item.series), decisions)[0][-1]
        judgement = replace(judgement, onset=False, events=())
        found.rows.append(_row_of(item.series, point, judgement))
        found.rejudged.append((item.series.id, point.measured_at))
        found.said.append((item.series, judgement))
    judgement_store.supersede_from(c, ids, place, arrival.now, last=place)
    series_store.ask_again(c, ids, place)
    publish_waiting(c, arrival.project_id)


def _judge_again(
    c: Connection,
    arrival: Arrival,
    wanted: Sequence[SeriesRow],
    stored: Mapping[int, Sequence[StoredPoint]],
    start: int,
    found: _Outcome,
) -> None:
    """Judge series from a position on; `stored` are their points, from far enough before it."""
    ids = [series.id for series in wanted]
    decisions = regression_store.decisions(c, ids)
    told = regression_store.points_of_series(c, ids)
    for series in wanted:
        judged, state = replay(series, stored[series.id], arrival.policy_of(series), decisions)
        for point, judgement in judged:
            if point.position < start:
                continue
            row = _row_of(series, point, judgement)
            found.rows.append(row)
            found.rejudged.append((series.id, point.measured_at))
            if point.position == arrival.position:
                found.said.append((series, judgement))
        found.states.append(new_state(series, state, judged[-1][1]))
        first = stored[series.id][0].position
        known = [p for p in told if p.series_id == series.id and p.onset_position > first]
        news = difference(series, known, [judgement for _, judgement in judged])
        found.news += news
        # All rows from here on are new ones, so that everything later runs made clear must be said again.
        found.stories += [s for point, said in judged if point.position >= start for s in _news(series, said)]
        found.stories += [item for item in news if item.event.state in (ChangeState.WITHDRAWN, ChangeState.RELOCATED)]
    judgement_store.supersede_from(c, ids, start, arrival.now)


def _row_of(series: SeriesRow, point: StoredPoint, judgement: Judgement) -> JudgementRow:
    return JudgementRow(
        measured_at=point.measured_at,
        series_id=series.id,
        branch_id=None,
        commit_id=point.commit_id,
        run_id=point.run_id,
        judgement=judgement,
        regression_id=None,
        more={"runs": list(point.runs)} if len(point.runs) > 1 else {},
    )


def rejudge_next_late(c: Connection, now: datetime) -> int | None:
    """Judge again the next series in which a point arrived so late that its run could not wait for it. Its id."""
    wanted = series_store.take_again(c)
    if wanted is None:
        return None
    try:
        with c.begin_nested():
            rejudge_series(c, wanted.series_id, wanted.position, now=now)
    except (psycopg.Error, SQLAlchemyError):  # it is tried again
        raise
    except Exception:  # it keeps its verdicts, and does not keep the others waiting
        log.exception("series %d could not be judged again", wanted.series_id)
    publish_waiting(c, wanted.project_id)
    return wanted.series_id


def publish_waiting(c: Connection, project_id: int) -> None:
    """Tell live pages how many series of a project are still to be judged again."""
    live.publish(c, "project", project_id, {"rejudging_late": series_store.waiting_again(c, project_id)})


# --- on request ------------------------------------------------------------------------------------------------------


def rejudge_series(c: Connection, series_id: int, from_position: int, *, now: datetime) -> None:
    """Judge a series again from a position on: a decision was taken back, or its policy changed."""
    # Locked before its points are read: a result that is just arriving would be missing among them, and be lost.
    (series,) = series_store.lock_by_id(c, [series_id])
    points = points_to_replay(c, [series_id], from_position)[series_id]
    if not points:
        _withdraw_all(c, series, now)
        return
    arrival = arrival_of(c, points[-1], now)
    found = _Outcome()
    _judge_again(c, arrival, [series], {series_id: points}, from_position, found)
    told = _tell(c, arrival, found)
    _store(c, arrival, found, told)
    wire.send(c, *_statements(arrival, found))


def _withdraw_all(c: Connection, series: SeriesRow, now: datetime) -> None:
    """Nothing stands in the series any more (its history was replaced), hence nothing of what it told."""
    gone = difference(series, regression_store.points_of_series(c, [series.id]), [])
    last = series_store.last_point(c, series.id)
    if gone and last is not None:
        alarms.tell(c, arrival_of(c, last, now), gone, [series.id], watched=0)


def arrival_of(c: Connection, point: StoredPoint, now: datetime) -> Arrival:
    """The run of a stored point, as it was when it arrived."""
    document = ingest_store.read_document(c, point.run_id)
    assert document is not None  # what was judged was delivered
    run = parse_run(document)
    known = ingest_store.find_place(c, run, environment_hash=point.environment_hash, measured_at=point.measured_at)
    assert known.project_id is not None and known.testbed_id is not None and known.default_branch_id is not None
    return Arrival(
        run=run,
        project_id=known.project_id,
        testbed_id=known.testbed_id,
        commit_id=point.commit_id,
        default_branch_id=known.default_branch_id,
        position=point.position,
        branch_id=None,
        base_position=None,
        measured_at=point.measured_at,
        now=now,
        environment_hash=point.environment_hash,
        overrides=overrides_of(run, known),
        points_per_week=known.points_per_week or 0.0,
    )


class Arrivals:
    """Runs of stored points, each read and parsed once: the metrics of one run are points of many series."""

    def __init__(self, c: Connection, now: datetime) -> None:
        self._c, self._now = c, now
        self._known: dict[str, Arrival] = {}

    def of(self, point: StoredPoint) -> Arrival:
        """The run of a stored point, as it was when it arrived."""
        if point.run_id not in self._known:
            self._known[point.run_id] = arrival_of(self._c, point, self._now)
        return self._known[point.run_id]


def overrides_of(run: Run, place: Place) -> tuple[Override, ...]:
    """The project's policy, over it what the suite of this very commit declares, and over all what a person chose."""
    tables = {
        "project": place.policy,
        "suite": (place.run_spec or {}).get("policy"),
        "chosen": place.chosen_policy,
    }
    found: list[Override] = []
    for where, table in tables.items():
        try:
            found += parse_overrides(table or {}, f"{where}.policy")
        except PolicyError as error:
            # A result is never lost to a bad threshold: it is judged without it.
            log.warning("run %s of %s is judged without its %s's policy: %s", run.id, run.project, where, error)
    return tuple(found)


# --- another branch --------------------------------------------------------------------------------------------------


def _judge_on_branch(
    c: Connection, arrival: Arrival, measured: Sequence[Measured], found: _Outcome
) -> Judged:
    """Against the state at the merge base; nothing of it becomes part of the series' history."""
    states = _states_at(c, arrival, [item.series for item in measured])
    more = {} if arrival.base_position is None else {"merge_base": arrival.base_position}
    points = [_point(arrival, item) for item in measured]
    policies = [arrival.policy_of(item.series) for item in measured]
    sound_ones = [
        # Judged as the point after the merge base, whatever its position on its own branch.
        (states[item.series.id], replace(point, position=states[item.series.id].last_position + 1), policy)
        for item, point, policy in zip(measured, points, policies, strict=True)
        if judgeable(item.series, point)
    ]
    judged = iter(_judge_together(c, sound_ones, found))
    for item, point, policy in zip(measured, points, policies, strict=True):
        if judgeable(item.series, point):
            judgement = replace(next(judged)[0], position=arrival.position, onset=False, events=())
        else:
            judgement = not_judgeable(point, policy)
        found.said.append((item.series, judgement))
        found.rows.append(_row(arrival, item.series, judgement, more=more))
    rows = _store(c, arrival, found, Told())
    verdicts = _verdicts(arrival, found, rows, _names(c, arrival, rows))
    return Judged(verdicts=verdicts, regressions=(), statements=tuple(found.statements))


def _states_at(c: Connection, arrival: Arrival, series: Sequence[SeriesRow]) -> dict[int, SeriesState]:
    base = arrival.base_position
    ahead = [s for s in series if base is not None and s.state_position is not None and s.state_position > base]
    beyond = {s.id for s in ahead}
    states = states_of(c, [s for s in series if s.id not in beyond])
    if ahead and base is not None:
        ids = [s.id for s in ahead]
        points = series_store.load_points(c, ids, around=base + 1, before=POINTS_BEFORE, until=base)
        decisions = regression_store.decisions(c, ids)
        for s in ahead:
            states[s.id] = replay(s, points[s.id], arrival.policy_of(s), decisions)[1]
    return states


# --- what is told and stored -----------------------------------------------------------------------------------------


def _tell(c: Connection, arrival: Arrival, found: _Outcome) -> Told:
    """Write what happened into change points and regressions; find the regression of each point that has one."""
    part_of_something = {row.series_id for row in found.rows if row.judgement.since_position is not None}
    if found.news:
        ids = part_of_something | {item.series.id for item in found.news}
        watched = sum(judgement.verdict is not Verdict.INSUFFICIENT for _, judgement in found.said)
        return alarms.tell(c, arrival, found.news, sorted(ids), watched=watched)
    return alarms.known_points(c, part_of_something) if part_of_something else Told()


def _store(c: Connection, arrival: Arrival, found: _Outcome, told: Told) -> list[JudgementRow]:
    """Write the judgements as they may be told, and what they make clear about earlier ones."""
    rows = [_as_told(row, told) for row in found.rows] if told.points else found.rows
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


def _names(c: Connection, arrival: Arrival, rows: Sequence[JudgementRow]) -> dict[int, str]:
    """Short shas of the onsets that the answer speaks of, by position."""
    own = [row for row in rows if row.run_id == arrival.run.id]
    positions = {row.judgement.since_position for row in own} | {
        event.onset_position for row in own for event in row.judgement.events
    }
    shas = regression_store.shas_at(c, arrival.default_branch_id, [p for p in positions if p is not None])
    return {position: sha[:10] for position, sha in shas.items()}


def _verdicts(
    arrival: Arrival, found: _Outcome, rows: Sequence[JudgementRow], names: Mapping[int, str]
) -> tuple[SeriesVerdict, ...]:
    """The answer: what is said of each measurement of the run."""
    own = {row.series_id: row for row in rows if row.run_id == arrival.run.id}
    return tuple(verdict_of(series, own[series.id], names) for series, _ in found.said)


def _as_told(row: JudgementRow, told: Told) -> JudgementRow:
    """The judgement as it may be told: with its regression; and red only where the code may be the cause."""
    since = row.judgement.since_position
    judgement = row.judgement
    if told.is_over(row.series_id, since, judgement.position):
        quiet = replace(judgement, verdict=Verdict.UNCHANGED, reason=Reason.RETURNED, red=False, since_position=None)
        return replace(row, judgement=quiet)
    if judgement.verdict is Verdict.REGRESSION and told.held_back(row.series_id, since):
        judgement = replace(judgement, verdict=Verdict.SUSPECT, red=False)
    return replace(row, judgement=judgement, regression_id=told.regression_of(row.series_id, since))


def _statements(arrival: Arrival, found: _Outcome) -> tuple[Statement, ...]:
    """The new states, and the roll-ups of points that were not judged again."""
    again = {series_id for series_id, _ in found.rejudged}
    points = [
        RollupPoint(
            series_id=series.id, value=judgement.value, verdict=judgement.verdict.value, change=judgement.change
        )
        for series, judgement in found.said
        if series.id not in again
    ]
    statements = list(found.statements)
    if found.states:
        statements.append(series_store.save_statement(found.states, arrival.measured_at))
    if points:
        rollup = series_store.rollup_statement(points, measured_at=arrival.measured_at, position=arrival.position)
        statements.append(rollup)
    return tuple(statements)
