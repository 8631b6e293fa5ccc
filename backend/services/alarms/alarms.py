"""From change points to regressions: opened once for all series of one onset, confirmed, relocated, fixed, withdrawn.

What was announced is never edited: every step is a further event of the same regression. How one stands after the news
is found and told by `backend.services.alarms.reconcile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.grouping import NEAR, Group, SeriesChange, belongs, group, lead_of
from backend.regression.terms import ChangeDirection, ChangePoint, ChangeState, Role
from backend.services.alarms.coverage import LOOKS_BACK, covering
from backend.services.alarms.reconcile import LIVE, ONE_ALARM, OPEN_STATES, News, Standing
from backend.services.base.arrival import Arrival
from backend.store.joint import incidents as fleet_store
from backend.store.joint.incidents import Word
from backend.store.regressions import regressions as store
from backend.store.regressions.regressions import ChangePointRow

__all__ = ["News", "Told", "heed", "known_points", "tell"]

# Positions after its fix in which the same loss in the same series is the same regression, open again.
COMES_BACK = 20
SHOWS_IT = (ChangeState.SUSPECT, ChangeState.CONFIRMED)
# What a person said of a regression, or a new baseline that began by itself.
DECIDED = ("expected", "invalid")
# Of what the fleet judge tells, what says something of series that got worse.
HEEDED = ("regression", "infra", "environment")


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


class _Telling(Standing):
    """One run's news, or one word of the fleet judge, told step by step."""

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
        under = [point for point in undecided if (found := _word_of(point, words)) is not None and found.id == word.id]
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
            ends = point.series_id in word.series and point.onset_position < position and not _outlasts(point, position)
            if point.state in LIVE and ends:
                store.end_point(self.c, point.id, ChangeState.FIXED, position, self.arrival.now)

    # --- change points

    def _write_points(self, news: Sequence[News]) -> list[ChangePointRow]:
        """Bring the change points up to date; returns those for the worse that belong to no regression yet."""
        c, branch, now = self.c, self.arrival.default_branch_id, self.arrival.now
        points = store.points_of_series(c, self.by_series)
        book = {(p.series_id, p.onset_position): p for p in points if p.state in LIVE}
        book |= {place: point for place, point in self._ended_early(points).items() if place not in book}
        made: list[tuple[int, ChangePoint]] = []
        advanced: list[int] = []
        for item in news:
            event, series = item.event, item.series.id
            previous = event.onset_position if event.previous_onset_position is None else event.previous_onset_position
            known = book.get((series, previous)) if event.direction is ChangeDirection.REGRESSION else None
            if known is not None and known.state not in LIVE and event.state not in SHOWS_IT:
                continue  # over by the word of the fleet judge, whatever else its own series finds out
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
        ended = {point.id for point in book.values() if point.state not in LIVE}
        late = [p for p in store.open_points(c, self.by_series) if p.id in advanced]
        return [*fresh, *(p for p in late if p.regression_id is None or p.id in ended)]

    def _ended_early(self, points: Sequence[ChangePointRow]) -> dict[tuple[int, int], ChangePointRow]:
        """Change points that ended by the word of the fleet judge: their own series may still have to say of them."""
        fixed = [point for point in points if point.state == ChangeState.FIXED and point.regression_id is not None]
        words = fleet_store.words_of_regressions(self.c, {p.regression_id or 0 for p in fixed}) if fixed else {}
        return {
            (point.series_id, point.onset_position): point
            for point in fixed
            if (word := words.get(point.regression_id or 0)) and word.closed_position == point.fixed_position
        }

    # --- which regression

    def _attach(self, fresh: Sequence[ChangePointRow]) -> None:
        """Each fresh change point joins the regression of its onset, or founds one with others of the same onset."""
        if not fresh:
            return
        changes = {point.id: self._change(point) for point in self._heeded(fresh)}
        groups = self._open_groups()
        left = dict(changes)
        # What a counter shows is no machine's doing: it joins no alarm about one.
        counted = any(change.exact for change in changes.values())
        words = fleet_store.words_of_regressions(self.c, groups) if counted else {}
        alarms = {number for number, word in words.items() if word.cause == CauseName.HARDWARE}
        for point_id, change in changes.items():
            others = groups.keys() - (alarms if change.exact else set())
            near = [number for number in others if belongs(groups[number], change)]
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
            word = _word_of(point, words)
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
        if home is None and self._joins_closed(word, points):
            return
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

    def _joins_closed(self, word: Word, points: Sequence[ChangePointRow]) -> bool:
        """Where all series side by side have seen a change end, a series that shows it late is part of what is over; a
        series that shows it for longer after the end than before it opens it again."""
        row = store.lock_rows(self.c, [word.regression_id or 0]).get(word.regression_id or 0)
        end = word.closed_position
        if row is None or row.state != "fixed" or end is None:
            return False
        store.attach(self.c, row.id, [point.id for point in points], self.arrival.now)
        for point in points:
            if not _outlasts(point, end):
                store.end_point(self.c, point.id, ChangeState.FIXED, end, self.arrival.now)
        lasting = [self._change(point) for point in points if _outlasts(point, end)]
        if lasting and store.reopen(self.c, row.id, self.arrival.now):
            self._event(row.id, "reopened", self._place_of(Group(lead_of(lasting), tuple(lasting))), state="suspect")
        self.touched.add(row.id)
        return True

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


def _is_alarm(event: ChangePoint) -> bool:
    return event.direction is ChangeDirection.REGRESSION and event.past_gate


def _outlasts(point: ChangePointRow, end: int) -> bool:
    """Whether its series shows a change for longer after its end than before it."""
    return point.detected_position - end > end - point.onset_position


def _word_of(point: ChangePointRow, words: Sequence[Word]) -> Word | None:
    """The word that a change point falls under. What a counter shows is no machine's doing."""
    said = [word for word in words if not (point.exact and word.cause == CauseName.HARDWARE)]
    return covering(said, point.series_id, point.onset_position)
