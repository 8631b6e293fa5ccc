"""Judging: each point of a run against the state of its series, in the order of the branch, whenever it arrives.

A point at the newest position continues from the stored state. A point that arrives late, or a second run of a commit,
is inserted at its position and the series is judged again from there. A point of another branch is judged against the
state at the merge base and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from sqlalchemy import Connection

from backend.records import record
from backend.regression.change_points import KnownPoints
from backend.regression.series.judge import judge_many
from backend.regression.series.state import SeriesState
from backend.regression.terms import Point
from backend.services.judging.outcome import (
    Arrival,
    Outcome,
    SeriesVerdict,
    apply_changes,
    events_of,
    names_in,
    rollup_statements,
    row_at,
    said_rows,
    state_statements,
    statements_of,
    verdicts_of,
    write_down,
)
from backend.services.judging.rejudging import judge_again, publish_waiting, row_of
from backend.services.judging.replay import (
    POINTS_BEFORE,
    Replay,
    not_judgeable,
    points_to_replay,
    replay,
)
from backend.services.judging.state_cache import states_of
from backend.store.base import wire
from backend.store.base.wire import Statement
from backend.store.judging import judgements as judgement_store
from backend.store.judging import points as series_points
from backend.store.judging import series as series_store
from backend.store.judging.points import StoredPoint
from backend.store.judging.series import SeriesRow
from backend.store.regressions import regressions as regression_store

MOST_LATER_POINTS = 20_000
"""Points after a late run's own that are judged again while its delivery waits, over all its series: about two
seconds. Anything more is judged again in the background."""

MANY = 16
"""From this many measurements on, letting the server begin early is worth one more round trip."""


@record(kw_only=True)
class Measured:
    """One measurement of the run, with its series."""

    series: SeriesRow
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    verdicts: tuple[SeriesVerdict, ...]
    regressions: tuple[int, ...]
    """Regressions that this run opened or changed."""
    statements: tuple[Statement, ...]
    """Still to be sent: judgements, the new states, the roll-ups."""
    restated: bool = False
    """This run's current judgements differ from its verdicts: later runs on its branch were already known."""


def judge_arrival(c: Connection, arrival: Arrival, measured: Sequence[Measured], *statements: Statement) -> Judged:
    """Judge what a run measured, store the results, and notify. `statements` are sent before the judgements, or with
    those returned."""
    found = Outcome(statements=list(statements))
    if arrival.branch_id is not None:
        return _judge_on_branch(c, arrival, measured, found)
    late = [item for item in measured if _is_late(item.series, arrival)]
    newest = [item for item in measured if not _is_late(item.series, arrival)] if late else measured
    _judge_newest(c, arrival, newest, found)
    if late:
        _judge_late(c, arrival, late, found)
    known = apply_changes(c, arrival.context, found)
    if found.history or found.rejudged:
        rows = write_down(c, arrival.context, found, known)
        verdicts = verdicts_of(arrival, found, rows, names_in(c, arrival, rows))
        own = {(series.id, arrival.measured_at) for series, _ in found.said}
        return Judged(
            verdicts=verdicts,
            regressions=known.regressions,
            statements=statements_of(arrival, found),
            restated=not own.isdisjoint(found.restated),
        )
    rows = said_rows(found.rows, known)
    names = names_in(c, arrival, rows)
    found.statements.append(judgement_store.insert_statement(arrival.context.project_id, rows, arrival.now))
    if len(rows) < MANY or arrival.together is not None:
        verdicts, statements = verdicts_of(arrival, found, rows, names), statements_of(arrival, found)
        return Judged(verdicts=verdicts, regressions=known.regressions, statements=statements)
    with wire.ahead(c, *found.statements, *rollup_statements(arrival, found)):  # the server writes meanwhile
        verdicts, states = verdicts_of(arrival, found, rows, names), state_statements(arrival.measured_at, found)
    return Judged(verdicts=verdicts, regressions=known.regressions, statements=tuple(states))


def _is_late(series: SeriesRow, arrival: Arrival) -> bool:
    return series.state_position is not None and series.state_position >= arrival.position


# --- the newest point ------------------------------------------------------------------------------------------------


def _judge_newest(c: Connection, arrival: Arrival, measured: Sequence[Measured], found: Outcome) -> None:
    """Judge the points that follow all others of their series, together."""
    points = [_point(arrival, item) for item in measured]
    policies = [arrival.policy_of(item.series) for item in measured]
    may = [item.series.can_judge(point) for item, point in zip(measured, points, strict=True)]
    states = _states_of(c, arrival, [item.series for item, sound in zip(measured, may, strict=True) if sound])
    sound_ones = [
        (states[item.series.id], point, policy)
        for item, point, policy, sound in zip(measured, points, policies, may, strict=True)
        if sound
    ]
    judged = iter(judge_many(sound_ones))
    for item, point, policy, sound in zip(measured, points, policies, may, strict=True):
        series = item.series
        if sound:
            judgement, state = next(judged)
            found.after.append((series, state, judgement))
        else:
            judgement = not_judgeable(point, policy)
        found.said.append((series, judgement))
        found.rows.append(row_at(arrival, series, judgement))
        if judgement.events:
            events = events_of(series.id, judgement)
            found.events += events
            found.history += events


def _states_of(c: Connection, arrival: Arrival, series: Sequence[SeriesRow]) -> dict[int, SeriesState]:
    return states_of(c, series) if arrival.together is None else arrival.together.states_of(c, series)


def _point(arrival: Arrival, item: Measured) -> Point:
    return Point(arrival.position, arrival.run.commit, item.values, arrival.worker)


# --- a late point ----------------------------------------------------------------------------------------------------


def _judge_late(c: Connection, arrival: Arrival, late: Sequence[Measured], found: Outcome) -> None:
    """Insert the run's points at their place and judge the series again from there."""
    series = [item.series for item in late]
    # Of each series at most as many points stand after the run's as there are positions.
    if sum((row.state_position or 0) - arrival.position for row in series) > MOST_LATER_POINTS:
        _judge_in_place(c, arrival, late, found)
        return
    by_series = points_to_replay(c, [row.id for row in series], arrival.position)
    stored = {item.series.id: _with_arrival(by_series[item.series.id], arrival, item.values) for item in late}
    judge_again(c, arrival.context, series, stored, arrival.position, found)


def _judge_in_place(c: Connection, arrival: Arrival, late: Sequence[Measured], found: Outcome) -> None:
    """Judge the run's points by what stands before them, and leave all that follows to the background.

    Until then nothing of it is told, and what comes next is judged as if the run had not come.
    """
    ids = [item.series.id for item in late]
    place = arrival.position
    before = series_points.load_points(c, ids, around=place, before=POINTS_BEFORE, until=place)
    decisions = regression_store.decisions(c, ids)
    replays = [
        Replay.of(
            item.series,
            _with_arrival(before[item.series.id], arrival, item.values),
            arrival.policy_of(item.series),
            decisions,
        )
        for item in late
    ]
    replay(replays)
    for item, replayed in zip(late, replays, strict=True):
        point, judgement = replayed.judged[-1]
        judgement = replace(judgement, onset=False, events=())
        found.rows.append(row_of(item.series, point, judgement))
        found.rejudged.append((item.series.id, point.measured_at))
        found.said.append((item.series, judgement))
    judgement_store.supersede_from(c, ids, place, arrival.now, last=place)
    series_store.ask_again(c, ids, place)
    publish_waiting(c, arrival.context.project_id)


def _with_arrival(stored: Sequence[StoredPoint], arrival: Arrival, values: Sequence[float]) -> list[StoredPoint]:
    """The points with the run's own among them; runs of the same commit are one point of all their processes."""
    runs, processes = [arrival.run.id], list(values)
    for point in stored:
        if point.position == arrival.position:
            runs = [*(run for run in point.runs if run != arrival.run.id), arrival.run.id]
            processes = [*point.values, *processes]
    own = StoredPoint(
        position=arrival.position,
        commit=arrival.run.commit,
        commit_id=arrival.commit_id,
        run_id=arrival.run.id,
        measured_at=arrival.measured_at,
        value=median(processes),
        pooled=tuple(runs),
        values=tuple(processes),
        worker=arrival.worker,
    )
    others = [point for point in stored if point.position != arrival.position]
    return sorted([*others, own], key=lambda point: point.position)


# --- another branch --------------------------------------------------------------------------------------------------


def _judge_on_branch(c: Connection, arrival: Arrival, measured: Sequence[Measured], found: Outcome) -> Judged:
    """Against the state at the merge base; nothing of it becomes part of the series' history."""
    states = _states_at(c, arrival, [item.series for item in measured])
    more = {} if arrival.base_position is None else {"merge_base": arrival.base_position}
    points = [_point(arrival, item) for item in measured]
    policies = [arrival.policy_of(item.series) for item in measured]
    sound_ones = [
        # Judged as the point after the merge base, whatever its position on its own branch.
        (states[item.series.id], replace(point, position=states[item.series.id].last_position + 1), policy)
        for item, point, policy in zip(measured, points, policies, strict=True)
        if item.series.can_judge(point)
    ]
    judged = iter(judge_many(sound_ones))
    for item, point, policy in zip(measured, points, policies, strict=True):
        if item.series.can_judge(point):
            judgement = replace(next(judged)[0], position=arrival.position, onset=False, events=())
        else:
            judgement = not_judgeable(point, policy)
        found.said.append((item.series, judgement))
        found.rows.append(row_at(arrival, item.series, judgement, more=more))
    rows = write_down(c, arrival.context, found, KnownPoints())
    verdicts = verdicts_of(arrival, found, rows, names_in(c, arrival, rows))
    return Judged(verdicts=verdicts, regressions=(), statements=tuple(found.statements))


def _states_at(c: Connection, arrival: Arrival, series: Sequence[SeriesRow]) -> dict[int, SeriesState]:
    base = arrival.base_position
    ahead = [s for s in series if base is not None and s.state_position is not None and s.state_position > base]
    beyond = {s.id for s in ahead}
    states = _states_of(c, arrival, [s for s in series if s.id not in beyond])
    if ahead and base is not None:
        ids = [s.id for s in ahead]
        points = series_points.load_points(c, ids, around=base + 1, before=POINTS_BEFORE, until=base)
        decisions = regression_store.decisions(c, ids)
        replays = [Replay.of(s, points[s.id], arrival.policy_of(s), decisions) for s in ahead]
        replay(replays)
        states |= {replayed.series.id: replayed.state for replayed in replays}
    return states
