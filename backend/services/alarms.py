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
from backend.regression.grouping import NEAR, Group, SeriesChange, belongs, group, lead_of
from backend.regression.terms import ChangeDirection, ChangePoint, ChangeState, Role
from backend.services import confirm, live
from backend.services.arrival import Arrival
from backend.services.causes import find_cause
from backend.services.fleet_words import LOOKS_BACK, cause_of, covering
from backend.store import fleet as fleet_store
from backend.store import regressions as store
from backend.store.fleet import Word
from backend.store.regressions import ChangePointRow, RegressionRow, RegressionValues
from backend.store.series import SeriesRow

LIVE = ("suspect", "confirmed")
# Positions after its fix in which the same loss in the same series is the same regression, open again.
COMES_BACK = 20
# Positions after which a machine that was ill is a new alarm.
ONE_ALARM = 30
# States that new evidence may change; the others were decided by a person or are over.
OPEN_STATES = ("suspect", "confirmed", "acknowledged")
# What a person said of a regression, or a new baseline that began by itself.
DECIDED = ("expected", "invalid")
# Of what the fleet judge tells, what says something of series that got worse.
HEEDED = ("regression", "infra", "environment")


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

    def is_over(self, series_id: int, onset: int | None, position: int) -> bool:
        """The fleet judge saw it end before this position, by the runs of all workers; this series alone has not."""
        point = None if onset is None else self.points.get((series_id, onset))
        return point is not None and point.fixed_position is not None and position >= point.fixed_position

    def held_back(self, series_id: int, onset: int | None) -> bool:
        point = None if onset is None else self.points.get((series_id, onset))
        return point is not None and point.held_back


def known_points(c: Connection, series_ids: Iterable[int]) -> Told:
    """The change points of series as they stand."""
    points = store.points_of_series(c, series_ids)
    return Told({(p.series_id, p.onset_position): p for p in points if p.state != "withdrawn"})


def tell(c: Connection, arrival: Arrival, news: Sequence[News], series_ids: Sequence[int], *, watched: int) -> Told:
    """Write the news into change points and regressions. `series_ids`: whose open points the caller wants to know."""
    store.lock(c, arrival.project_id)
    return _Telling(c, arrival, {item.series.id: item for item in news}, watched).run(news, series_ids)


def heed(c: Connection, arrival: Arrival, word: Word) -> list[int]:
    """Let the open change points that fall under a word of the fleet judge follow it. `arrival`: a run of one of its
    series, all of which the caller has locked. Returns the regressions that changed."""
    store.lock(c, arrival.project_id)
    return _Telling(c, arrival, {}, 0).follow(word)


class _Telling:
    """One run's news, told step by step."""

    def __init__(self, c: Connection, arrival: Arrival, by_series: Mapping[int, News], watched: int) -> None:
        self.c = c
        self.arrival = arrival
        self.by_series = by_series
        self.watched = watched
        self.touched: set[int] = set()
        self.newly_confirmed: set[int] = set()
        self.merged: dict[int, int] = {}
        """Regressions whose change points have become part of another."""

    def run(self, news: Sequence[News], series_ids: Sequence[int]) -> Told:
        fresh = self._write_points(news)
        self._attach(fresh)
        self._settle_all()
        told = known_points(self.c, series_ids)
        told.regressions = sorted(self.touched)
        return told

    def follow(self, word: Word) -> list[int]:
        points = store.open_points(self.c, word.series)
        words = self._words(points)
        undecided = [point for point in points if point.regression_state not in DECIDED]
        under = [
            point
            for point in undecided
            if (found := covering(words, point.series_id, point.onset_position)) and found.id == word.id
        ]
        if under:
            self._bring_together(word, under)
        elif word.regression_id is not None:
            self.touched.add(word.regression_id)
        if word.cause == CauseName.CODE and word.closed_position is not None and word.regression_id is not None:
            self._end(word, word.closed_position)
        self._settle_all()
        return sorted(self.touched)

    def _end(self, word: Word, position: int) -> None:
        """What all series side by side say is mended is mended, also where one of them is too noisy to see it."""
        for point in store.points_of(self.c, [word.regression_id or 0]):
            if point.state in LIVE and point.series_id in word.series and point.onset_position < position:
                store.end_point(self.c, point.id, ChangeState.FIXED, position, self.arrival.now)

    def _settle_all(self) -> None:
        words = fleet_store.words_of_regressions(self.c, self.touched) if self.touched else {}
        for regression_id, row in store.lock_rows(self.c, self.touched).items():
            self._settle(row, store.points_of(self.c, [regression_id]), words.get(regression_id))
        confirm.follow(self.c, sorted(self.touched), self.arrival.now)

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
        changes = {point.id: self._change(point) for point in self._heeded(fresh)}
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

    # --- what the fleet judge said

    def _words(self, points: Sequence[ChangePointRow]) -> list[Word]:
        oldest = min((point.onset_position for point in points), default=self.arrival.position)
        return fleet_store.words(self.c, self.arrival.project_id, oldest - LOOKS_BACK)

    def _heeded(self, fresh: Sequence[ChangePointRow]) -> list[ChangePointRow]:
        """Change points that a word is about follow it; returns the others."""
        words = self._words(fresh)
        under: dict[int, list[ChangePointRow]] = {}
        left = []
        for point in fresh:
            word = covering(words, point.series_id, point.onset_position)
            if word is None or self._is_decided(word):
                left.append(point)
            else:
                under.setdefault(word.id, []).append(point)
        for word in words:
            if word.id in under:
                self._bring_together(word, under[word.id])
        return left

    def _is_decided(self, word: Word) -> bool:
        """Whether a person has said what its regression is: what comes later is a question of its own."""
        if word.regression_id is None:
            return False
        row = store.lock_rows(self.c, [word.regression_id]).get(word.regression_id)
        return row is not None and row.state in DECIDED

    def _bring_together(self, word: Word, points: Sequence[ChangePointRow]) -> None:
        """One regression for all change points that a word is about."""
        if self._is_decided(word):
            return
        ids = [point.id for point in points]
        donors = {point.regression_id for point in points if point.regression_id is not None}
        home = self._home(word, donors, {point.testbed_id for point in points})
        if home is None:
            changes = [self._change(point) for point in points]
            found = Group(lead_of(changes), tuple(changes))
            home = self._open(found, ids, word) if found.opens else None
        elif any(point.regression_id != home for point in points):
            store.attach(self.c, home, ids, self.arrival.now)
        if home is not None:
            if home != word.regression_id:
                fleet_store.bind(self.c, word.id, home)
            self.touched |= {*donors, home}
            self.merged |= {donor: home for donor in donors - {home}}

    def _home(self, word: Word, donors: Iterable[int], testbeds: set[int]) -> int | None:
        """Where a word's change points belong: its own regression, else the first that was told of them.

        A word about machines or software says nothing of testbeds it does not name: what they show stays the code's.
        """
        rows = store.lock_rows(self.c, {*donors, *([word.regression_id] if word.regression_id else [])})
        own = rows.get(word.regression_id or 0)
        if own is not None and own.state in OPEN_STATES:
            return own.id
        taken = fleet_store.words_of_regressions(self.c, rows)
        free = [row for row in rows.values() if row.state in OPEN_STATES and row.id not in taken]
        if word.cause != CauseName.CODE:
            members = store.points_of(self.c, [row.id for row in free])
            others = [p for p in members if p.series_id not in word.series and p.testbed_id not in testbeds]
            shown = {point.regression_id for point in others if point.state in LIVE and point.role == Role.GATE.value}
            free = [row for row in free if row.id not in shown]
        # One that somebody has taken upon themselves keeps them.
        by_rank = {"acknowledged": 0, "confirmed": 1, "suspect": 2}
        return min(free, key=lambda row: (by_rank[row.state], row.id)).id if free else None

    # --- those of this testbed

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
            exact=point.exact,
        )

    def _open(self, found: Group, point_ids: Sequence[int], word: Word | None = None) -> int:
        """A new regression. It begins as a suspect; `_settle` moves it on when its change points are confirmed.

        What a machine does from one run to the next is one alarm, whichever series and commit show it next; what the
        code does at one commit is one regression, whichever testbed shows it next.
        """
        cause = self._cause(found, word, moved=len(found.members))
        arrival = self.arrival
        if cause.cause is CauseName.CODE:
            elsewhere = store.same_elsewhere(
                self.c,
                arrival.project_id,
                arrival.testbed_id,
                [int(member.series_id) for member in found.members],
                found.onset_position,
                NEAR,
            )
            if elsewhere is not None:
                store.attach(self.c, elsewhere, point_ids, arrival.now)
                self.touched.add(elsewhere)
                return elsewhere
        if cause.cause is CauseName.HARDWARE:
            alarm = store.machine_alarm(
                self.c, arrival.project_id, arrival.testbed_id, found.onset_position - ONE_ALARM, found.onset_position
            )
            if alarm is not None:
                self._goes_on(alarm, found, cause, point_ids)
                return alarm
        back = self._came_back(found, point_ids)
        if back is not None:
            return back
        values = self._values(found, state="suspect", cause=cause)
        number = store.insert_regression(
            self.c, arrival.project_id, arrival.testbed_id, arrival.default_branch_id, values, arrival.now
        )
        store.attach(self.c, number, point_ids, arrival.now)
        self.touched.add(number)
        self._event(number, "suspected", self._place_of(found), state="suspect")
        return number

    def _goes_on(self, alarm: int, found: Group, cause: Cause, point_ids: Sequence[int]) -> None:
        """More of what an alarm about a machine is about."""
        store.attach(self.c, alarm, point_ids, self.arrival.now)
        if store.reopen(self.c, alarm, self.arrival.now):
            detail = {"cause": cause.cause.value, "evidence": list(cause.evidence), **self._place_of(found)}
            self._event(alarm, "infra_alarm", detail, state="suspect")
        self.touched.add(alarm)

    def _came_back(self, found: Group, point_ids: Sequence[int]) -> int | None:
        """The regression that was fixed a moment ago and is there again, if this is one: it opens again."""
        arrival = self.arrival
        series = [int(member.series_id) for member in found.members]
        since = found.onset_position - COMES_BACK
        for row in store.fixed_lately(self.c, arrival.project_id, series, since):
            alike = row.lead_change is not None and 0.7 <= found.magnitude / row.lead_change <= 1.4
            if alike and store.reopen(self.c, row.id, arrival.now):
                store.attach(self.c, row.id, point_ids, arrival.now)
                self._event(row.id, "reopened", self._place_of(found), state="suspect")
                self.touched.add(row.id)
                return int(row.id)
        return None

    # --- how it stands

    def _settle(self, row: RegressionRow, members: Sequence[ChangePointRow], word: Word | None) -> None:
        """Bring a regression in line with its change points, and tell what changed."""
        gates = [point for point in members if point.role == Role.GATE.value]
        alive = [point for point in gates if point.state in LIVE]
        if not alive:
            self._close(row, gates, word)
            return
        if row.state not in OPEN_STATES:
            return
        confirmed = [point for point in alive if point.state == "confirmed"]
        # The testbed that was named stays the one that is named, for as long as it shows the change.
        here = [point for point in confirmed or alive if point.testbed_id == row.testbed_id]
        leading = [self._change(point) for point in here or confirmed or alive]
        found = Group(lead_of(leading), tuple(leading))
        cause = self._standing_cause(row, found, word, moved=sum(point.state in LIVE for point in members))
        state = row.state
        newly = row.state == "suspect" and bool(confirmed or (word is not None and not cause.suppress))
        if newly and not cause.suppress:
            state = "confirmed"
        taken_back = word is not None and cause.suppress and row.state == "confirmed"
        if taken_back:
            state = "suspect"
        values = self._said(row, self._values(found, state=state, cause=cause), word)
        moved = values.first_bad != row.first_bad_position
        if moved or (word is None and values.last_good != row.last_good_position):
            place = {"from": row.first_bad_position, **self._place_of(found), **self._named(values.first_bad)}
            self._event(row.id, "relocated", place, state=state)
        store.update_regression(self.c, row.id, self.arrival.default_branch_id, values, self.arrival.now)
        self._tell_state(row, found, cause, values, confirmed, newly=newly, taken_back=taken_back)

    def _standing_cause(self, row: RegressionRow, found: Group, word: Word | None, *, moved: int) -> Cause:
        """What a run of another testbed brought is no evidence here: what was found stays."""
        if word is None and row.cause is not None and row.testbed_id != self.arrival.testbed_id:
            name = CauseName(row.cause)
            return Cause(name, tuple(row.evidence), suppress=name is not CauseName.CODE)
        return self._cause(found, word, moved=moved)

    def _said(self, row: RegressionRow, values: RegressionValues, word: Word | None) -> RegressionValues:
        """Where it began: as the fleet judge says, else as its change points do."""
        if word is not None:
            good = word.range_start - 1
            return replace(values, first_bad=word.first_bad_position, last_good=good if good >= 0 else None)
        if values.cause == CauseName.HARDWARE and row.cause == CauseName.HARDWARE:
            # What shows it next is no other beginning.
            began = min(row.first_bad_position, values.first_bad)
            goods = {row.first_bad_position: row.last_good_position}
            return replace(values, first_bad=began, last_good=goods.get(began, values.last_good))
        return values

    def _tell_state(
        self,
        row: RegressionRow,
        found: Group,
        cause: Cause,
        values: RegressionValues,
        confirmed: Sequence[ChangePointRow],
        *,
        newly: bool,
        taken_back: bool,
    ) -> None:
        alarm = {"cause": cause.cause.value, "evidence": list(cause.evidence)}
        if taken_back:
            self._event(row.id, "infra_alarm", {**alarm, "taken_back": True}, state=values.state)
            store.count_alarms(self.c, [point.series_id for point in confirmed], withdrawn=1)
        elif newly and cause.suppress and not store.has_event(self.c, row.id, "infra_alarm"):
            self._event(row.id, "infra_alarm", alarm, state=values.state)
        elif newly and not cause.suppress:
            detail = {"cause": cause.cause.value, "change": found.magnitude, **self._place_of(found)}
            self._event(row.id, "confirmed", {**detail, **self._named(values.first_bad)}, state=values.state)
        told_now = [point.series_id for point in confirmed if point.series_id in self.newly_confirmed]
        if told_now and not cause.suppress:
            store.count_alarms(self.c, told_now, confirmed=1)

    def _close(self, row: RegressionRow, gates: Sequence[ChangePointRow], word: Word | None) -> None:
        """No series is worse any more: mended by a commit, never real, or part of another."""
        if not row.still_bad or self._comes_and_goes(row, gates):
            return
        ends = [point.fixed_position for point in gates if point.state == "fixed" and point.fixed_position is not None]
        fixed = max(ends, default=None)
        if fixed is not None and word is not None and word.closed_position is not None:
            fixed = word.closed_position
        state = row.state
        if state in OPEN_STATES:
            state = "withdrawn" if fixed is None else "fixed"
        if state == "withdrawn" and row.state != "suspect" and row.id not in self.merged:
            store.count_alarms(self.c, [point.series_id for point in gates], withdrawn=1)
        arrival = self.arrival
        store.close_regression(
            self.c, row.id, arrival.default_branch_id, state=state, fixed_position=fixed, now=arrival.now
        )
        detail: dict[str, Any] = {"run_id": arrival.run.id}
        if row.id in self.merged:
            detail["part_of"] = self.merged[row.id]
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

    def _cause(self, found: Group, word: Word | None, *, moved: int) -> Cause:
        """What the fleet judge says; of machines and software with what this series' own runs say of it."""
        said = None if word is None else cause_of(word)
        if said is not None and not said.suppress:
            return said
        own = self._own_cause(found, moved=moved)
        if said is None or (said.cause is CauseName.HARDWARE and found.counted):
            return own
        return replace(said, evidence=said.evidence + own.evidence) if own.cause is said.cause else said

    def _own_cause(self, found: Group, *, moved: int) -> Cause:
        lead = self.by_series.get(int(found.lead.series_id))
        return find_cause(
            self.c,
            self.arrival,
            found,
            noise=0.0 if lead is None else lead.noise,
            exact=found.counted,
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
        return {
            "run_id": self.arrival.run.id,
            **self._named(found.onset_position),
            "series": len(found.members),
        }

    def _named(self, position: int) -> dict[str, Any]:
        shas = store.shas_at(self.c, self.arrival.default_branch_id, [position])
        return {"position": position, "commit": shas.get(position)}

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
