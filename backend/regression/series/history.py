"""Judges a whole history for its changes alone, without a judgement of every point.

The answer is the same as point by point, in a fraction of the time: the history is entered once, whatever the number of
policies, and each detector takes it in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.regression.detector.density import Floats, Ints
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Change
from backend.regression.policy import Policy
from backend.regression.series.judge import judge_all
from backend.regression.series.noisy import REPLICATED_RUNS, with_variance
from backend.regression.series.run_numbers import RunValues, as_stored, costs_of
from backend.regression.series.verdicts import events_of
from backend.regression.terms import ChangePoint, ChangeState, Direction, PointLike, SeriesKind

REPORTED_STATES = (ChangeState.CONFIRMED, ChangeState.FIXED)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The points of one series, as a detector of any policy is to see them: N runs."""

    kind: SeriesKind
    size: int
    points: Sequence[PointLike]
    """Left out where the rest says it all: they are many times as large."""
    costs: Floats
    """Log costs (N)."""
    places: Ints
    squares: Floats
    """Of the usual relative spread of processes, by each run (N)."""
    processes: Ints
    replicated_from: int
    """The first run by which that spread is known."""


def enter(points: Sequence[PointLike], kind: SeriesKind) -> History:
    """A history, to be replayed. Raises ValueError where a value has no relative change, or a point no values; where
    there are several workers, only `replay` does."""
    # Counters cost little; a worker that joins later is calibrated run by run.
    if kind.exact or len({point.worker for point in points}) > 1:
        nothing = np.empty(0)
        none = nothing.astype(np.int64)
        return History(kind, len(points), points, nothing, none, nothing, none, 0)
    return enter_columns(RunValues.of(points), kind)


def enter_columns(runs: RunValues, kind: SeriesKind) -> History:
    """The same of a series that is not exact, measured by one worker. Raises ValueError where a value has no relative
    change."""
    size = len(runs.places)
    costs, variances = costs_of(runs, np.full(size, 1.0 if kind.direction is Direction.LOWER else -1.0))
    squares, replicated_from = _spreads(runs.processes.tolist(), variances.tolist())
    return History(
        kind=kind,
        size=size,
        points=(),
        costs=as_stored(costs),
        places=runs.places,
        squares=np.array(squares),
        processes=runs.processes,
        replicated_from=replicated_from,
    )


def _spreads(processes: Sequence[int], variances: Sequence[float]) -> tuple[list[float], int]:
    """The usual spread of processes by each run, squared; and the first run by which it is known."""
    within, runs, replicated_from = 0.0, 0, len(processes)
    squares = []
    for number, (count, variance) in enumerate(zip(processes, variances, strict=True)):
        if count > 1:
            within, runs = with_variance(within, runs, variance)
            if runs == REPLICATED_RUNS:
                replicated_from = number
        squares.append(within * within)
    return squares, replicated_from


def replay(history: History, policy: Policy) -> list[ChangePoint]:
    """The change points that this policy would have reported in a history: the preview of a change of policy."""
    kind = history.kind
    if len(history.costs):
        events = [event for change in _changes(history, policy) for event in events_of(change, kind.direction)]
    else:
        events = [event for judgement in judge_all(history.points, kind, policy) for event in judgement.events]
    return [event for event in events if event.past_threshold and event.state in REPORTED_STATES]


def _changes(history: History, policy: Policy) -> list[Change]:
    detector = Detector(assumed_noise=policy.prior_noise)
    found: list[Change] = []
    young, known = slice(0, history.replicated_from), slice(history.replicated_from, None)
    for replicated, part in ((False, young), (True, known)):
        detector.replicated = replicated
        costs, places = history.costs[part], history.places[part]
        found += detector.feed(costs, places, policy, _noises(history, part, policy) if replicated else None)
    return found


def _noises(history: History, part: slice, policy: Policy) -> Floats:
    """The `assumed_noise` of each of these runs."""
    noises: Floats = np.sqrt(history.squares[part] / history.processes[part] + (0.5 * policy.prior_noise) ** 2)
    return noises
