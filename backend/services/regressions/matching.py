"""Which regression a change point belongs to: that of its incident, of its onset, one that is back, or a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from backend.regression.apply_event import ONE_ALARM, opened, suspected
from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.change_points import KnownPoint
from backend.regression.grouping import Group, belongs, group, lead_of, same_onset
from backend.regression.incidents import LOOKS_BACK, ReportedIncident, matching_incident
from backend.regression.regression_events import ShownAgain
from backend.regression.regression_state import DECIDED, OPEN, RegressionState, Step, is_possible
from backend.services.regressions import ledger
from backend.services.regressions.causes import Causes
from backend.services.regressions.ledger import RegressionContext
from backend.store.joint import incidents as incident_store
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as store

COMES_BACK = 20
"""Positions after its fix in which the same loss in the same series is the same regression, open again."""


def _group_of(points: Sequence[KnownPoint]) -> Group:
    changes = [point.as_series_change() for point in points]
    return Group(lead_of(changes), tuple(changes))


class Matching:
    """Change points find their regressions. `touched`: those that something was learnt of already."""

    def __init__(self, c: Connection, context: RegressionContext, causes: Causes, touched: Iterable[int]) -> None:
        self._c = c
        self._context = context
        self._causes = causes
        self.touched = set(touched)
        self.merged: dict[int, int] = {}
        """Regressions whose change points have become part of another."""

    def attach(self, fresh: Sequence[KnownPoint]) -> None:
        """Each change point joins the regression of its incident or its onset, or founds one with others of that
        onset."""
        fresh = self._without_placed(fresh)
        if not fresh:
            return
        changes = {point.id: point.as_series_change() for point in self._without_incident(fresh)}
        groups = self._open_groups()
        # What a counter shows is no machine's doing: it joins no alarm about one.
        counted = any(change.exact for change in changes.values())
        incidents = incident_store.of_regressions(self._c, groups) if counted else {}
        alarms = {number for number, incident in incidents.items() if incident.cause == CauseName.HARDWARE}
        left = dict(changes)
        for point_id, change in changes.items():
            others = groups.keys() - (alarms if change.exact else set())
            near = [number for number in others if belongs(groups[number], change)]
            if near:
                onset = change.change.onset_position
                nearest = min(near, key=lambda number: abs(groups[number].onset_position - onset))
                self._join(nearest, [point_id])
                del left[point_id]
        point_of = {change.series_id: point_id for point_id, change in left.items()}
        for found in group(list(left.values())):
            if found.opens:
                self._open(found, [point_of[member.series_id] for member in found.members])

    def follow(self, incident: ReportedIncident) -> None:
        """The open change points of an incident come together in its regression."""
        points = point_store.open_in_series(self._c, incident.series)
        incidents = self._incidents_around(points)
        undecided = [point for point in points if point.regression_state not in DECIDED]
        matching = [p for p in undecided if (found := matching_incident(incidents, p)) and found.id == incident.id]
        if matching:
            self._bring_together(incident, matching)
        elif incident.regression_id is not None:
            self.touched.add(incident.regression_id)

    def _without_placed(self, points: Sequence[KnownPoint]) -> list[KnownPoint]:
        """The change points without those that a person placed in a regression: they stay in it while it is open."""
        placed = {
            point.id: point.regression_id for point in points if point.is_placed and point.regression_state in OPEN
        }
        self.touched |= {number for number in placed.values() if number is not None}
        return [point for point in points if point.id not in placed]

    def _join(self, regression_id: int, point_ids: Iterable[int]) -> None:
        point_store.attach(self._c, regression_id, point_ids, self._context.now)
        self.touched.add(regression_id)

    # --- that of an incident

    def _incidents_around(self, points: Sequence[KnownPoint]) -> list[ReportedIncident]:
        oldest = min((point.onset_position for point in points), default=self._context.position)
        return incident_store.since(self._c, self._context.project_id, oldest - LOOKS_BACK)

    def _without_incident(self, fresh: Sequence[KnownPoint]) -> list[KnownPoint]:
        """Change points that an incident is about join its regression; returns the others."""
        incidents = self._incidents_around(fresh)
        matching: dict[int, list[KnownPoint]] = {}
        left = []
        for point in fresh:
            incident = matching_incident(incidents, point)
            if incident is None or self._is_decided(incident):
                left.append(point)
            else:
                matching.setdefault(incident.id, []).append(point)
        for incident in incidents:
            if incident.id in matching:
                self._bring_together(incident, matching[incident.id])
        return left

    def _is_decided(self, incident: ReportedIncident) -> bool:
        """Whether a person has said what its regression is: what comes later is a question of its own."""
        if incident.regression_id is None:
            return False
        row = store.lock_rows(self._c, [incident.regression_id]).get(incident.regression_id)
        return row is not None and row.is_decided

    def _bring_together(self, incident: ReportedIncident, points: Sequence[KnownPoint]) -> None:
        """One regression for all change points that an incident is about, but for those that a person has placed."""
        points = self._without_placed(points)
        if not points or self._is_decided(incident):
            return
        ids = [point.id for point in points]
        donors = {point.regression_id for point in points if point.regression_id is not None}
        home = self._home(incident, donors, {point.testbed_id for point in points})
        if home is None and self._joins_what_ended(incident, points):
            return
        if home is None:
            found = _group_of(points)
            home = self._open(found, ids, incident) if found.opens else None
        elif any(point.regression_id != home for point in points):
            point_store.attach(self._c, home, ids, self._context.now)
        if home is not None:
            if home != incident.regression_id:
                incident_store.bind(self._c, incident.id, home)
            self.touched |= {*donors, home}
            self.merged |= {donor: home for donor in donors - {home}}

    def _joins_what_ended(self, incident: ReportedIncident, points: Sequence[KnownPoint]) -> bool:
        """Where the joint detector has seen a change end, a series that shows it late is part of what is over; a
        series that shows it for longer after the end than before it opens it again."""
        number, end = incident.regression_id or 0, incident.closed_position
        row = store.lock_rows(self._c, [number]).get(number)
        if row is None or row.state is not RegressionState.FIXED or end is None:
            return False
        self._join(row.id, [point.id for point in points])
        lasting = [point for point in points if point.outlasts(end)]
        for point in points:
            if point not in lasting:
                point_store.end(self._c, point.fixed_at(end), self._context.now)
        if lasting:
            self._reopen(row.id, _group_of(lasting))
        return True

    def _home(self, incident: ReportedIncident, donors: Iterable[int], testbeds: set[int]) -> int | None:
        """Where the change points of an incident belong: its own regression, else the first that was opened of them.

        An incident of machines or software says nothing of testbeds that it does not name: what they show stays the
        code's.
        """
        rows = store.lock_rows(self._c, {*donors, *([incident.regression_id] if incident.regression_id else [])})
        own = rows.get(incident.regression_id or 0)
        if own is not None and own.is_open:
            return own.id
        taken = incident_store.of_regressions(self._c, rows)
        free = [row for row in rows.values() if row.is_open and row.id not in taken]
        if incident.cause != CauseName.CODE:
            members = point_store.of_regressions(self._c, [row.id for row in free])
            others = [p for p in members if p.series_id not in incident.series and p.testbed_id not in testbeds]
            shown = {point.regression_id for point in others if point.is_live and point.is_gate}
            free = [row for row in free if row.id not in shown]
        # One that somebody has taken upon themselves keeps them.
        by_rank = [RegressionState.ACKNOWLEDGED, RegressionState.CONFIRMED, RegressionState.SUSPECT]
        return min(free, key=lambda row: (by_rank.index(row.state), row.id)).id if free else None

    # --- one of the same onset, one that is back, or a new one

    def _open_groups(self) -> dict[int, Group]:
        """The open regressions of this testbed."""
        context = self._context
        members: dict[int, list[KnownPoint]] = {}
        for point in point_store.of_open_regressions(self._c, context.project_id, context.testbed_id):
            if point.is_live and point.regression_id is not None:
                members.setdefault(point.regression_id, []).append(point)
        return {number: _group_of(points) for number, points in members.items()}

    def _open(self, found: Group, point_ids: Sequence[int], incident: ReportedIncident | None = None) -> int:
        """The regression that change points of one onset are: one that is there already, or a new one.

        What a machine does from one run to the next is one alarm, whichever series and commit show it next; what the
        code does at one commit is one regression, whichever testbed shows it next.
        """
        c, context = self._c, self._context
        cause = self._causes.of(found, incident, moved=len(found.members))
        series = [int(member.series_id) for member in found.members]
        onset = found.onset_position
        if cause.cause is CauseName.CODE:
            elsewhere = self._same_elsewhere(found, series)
            if elsewhere is not None:
                self._join(elsewhere, point_ids)
                return elsewhere
        if cause.cause is CauseName.HARDWARE:
            alarm = store.machine_alarm(c, context.project_id, context.testbed_id, onset - ONE_ALARM, onset)
            if alarm is not None:
                self._join(alarm, point_ids)
                self._reopen(alarm, found, cause)
                return alarm
        for row in store.fixed_lately(c, context.project_id, series, onset - COMES_BACK):
            alike = row.lead_change is not None and 0.7 <= found.magnitude / row.lead_change <= 1.4
            if alike and self._reopen(row.id, found):
                self._join(row.id, point_ids)
                return int(row.id)
        new = opened(context.testbed_id, found, cause, self._causes.noise_of(found))
        number = store.insert(c, context.project_id, context.branch_id, new, context.now)
        self._join(number, point_ids)
        ledger.add_to_history(c, context, context.now, number, suspected(context.run_id, found))
        return number

    def _same_elsewhere(self, found: Group, series: Sequence[int]) -> int | None:
        """The first open regression of the code that one of these series has on another testbed, of the same onset."""
        context = self._context
        others = point_store.open_elsewhere(self._c, context.project_id, context.testbed_id, series)
        same = [
            other.regression_id
            for other in others
            if other.regression_id is not None
            and any(same_onset(member, other.as_series_change()) for member in found.members)
        ]
        return min(same, default=None)

    def _reopen(self, regression_id: int, found: Group, cause: Cause | None = None) -> bool:
        """Open again what has ended; False: it had not."""
        row = store.lock_rows(self._c, [regression_id])[regression_id]
        if not is_possible(row, Step.SHOW_AGAIN):
            return False
        again = ShownAgain(run_id=self._context.run_id, found=found, cause=cause)
        ledger.record(self._c, self._context, self._context.now, row, [], again)
        return True
