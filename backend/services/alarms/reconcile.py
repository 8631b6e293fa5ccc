"""How a regression stands: brought in line with its change points and its cause, and every step told as an event.

The cause is asked before anyone is told; a change that is the machine's doing stays a suspect of that cause and never
becomes a red cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from sqlalchemy import Connection

from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.grouping import Group, SeriesChange, lead_of
from backend.regression.terms import ChangePoint, Role
from backend.services.alarms.causes import find_cause
from backend.services.alarms.coverage import cause_of
from backend.services.base import live
from backend.services.base.arrival import Arrival
from backend.services.sessions import request as confirm
from backend.store.joint import incidents as fleet_store
from backend.store.joint.incidents import Word
from backend.store.judging.series import SeriesRow
from backend.store.regressions import regressions as store
from backend.store.regressions.regressions import ChangePointRow, RegressionRow, RegressionValues

LIVE = ("suspect", "confirmed")
# Positions after which a machine that was ill is a new alarm.
ONE_ALARM = 30
# States that new evidence may change; the others were decided by a person or are over.
OPEN_STATES = ("suspect", "confirmed", "acknowledged")
TOLD = ("confirmed", "acknowledged")


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A change point event in a series, fresh from the judge."""

    series: SeriesRow
    event: ChangePoint
    noise: float


class Standing:
    """The regressions that one run's news, or one word of the fleet judge, has touched."""

    def __init__(self, c: Connection, arrival: Arrival, by_series: Mapping[int, News], watched: int) -> None:
        self.c = c
        self.arrival = arrival
        self.by_series = by_series
        self.watched = watched
        self.touched: set[int] = set()
        self.newly_confirmed: set[int] = set()
        self.merged: dict[int, int] = {}
        """Regressions whose change points have become part of another."""

    def _settle_all(self) -> None:
        words = fleet_store.words_of_regressions(self.c, self.touched) if self.touched else {}
        for regression_id, row in store.lock_rows(self.c, self.touched).items():
            self._settle(row, store.points_of(self.c, [regression_id]), words.get(regression_id))
        confirm.follow(self.c, sorted(self.touched), self.arrival.now)

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
        if fixed is None and self._is_held(row, word):
            return
        if word is not None and word.closed_position is not None and (fixed is not None or row.state in TOLD):
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

    def _is_held(self, row: RegressionRow, word: Word | None) -> bool:
        """What was told stays while all series side by side show it: its change points may have become those of
        something else that happened since."""
        if word is None or row.state not in TOLD or row.id in self.merged:
            return False
        return word.cause == CauseName.CODE and word.closed_position is None

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
