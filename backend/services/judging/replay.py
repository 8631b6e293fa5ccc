"""Judging points again: from which position, with which points, and how the result differs from the record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from sqlalchemy import Connection

from backend.regression.change_points import LIVE, ChangeEvent, KnownPoint, counts_as_regression
from backend.regression.confirmation import Decision as Outcome
from backend.regression.grouping import NEAR
from backend.regression.policy import Policy
from backend.regression.regression_state import DECIDED
from backend.regression.series.judge import judge_histories
from backend.regression.series.lifecycle import Confirmation, accept_change, apply_confirmation, dismiss_change
from backend.regression.series.state import Record, SeriesState
from backend.regression.terms import (
    ChangePoint,
    ChangeState,
    Judgement,
    PointLike,
    Reason,
    Verdict,
)
from backend.store.judging import points as series_points
from backend.store.judging.points import StoredPoint
from backend.store.judging.series import SeriesRow
from backend.store.regressions import points as point_store
from backend.store.regressions import regressions as regression_store

# When a series is judged again, so many points before the late one build up the state; the states of an older past
# differ too little to matter.
POINTS_BEFORE = 150


def not_judgeable(point: PointLike, policy: Policy) -> Judgement:
    value = median(point.values)
    return Judgement(
        position=point.position,
        commit=point.commit,
        verdict=Verdict.INSUFFICIENT,
        reason=Reason.TOO_FEW_RUNS,
        policy_version=policy.version,
        value=value,
        smoothed=value,
        smoothed_low=value,
        smoothed_high=value,
        numbers={"not_positive": 1.0},
    )


# --- the points


def points_to_replay(c: Connection, series_ids: Sequence[int], position: int) -> dict[int, list[StoredPoint]]:
    """For each series, the points from far enough before the position, and before anything still open in it, for a
    sound state there."""
    starts = dict.fromkeys(series_ids, position)
    for point in point_store.open_in_series(c, series_ids):
        starts[point.series_id] = min(starts[point.series_id], point.onset_position)
    stretches = {series_id: (start, series_points.NO_LIMIT) for series_id, start in starts.items()}
    return series_points.load_stretches(c, stretches, before=POINTS_BEFORE)


# --- the history


@dataclass(slots=True)
class Replay:
    """A series that is judged again: the parts of its points still to be judged, and the results so far.

    Of what lies before the first of the points, only false alarms are known: they still raise what the series requires.
    """

    series: SeriesRow
    policy: Policy
    decisions: Sequence[regression_store.DecisionRow]
    state: SeriesState
    parts: list[Sequence[StoredPoint]]
    """The next one last; no decision falls inside a part."""
    judged: list[tuple[StoredPoint, Judgement]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        series: SeriesRow,
        stored: Sequence[StoredPoint],
        policy: Policy,
        decisions: Iterable[regression_store.DecisionRow],
    ) -> Replay:
        mine = [decision for decision in decisions if decision.series_id == series.id]
        before = sum(decision.false_alarm for decision in mine if stored and decision.position < stored[0].position)
        state = replace(SeriesState.new(series.kind), record=Record(confirmed=before, disproved=before))
        parts = list(_up_to_each(stored, {decision.position for decision in mine}))
        return cls(series, policy, mine, state, parts[::-1])

    def take(self, said: Sequence[Judgement], state: SeriesState) -> None:
        """Take the verdicts on the points that can be judged, then the decisions at the end of their part."""
        part = self.parts.pop()
        found = {judgement.position: judgement for judgement in said}
        judgements = [found.get(point.position) or not_judgeable(point, self.policy) for point in part]
        for decision in self.decisions:
            if decision.position != part[-1].position:
                continue
            if decision.state in DECIDED:
                state = decide(state, decision.onset_position, decision.state)
                continue
            events, state = conclude(state, decision.onset_position, Outcome(decision.state), self.policy)
            judgements[-1] = replace(judgements[-1], events=(*judgements[-1].events, *events))
        self.state = state
        self.judged += zip(part, judgements, strict=True)


def replay(replays: Sequence[Replay]) -> None:
    """Judge the points of each series in order from nothing, all series side by side, with the decisions of people and
    sessions at the position where they were made."""
    while waiting := [each for each in replays if each.parts]:
        sound = [
            (each.state, [point for point in each.parts[-1] if each.series.can_judge(point)], each.policy)
            for each in waiting
        ]
        for each, (said, state) in zip(waiting, judge_histories(sound), strict=True):
            each.take(said, state)


def _up_to_each(stored: Sequence[StoredPoint], positions: Collection[int]) -> Iterator[Sequence[StoredPoint]]:
    """The points in parts, of which each but the last ends at one of these positions."""
    start = 0
    for end, point in enumerate(stored, 1):
        if point.position in positions or end == len(stored):
            yield stored[start:end]
            start = end


def decide(state: SeriesState, onset: int, decision: str) -> SeriesState:
    """A person's decision about the change that began at (about) this position."""
    nearest = _begun_near(state, onset)
    return accept_change(state, nearest) if decision == "expected" else dismiss_change(state, nearest)


def conclude(
    state: SeriesState, onset: int, outcome: Outcome, policy: Policy
) -> tuple[tuple[ChangePoint, ...], SeriesState]:
    """A confirming session's result for the change that began at (about) this position."""
    told = Confirmation(_begun_near(state, onset), outcome, 0.0, 0.0, 0.0)
    events, after = apply_confirmation(state, told, policy)
    return tuple(said_after(event, after) for event in events), after


def _begun_near(state: SeriesState, onset: int) -> int:
    begun = [opened.onset_position for opened in state.open_regressions]
    if state.suspect is not None:
        begun.append(state.suspect.onset)
    return min(begun, key=lambda position: abs(position - onset), default=onset)


def said_after(event: ChangePoint, state: SeriesState) -> ChangePoint:
    """An event that no run brought: it was seen after the newest point, and applies to it as well."""
    return replace(event, detected_position=state.last_position + 1)


def difference(series_id: int, known: Sequence[KnownPoint], judged: Sequence[Judgement]) -> list[ChangeEvent]:
    """What the new history of a series adds to the recorded change points: as events, because what was
    reported is not edited."""
    history = _history(judged)
    events = []

    def add(change: ChangePoint, noise: float) -> None:
        events.append(ChangeEvent(series_id=series_id, change=change, noise=noise))

    for point in sorted(known, key=lambda known_point: not known_point.is_live):
        onset = min(history, key=lambda position: _distance(point, position), default=None)
        if onset is None or _distance(point, onset) > NEAR:
            if point.is_live:
                add(replace(point.as_change_point(), state=ChangeState.WITHDRAWN), 0.0)
            continue
        if _is_shown_again(point, history[onset][0]):
            continue
        change, noise = history.pop(onset)
        if not point.is_live:
            continue
        if (onset, change.last_good_position) != (point.onset_position, point.last_good_position):
            add(replace(change, state=ChangeState.RELOCATED, previous_onset_position=point.onset_position), noise)
        if change.state.value != point.state:
            add(change, noise)
    for change, noise in history.values():
        if change.state in LIVE:
            add(change, noise)
    return events


def _is_shown_again(point: KnownPoint, event: ChangePoint) -> bool:
    """Whether what was withdrawn is found after all, as when a threshold is taken back. What a person decided stays."""
    withdrawn = point.state == ChangeState.WITHDRAWN and point.regression_state not in DECIDED
    return withdrawn and event.state is ChangeState.CONFIRMED


def _distance(point: KnownPoint, onset: int) -> int:
    """How far an onset is from the recorded one: not at all within the commits that nobody had measured then."""
    if point.last_good_position is not None and point.last_good_position < onset <= point.onset_position:
        return 0
    return abs(onset - point.onset_position)


def _history(judged: Sequence[Judgement]) -> dict[int, tuple[ChangePoint, float]]:
    """The last event of each change for the worse, by its onset, with the noise it was seen in."""
    history: dict[int, tuple[ChangePoint, float]] = {}
    for judgement in judged:
        for change in filter(counts_as_regression, judgement.events):
            if change.previous_onset_position is not None:
                history.pop(change.previous_onset_position, None)
            if change.state is not ChangeState.RELOCATED:
                history[change.onset_position] = (change, judgement.noise or 0.0)
    return history
