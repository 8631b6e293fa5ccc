"""Replays the last days under another policy, and compares with the list of regressions.

Both policies are replayed over the same histories. Where they differ, the list would change; where they agree it stays
as people, sessions and incidents have made it. So an unchanged policy never changes the list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from sqlalchemy import Connection

from backend.records import uncollected
from backend.regression.grouping import SeriesChange
from backend.regression.policy import Policy, PolicyBook
from backend.regression.series import history
from backend.regression.series.history import History
from backend.regression.series.run_numbers import RunValues
from backend.regression.terms import ChangeDirection, ChangePoint, ChangeState, Role
from backend.regression.what_if import ListedRegression, is_same, regressions_after
from backend.services.base import projects
from backend.services.base.errors import Unavailable
from backend.services.judging.entered_histories import HISTORIES, EnteredHistory
from backend.services.judging.policy_change import PREVIEW_DAYS, Table, changed_table
from backend.services.judging.replay import POINTS_BEFORE, Replay, replay
from backend.services.policy.resolve import book_of
from backend.store.base.projects import ProjectRow
from backend.store.judging import points as series_points
from backend.store.policy import policies as store
from backend.store.policy.policies import Gate, Watched
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as regression_store

SHOWN = 100
MOST_PREVIEWED = 200_000
"""Points that one preview judges with each policy: a second or two of work at first, and half of it while the histories
are in memory. If there are more, a sample of the series is judged."""
AT_A_TIME = 20

Policies = Callable[[Gate], tuple[Policy, Policy]]
"""The present policy of a series, and the one to try."""
Decisions = Sequence[regression_store.DecisionRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A regression that a policy reports, with the series that shows it most clearly."""

    regression_id: int | None
    """In the present list; None: it is not listed."""
    series: int
    """How many gate metrics show it."""
    series_id: int
    testbed: str
    benchmark: str
    variant_key: str
    metric: str
    position: int
    sha: str | None
    change: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The regressions of the last days under another policy, next to those in the list."""

    project: str
    days: int
    series: int
    """Series of gate metrics with points in that time."""
    affected: int
    """Those whose thresholds would change."""
    judged: int
    """Those of them that were judged by both policies: all, or an even sample if judging all would take too long."""
    now: int
    """Regressions reported in that time and not withdrawn, open and closed ones."""
    then: int
    added: tuple[Flag, ...]
    """At most 100, the largest first."""
    removed: tuple[Flag, ...]


class LastDays(NamedTuple):
    """This many days up to a moment."""

    until: datetime
    days: int

    @property
    def since(self) -> datetime:
        return self.until - timedelta(days=self.days)


@dataclass(frozen=True, slots=True)
class _Difference:
    """The regressions that one policy tells of and the other does not."""

    judged: int
    gone: list[SeriesChange]
    fresh: list[SeriesChange]


def preview(c: Connection, slug: str, change: Table, *, now: datetime, days: int = PREVIEW_DAYS) -> Preview:
    """The regressions of the last days as this policy would report them. Nothing is changed."""
    project = _begun(c, slug)
    tables = store.tables(c, project.id)
    return _compared(
        c, project, tables, tables._replace(chosen=changed_table(tables.chosen, change)), LastDays(now, days)
    )


def preview_declared(c: Connection, slug: str, table: Table, *, now: datetime, days: int = PREVIEW_DAYS) -> Preview:
    """The same for another [policy] in its tidemark.toml."""
    project = _begun(c, slug)
    tables = store.tables(c, project.id)
    return _compared(c, project, tables, tables._replace(declared=changed_table({}, table)), LastDays(now, days))


def preview_series(c: Connection, slug: str, series_id: int, min_change: float, *, now: datetime) -> Preview:
    """The regressions of one series with another smallest change."""
    project = projects.find_project(c, slug)
    book = book_of(project.slug, store.tables(c, project.id))

    def policies(it: Gate) -> tuple[Policy, Policy]:
        present = _policy_of(it, book)
        return present, present.with_values(min_change=min_change)

    period = LastDays(now, PREVIEW_DAYS)
    series = [it for it in store.gates_since(c, project.id, period.since) if it.series.id == series_id]
    shown = _listed(c, project.id, period.since, series_id)
    return _preview(c, project, series, policies, shown, period)


def _begun(c: Connection, slug: str) -> ProjectRow:
    """The project, if no other preview of it is being worked on: each judges months of history, twice."""
    project = projects.find_project(c, slug)
    if not store.claim_preview(c, project.id):
        raise Unavailable(f"another preview for {project.slug} is running; try again when it is done")
    return project


def _compared(
    c: Connection, project: ProjectRow, present: store.Tables, wanted: store.Tables, period: LastDays
) -> Preview:
    books = book_of(project.slug, present), book_of(project.slug, wanted)

    def policies(it: Gate) -> tuple[Policy, Policy]:
        return _policy_of(it, books[0]), _policy_of(it, books[1])

    series = store.gates_since(c, project.id, period.since)
    return _preview(c, project, series, policies, _listed(c, project.id, period.since), period)


def _preview(
    c: Connection,
    project: ProjectRow,
    series: Sequence[Gate],
    policies: Policies,
    known: Sequence[ListedRegression],
    period: LastDays,
) -> Preview:
    affected = [it for it in series if len(set(policies(it))) > 1]
    with uncollected():
        found = _difference(c, project.id, affected, policies, period) if affected else _Difference(0, [], [])
    before, after = _reported(known), _reported(regressions_after(known, found.gone, found.fresh))
    kept = {regression.number for regression in after}
    removed = [regression for regression in before if regression.number not in kept]
    added = [regression for regression in after if regression.number is None]
    onsets = sorted({regression.group.onset_position for regression in (*added, *removed)})
    names = store.shas(c, project.id, onsets) if onsets else {}
    gates = {it.series.id: it for it in series}
    return Preview(
        project=project.slug,
        days=period.days,
        series=len(series),
        affected=len(affected),
        judged=found.judged,
        now=len(before),
        then=len(after),
        added=_flags(added, gates, names),
        removed=_flags(removed, gates, names),
    )


def _reported(regressions: Iterable[ListedRegression]) -> list[ListedRegression]:
    return [regression for regression in regressions if regression.is_reported]


def _listed(c: Connection, project_id: int, since: datetime, series_id: int | None = None) -> list[ListedRegression]:
    """The regressions of the list, or of one series, each as the series shows it: those of gates that were not taken
    back."""
    reported = regression_store.reported_since(c, project_id, since)
    members: dict[int, list[SeriesChange]] = {}
    for point in point_store.of_regressions(c, reported, series_id=series_id):
        if point.is_gate and point.state != ChangeState.WITHDRAWN and point.regression_id is not None:
            members.setdefault(point.regression_id, []).append(point.as_series_change())
    return [
        ListedRegression(number=number, changes=tuple(changes), is_reported=reported[number])
        for number, changes in sorted(members.items())
    ]


# --- the two replays -------------------------------------------------------------------------------------------------


def _difference(
    c: Connection, project_id: int, affected: Sequence[Gate], policies: Policies, period: LastDays
) -> _Difference:
    judged, room = 0, MOST_PREVIEWED
    gone: list[SeriesChange] = []
    fresh: list[SeriesChange] = []
    for entered, decisions in _histories(c, project_id, period, affected):
        w, size = entered.watched, entered.history.size
        if judged and room < size:
            break
        changes = _changes_by_each(c, entered, decisions, policies(w))
        noise = regression_store.noise_of(c, w.series.id) if any(changes) else None
        before, after = ([_as_series_change(w, event, noise) for event in events] for events in changes)
        gone += [change for change in before if not any(is_same(change, other) for other in after)]
        fresh += [change for change in after if not any(is_same(change, other) for other in before)]
        judged += 1
        room -= size
    return _Difference(judged, gone, fresh)


def _as_series_change(w: Watched, event: ChangePoint, noise: float | None) -> SeriesChange:
    it = w.series
    return SeriesChange(
        str(it.id), w.testbed, it.benchmark, it.metric, Role(it.role), event, exact=it.exact, noise=noise
    )


def _histories(
    c: Connection, project_id: int, period: LastDays, affected: Sequence[Gate]
) -> Iterator[tuple[EnteredHistory, Decisions]]:
    """The histories of the affected series in the last days, and what was decided of them. However many are taken of
    these, they are an even sample: in an order that has nothing to do with what they are, and the same whenever it is
    asked for."""
    ids = [it.series.id for it in affected]
    Random(project_id).shuffle(ids)
    known = HISTORIES.of(c, project_id, period.until, period.days)
    for start in range(0, len(ids), AT_A_TIME):
        batch = ids[start : start + AT_A_TIME]
        decisions = regression_store.decisions(c, batch)
        missing = [series_id for series_id in batch if series_id not in known]
        if missing:
            known.update(_entered(c, store.watched_since(c, project_id, period.since, ids=missing)))
        for series_id in batch:
            if series_id in known:
                yield known[series_id], [decision for decision in decisions if decision.series_id == series_id]


def _entered(c: Connection, watched: Collection[Watched]) -> dict[int, EnteredHistory]:
    """Their histories. What is a ratio of costs, and measured by one worker, is never made into records: those of
    200,000 points take as long as judging them."""
    columns = series_points.load_columns(c, _stretches(w for w in watched if not w.series.exact), before=POINTS_BEFORE)
    stored = _points(c, [w for w in watched if w.series.id not in columns])
    return {
        w.series.id: EnteredHistory(w, _history(w, columns.get(w.series.id), stored.get(w.series.id, ())))
        for w in watched
    }


def _history(w: Watched, columns: RunValues | None, stored: Sequence[series_points.StoredPoint]) -> History:
    if columns is not None:
        return history.enter_columns(columns.that_have_costs(), w.series.kind)
    return history.enter([point for point in stored if w.series.can_judge(point)], w.series.kind)


def _points(c: Connection, watched: Collection[Watched]) -> dict[int, list[series_points.StoredPoint]]:
    """Of each series the points of the stretch, and enough of those before it."""
    return series_points.load_stretches(c, _stretches(watched), before=POINTS_BEFORE) if watched else {}


def _stretches(watched: Iterable[Watched]) -> dict[int, tuple[int, int]]:
    return {w.series.id: (w.first_position, series_points.NO_LIMIT) for w in watched}


def _policy_of(it: Gate, book: PolicyBook) -> Policy:
    return book.of(suite=it.series.suite, benchmark=it.series.benchmark, metric=it.series.metric, testbed=it.testbed)


def _changes_by_each(
    c: Connection, entered: EnteredHistory, decisions: Decisions, asked: Sequence[Policy]
) -> list[list[ChangePoint]]:
    """The regressions of the stretch that each of these policies confirms."""
    w = entered.watched
    if not decisions:
        return [_confirmed(w, entered.changes_by(policy)) for policy in asked]
    stored = _points(c, [w])[w.series.id]
    replays = [Replay.of(w.series, stored, policy, decisions) for policy in asked]
    replay(replays)
    return [_confirmed(w, [event for _, said in each.judged for event in said.events]) for each in replays]


def _confirmed(w: Watched, events: Iterable[ChangePoint]) -> list[ChangePoint]:
    return [
        event
        for event in events
        if event.state is ChangeState.CONFIRMED
        and event.direction is ChangeDirection.REGRESSION
        and event.past_threshold
        and event.onset_position >= w.first_position
    ]


def _flags(
    regressions: Sequence[ListedRegression], gates: Mapping[int, Gate], names: Mapping[int, str]
) -> tuple[Flag, ...]:
    biggest = sorted(regressions, key=lambda regression: -regression.group.magnitude)[:SHOWN]
    return tuple(_flag(regression, gates[int(regression.group.lead.series_id)], names) for regression in biggest)


def _flag(regression: ListedRegression, gate: Gate, names: Mapping[int, str]) -> Flag:
    found = regression.group
    return Flag(
        regression_id=regression.number,
        series=len({change.series_id for change in regression.changes}),
        series_id=gate.series.id,
        testbed=gate.testbed,
        benchmark=gate.series.benchmark,
        variant_key=gate.series.variant_key,
        metric=gate.series.metric,
        position=found.onset_position,
        sha=names.get(found.onset_position),
        change=found.magnitude,
        kind=found.lead.change.kind.value,
    )
