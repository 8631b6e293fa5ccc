"""The judge: the verdicts on new points of series, and the state to keep for the next ones.

A pure function of the stored states, the points and the policies. One point of one series, one of each of many, whole
histories: all are judged by the same steps, so their results agree.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from backend.regression.detector.watch import Watched, feed_quiet
from backend.regression.policy import Policy
from backend.regression.series import verdicts
from backend.regression.series.noisy import NoisySeries, check_order
from backend.regression.series.run_numbers import numbers_of_each
from backend.regression.series.state import SeriesState
from backend.regression.terms import Judgement, PointLike, SeriesKind

FEW_RUNS = 3
"""Up to this many runs it is cheaper to watch them one by one than in columns."""

Judged = tuple[list[Judgement], SeriesState]
"""The verdicts on the points of a series, and the state to store."""


def judge(state: SeriesState, point: PointLike, policy: Policy) -> tuple[Judgement, SeriesState]:
    """Judge one new point; the state returned is the one to store."""
    ((judged, after),) = judge_histories([(state, (point,), policy)])
    return judged[0], after


def judge_many(items: Sequence[tuple[SeriesState, PointLike, Policy]]) -> list[tuple[Judgement, SeriesState]]:
    """Judge one new point for each of many series."""
    judged = judge_histories([(state, (point,), policy) for state, point, policy in items])
    return [(said[0], after) for said, after in judged]


def judge_history(
    points: Iterable[PointLike], kind: SeriesKind, policy: Policy, state: SeriesState | None = None
) -> Judged:
    """Judge points in order, from a state or from none: used to judge a series again when a point arrived late."""
    (judged,) = judge_histories([(state or SeriesState.new(kind), tuple(points), policy)])
    return judged


def judge_all(points: Iterable[PointLike], kind: SeriesKind, policy: Policy) -> list[Judgement]:
    """Every judgement of a history."""
    return judge_history(points, kind, policy)[0]


def judge_histories(items: Sequence[tuple[SeriesState, Sequence[PointLike], Policy]]) -> list[Judged]:
    """Judge further points, in order, for each of many series; raises ValueError if one has no values, or none
    with a relative change, or does not come after those judged before."""
    noisy = _noisy_series(items)
    _judge_side_by_side(list(noisy.values()))
    return [
        _judge_counter(*item) if (series := noisy.get(number)) is None else (series.judgements, series.state())
        for number, item in enumerate(items)
    ]


def _noisy_series(items: Sequence[tuple[SeriesState, Sequence[PointLike], Policy]]) -> dict[int, NoisySeries]:
    """Those of these series that are no counters, by their place, with the numbers of their runs."""
    of_noise = [(number, item) for number, item in enumerate(items) if not item[0].kind.exact]
    numbers = numbers_of_each([(points, state.kind.direction) for _, (state, points, _) in of_noise])
    return {
        place: NoisySeries(state, points, mine, policy)
        for (place, (state, points, policy)), mine in zip(of_noise, numbers, strict=True)
    }


def _judge_side_by_side(waiting: Sequence[NoisySeries]) -> None:
    """Quiet runs of all series are watched together, each of the others by itself."""
    while waiting := [series for series in waiting if not series.is_through]:
        offers = [(series, offer) for series in waiting if (offer := _offered(series)) is not None]
        runs = sum(len(x) for _, (_, x, _, _) in offers)
        if runs <= FEW_RUNS:
            for series, _ in offers:
                series.step()
            continue
        quiet = feed_quiet([offer for _, offer in offers])
        for (series, (_, x, _, _)), taken in zip(offers, quiet, strict=True):
            series.take(taken)
            if taken < len(x):
                series.step()


def _offered(series: NoisySeries) -> Watched | None:
    """The next runs of a series to watch, past all that cannot be judged; None where it is through."""
    while not series.is_through:
        offer = series.offer()
        if offer is not None:
            return offer
        series.step()
    return None


# ---- exact counters


def _judge_counter(state: SeriesState, points: Sequence[PointLike], policy: Policy) -> Judged:
    judged = []
    for point in points:
        check_order(point, state.last_position)
        if not point.values:
            raise ValueError(f"point at position {point.position} has no values")
        judgement, state = _judge_exact(state, point, policy)
        judged.append(judgement)
    return judged, state


def _judge_exact(state: SeriesState, point: PointLike, policy: Policy) -> tuple[Judgement, SeriesState]:
    value = statistics.median_low(point.values)
    counter, change = state.counter.take(value, point.position, state.kind.direction, policy)
    judgement = verdicts.of_counter(state.kind, point, value, counter, change, policy)
    record = state.record
    if change is not None:
        record = replace(
            record,
            confirmed=record.confirmed + (change.past_threshold and change.change > 0),
            fixed=record.fixed + len(change.fixed),
            improvements=record.improvements + (change.past_threshold and change.change < 0),
        )
    after = replace(state, last_position=point.position, points=state.points + 1, counter=counter, record=record)
    return judgement, after
