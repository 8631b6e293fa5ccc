"""From change points to regressions: opened once for all series of one onset, confirmed, relocated, fixed, withdrawn.

What was announced is never edited: every step is a further event of the same regression. The cause is asked before
anyone is told; a change that is the machine's doing stays a suspect of that cause and never becomes a red cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

from sqlalchemy import Connection

from backend.regression.attribution import Cause, CauseName
from backend.regression.grouping import Group, SeriesChange, belongs, group, lead_of
from backend.regression.terms import ChangeDirection, ChangePoint, ChangeState, Role
from backend.services import confirm, live
from backend.services.arrival import Arrival
from backend.services.causes import find_cause
from backend.store import regressions as store
from backend.store.regressions import ChangePointRow, RegressionRow, RegressionValues
from backend.store.series import SeriesRow

LIVE = ("suspect", "confirmed")
# Positions after its fix in which the same loss in the same series is the same regression, open again.
COMES_BACK = 20
# Positions after which a machine that was ill is a new alarm.
ONE_ALARM = 30
# States that new evidence may change; the others were decided by a person or are over.
OPEN_STATES = ("suspect", "confirmed", "acknowledged")


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A change point event in a series, fresh from the judge."""

    series: SeriesRow
    event: ChangePoint
    noise: float


@dataclass(slots=True)
class Told:
    """What came of the news: the regression of each change point, and which regressions changed."""

    points: dict[tuple[int, int], ChangePointRow] = field(default_factory=dict)
    """(series, onset) to the change point."""
    regressions: list[int] = field(default_factory=list)

    def regression_of(self, series_id: int, onset: int | None) -> int | None:
        point = None if onset is None else self.points.get((series_id, onset))
        return None if point is None else point.regression_id

    def held_back(self, series_id: int, onset: int | None) -> bool:
        point = None if onset is None else self.points.get((series_id, onset))
        return point is not None and point.held_back


def known_points(c: Connection, series_ids: Iterable[int]) -> Told:
    """The change points of series as they stand."""
    points = store.points_of_series(c, series_ids)
    return Told({(p.series_id, p.onset_position): p for p in points if p.state != "withdrawn"})


def tell(c: Connection, arrival: Arrival, news: Sequence[News], series_ids: Sequence[int], *, watched: int) -> Told:
    """Write the news into change points and regressions. `series_ids`: whose open points the caller wants to know."""
    store.lock(c, arrival.project_id, arrival.testbed_id)
    return _Telling(c, arrival, {item.series.id: item for item in news}, watched).run(news, series_ids)


class _Telling:
    """One run's news, told step by step."""

    def __init__(self, c: Connection, arrival: Arrival, by_series: Mapping[int, News], watched: int) -> None:
        self.c = c
        self.arrival = arrival
        self.by_series = by_series
        self.watched = watched
        self.touched: set[int] = set()
        self.newly_confirmed: set[int] = set()

    def run(self, news: Sequence[News], series_ids: Sequence[int]) -> Told:
        fresh = self._write_points(news)
        self._attach(fresh)
        for regression_id, row in store.lock_rows(self.c, self.touched).items():
            self._settle(row, store.points_of(self.c, [regression_id]))
        confirm.follow(self.c, sorted(self.touched), self.arrival.now)
        told = known_points(self.c, series_ids)
        told.regressions = sorted(self.touched)
        return told

    # --- change points

    def _write_points(self, news: Sequence[News]) -> list[ChangePointRow]:
        """Bring the change points up to date; returns those for the worse that belong to no regression yet."""
        c, branch, now = self.c, self.arrival.default_branch_id, self.arrival.now
        book = {(p.series_id, p.onset_position): p for p in store.open_points(c, self.by_series)}
        made: list[tuple[int, ChangePoint]] = []
        advanced: list[int] = []
        for item in news:
            event, series = item.event, item.series.id
            previous = event.onset_position if event.previous_onset_position is None else event.previous_onset_position
            known = book.get((series, previous)) if event.direction is ChangeDirection.REGRESSION else None
            if known is not None and known.regression_id is not None:
                self.touched.add(known.regression_id)
            match event.state:
                case ChangeState.SUSPECT | ChangeState.CONFIRMED if known is None:
                    made.append((series, event))
                case ChangeState.SUSPECT | ChangeState.CONFIRMED if known is not None:
                    store.update_point(c, branch, known.id, event, event.state, None, now)
                    advanced.append(known.id)
                case ChangeState.RELOCATED if known is not None:
                    store.update_point(c, branch, known.id, event, ChangeState(known.state), None, now)
                    book[(series, event.onset_position)] = replace(known, onset_position=event.onset_position)
                    advanced.append(known.id)
                case ChangeState.FIXED if known is not None:
                    store.end_point(c, known.id, event.state, event.range_end, now)
                case ChangeState.WITHDRAWN if known is not None:
                    store.end_point(c, known.id, event.state, None, now)
                case _:
                    pass  # the end of a story that was never told
        self.newly_confirmed = {
            item.series.id for item in news if item.event.state is ChangeState.CONFIRMED and _is_alarm(item.event)
        }
        rows = store.insert_points(c, branch, made, now)
        fresh = [row for row, (_, event) in zip(rows, made, strict=True) if _is_alarm(event)]
        orphans = [p for p in store.open_points(c, self.by_series) if p.id in advanced and p.regression_id is None]
        return [*fresh, *orphans]

    # --- which regression

    def _attach(self, fresh: Sequence[ChangePointRow]) -> None:
        """Each fresh change point joins the regression of its onset, or founds one with others of the same onset."""
        if not fresh:
            return
        changes = {point.id: self._change(point) for point in fresh}
        groups = self._open_groups()
        left = dict(changes)
        for point_id, change in changes.items():
            near = [number for number, members in groups.items() if belongs(members, change)]
            if near:
                onset = change.change.onset_position
                nearest = min(near, key=lambda number: abs(groups[number].onset_position - onset))
                store.attach(self.c, nearest, [point_id], self.arrival.now)
                self.touched.add(nearest)
                del left[point_id]
        point_of = {change.series_id: point_id for point_id, change in left.items()}
        for found in group(list(left.values())):
            if found.opens:
                self._open(found, [point_of[member.series_id] for member in found.members])

    def _open_groups(self) -> dict[int, Group]:
        members: dict[int, list[SeriesChange]] = {}
        for point in store.points_of_open_regressions(self.c, self.arrival.project_id, self.arrival.testbed_id):
            if point.state in LIVE and point.regression_id is not None:
                members.setdefault(point.regression_id, []).append(self._change(point))
        return {number: Group(lead_of(changes), tuple(changes)) for number, changes in members.items()}

    def _change(self, point: ChangePointRow) -> SeriesChange:
        return SeriesChange(
            str(point.series_id),
            self.arrival.run.testbed,
            point.benchmark,
            point.metric,
            Role(point.role),
            point.as_change_point(),
        )

    def _open(self, found: Group, point_ids: Sequence[int]) -> None:
        """A new regression. It begins as a suspect; `_settle` moves it on when its change points are confirmed.

        What a machine does from one run to the next is one alarm, whichever series and commit show it next.
        """
        cause = self._cause(found, moved=len(found.members))
        arrival = self.arrival
        if cause.cause is CauseName.HARDWARE:
            alarm = store.machine_alarm(
                self.c, arrival.project_id, arrival.testbed_id, found.onset_position - ONE_ALARM, found.onset_position
            )
            if alarm is not None:
                self._goes_on(alarm, found, cause, point_ids)
                return
        if self._came_back(found, point_ids):
            return
        values = self._values(found, state="suspect", cause=cause)
        number = store.insert_regression(
            self.c, arrival.project_id, arrival.testbed_id, arrival.default_branch_id, values, arrival.now
        )
        store.attach(self.c, number, point_ids, arrival.now)
        self.touched.add(number)
        self._event(number, "suspected", self._place_of(found), state="suspect")

    def _goes_on(self, alarm: int, found: Group, cause: Cause, point_ids: Sequence[int]) -> None:
        """More of what an alarm about a machine is about."""
        store.attach(self.c, alarm, point_ids, self.arrival.now)
        if store.reopen(self.c, alarm, self.arrival.now):
            detail = {"cause": cause.cause.value, "evidence": list(cause.evidence), **self._place_of(found)}
            self._event(alarm, "infra_alarm", detail, state="suspect")
        self.touched.add(alarm)

    def _came_back(self, found: Group, point_ids: Sequence[int]) -> bool:
        """Whether this is a regression that was fixed a moment ago and is there again: it opens again."""
        arrival = self.arrival
        series = [int(member.series_id) for member in found.members]
        since = found.onset_position - COMES_BACK
        for row in store.fixed_lately(self.c, arrival.project_id, arrival.testbed_id, series, since):
            alike = row.lead_change is not None and 0.7 <= found.magnitude / row.lead_change <= 1.4
            if alike and store.reopen(self.c, row.id, arrival.now):
                store.attach(self.c, row.id, point_ids, arrival.now)
                self._event(row.id, "reopened", self._place_of(found), state="suspect")
                self.touched.add(row.id)
                return True
        return False

    # --- how it stands

    def _settle(self, row: RegressionRow, members: Sequence[ChangePointRow]) -> None:
        """Bring a regression in line with its change points, and tell what changed."""
        gates = [point for point in members if point.role == Role.GATE.value]
        alive = [point for point in gates if point.state in LIVE]
        if not alive:
            self._close(row, gates)
            return
        if row.state not in OPEN_STATES:
            return
        confirmed = [point for point in alive if point.state == "confirmed"]
        leading = [self._change(point) for point in confirmed or alive]
        found = Group(lead_of(leading), tuple(leading))
        cause = self._cause(found, moved=sum(point.state in LIVE for point in members))
        state = row.state
        newly = bool(confirmed) and row.state == "suspect"
        if newly and not cause.suppress:
            state = "confirmed"
        values = self._values(found, state=state, cause=cause)
        if cause.cause is CauseName.HARDWARE and row.cause == CauseName.HARDWARE:
            # What shows it next is no other beginning.
            began = min(row.first_bad_position, found.onset_position)
            good = row.last_good_position if began == row.first_bad_position else found.last_good_position
            values = replace(values, first_bad=began, last_good=good)
        if (values.first_bad, values.last_good) != (row.first_bad_position, row.last_good_position):
            moved = {"from": row.first_bad_position, **self._place_of(found)}
            self._event(row.id, "relocated", moved, state=state)
        store.update_regression(self.c, row.id, self.arrival.default_branch_id, values, self.arrival.now)
        told_now = [point.series_id for point in confirmed if point.series_id in self.newly_confirmed]
        if newly and cause.suppress and not store.has_event(self.c, row.id, "infra_alarm"):
            self._event(
                row.id, "infra_alarm", {"cause": cause.cause.value, "evidence": list(cause.evidence)}, state=state
            )
        elif newly and not cause.suppress:
            detail = {"cause": cause.cause.value, "change": found.magnitude, **self._place_of(found)}
            self._event(row.id, "confirmed", detail, state=state)
        if told_now and not cause.suppress:
            store.count_alarms(self.c, told_now, confirmed=1)

    def _close(self, row: RegressionRow, gates: Sequence[ChangePointRow]) -> None:
        """No series is worse any more: mended by a commit, or never real."""
        if not row.still_bad or self._comes_and_goes(row, gates):
            return
        ends = [point.fixed_position for point in gates if point.state == "fixed" and point.fixed_position is not None]
        fixed = max(ends, default=None)
        state = row.state
        if state in OPEN_STATES:
            state = "withdrawn" if fixed is None else "fixed"
        if state == "withdrawn" and row.state != "suspect":
            store.count_alarms(self.c, [point.series_id for point in gates], withdrawn=1)
        arrival = self.arrival
        store.close_regression(
            self.c, row.id, arrival.default_branch_id, state=state, fixed_position=fixed, now=arrival.now
        )
        detail: dict[str, Any] = {"run_id": arrival.run.id}
        if fixed is not None:
            shas = store.shas_at(self.c, arrival.default_branch_id, [fixed])
            detail |= {"position": fixed, "commit": shas.get(fixed)}
        self._event(row.id, "withdrawn" if fixed is None else "fixed", detail, state=state)

    def _comes_and_goes(self, row: RegressionRow, gates: Sequence[ChangePointRow]) -> bool:
        """An alarm about one worker of several stays while others run: their good runs say nothing of it."""
        if row.cause != CauseName.HARDWARE or row.state != "suspect":
            return False
        if any(point.state == "fixed" for point in gates):
            return False
        newest = max((point.onset_position for point in gates), default=0)
        return self.arrival.position - newest < ONE_ALARM

    # --- shared

    def _cause(self, found: Group, *, moved: int) -> Cause:
        lead = self.by_series.get(int(found.lead.series_id))
        exact = {int(member.series_id) for member in found.members} & {
            item.series.id for item in self.by_series.values() if item.series.exact and item.series.role == Role.GATE
        }
        return find_cause(
            self.c,
            self.arrival,
            found,
            noise=0.0 if lead is None else lead.noise,
            exact=bool(exact),
            moved=moved,
            watched=self.watched,
        )

    def _values(self, found: Group, *, state: str, cause: Cause) -> RegressionValues:
        lead_series = int(found.lead.series_id)
        lead = self.by_series.get(lead_series)
        noise = store.noise_of(self.c, lead_series) if lead is None else lead.noise
        low = high = None
        if noise is not None:
            # Of a change between two levels, each known from a few runs.
            half = 1.96 * noise * sqrt(2 / 3)
            low, high = found.magnitude - half, found.magnitude + half
        return RegressionValues(
            state=state,
            kind=found.lead.change.kind.value,
            cause=cause.cause.value,
            evidence=cause.evidence,
            first_bad=found.onset_position,
            last_good=found.last_good_position,
            lead_series=lead_series,
            change=found.magnitude,
            change_low=low,
            change_high=high,
        )

    def _place_of(self, found: Group) -> dict[str, Any]:
        shas = store.shas_at(self.c, self.arrival.default_branch_id, [found.onset_position])
        return {
            "run_id": self.arrival.run.id,
            "position": found.onset_position,
            "commit": shas.get(found.onset_position),
            "series": len(found.members),
        }

    def _event(self, regression_id: int, kind: str, detail: Mapping[str, Any], *, state: str) -> None:
        store.insert_event(self.c, regression_id, kind, now=self.arrival.now, detail=detail)
        payload = {
            "regression_id": regression_id,
            "event": kind,
            "state": state,
            "project": self.arrival.run.project,
            "testbed": self.arrival.run.testbed,
        }
        live.publish(self.c, "regression", self.arrival.project_id, payload)


def _is_alarm(event: ChangePoint) -> bool:
    return event.direction is ChangeDirection.REGRESSION and event.past_gate
