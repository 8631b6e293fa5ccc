"""What a policy would have told of a whole history: the changes alone, without a judgement of every point.

The answer is the same as point by point, in a fraction of the time: the history is entered once, whatever the number of
policies, and each detector takes it in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.regression.cost import log_costs, typical
from backend.regression.detector.density import Floats, Ints
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Change
from backend.regression.policy import Policy
from backend.regression.series.judge import judge_all
from backend.regression.series.noisy import REPLICATED_RUNS, assumed_noise, learn_within
from backend.regression.series.verdicts import events_of
from backend.regression.terms import ChangePoint, ChangeState, Point, SeriesKind

TOLD = (ChangeState.CONFIRMED, ChangeState.FIXED)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The points of one series, as a detector of any policy is to see them."""

    points: Sequence[Point]
    kind: SeriesKind
    costs: Floats
    """Log costs; none where the series is judged point by point."""
    places: Ints
    spreads: Sequence[tuple[float, int, int]]
    """Of the processes of each run: what was usual by then, in how many runs; and their number."""


def enter(points: Sequence[Point], kind: SeriesKind) -> History:
    """A history, to be replayed; raises ValueError where a value has no relative change."""
    costs: list[float] = []
    spreads: list[tuple[float, int, int]] = []
    # Counters cost little; a worker that joins later is calibrated run by run.
    if not kind.exact and len({point.worker for point in points}) == 1:
        within, runs = 0.0, 0
        for point in points:
            raw = log_costs(point.values, kind.direction)
            within, runs = learn_within(within, runs, raw)
            costs.append(typical(raw))
            spreads.append((within, runs, len(raw)))
    places = np.array([point.position for point in points], dtype=np.int64)
    return History(points, kind, np.array(costs).astype(np.float32).astype(np.float64), places, spreads)


def replay(history: History, policy: Policy) -> list[ChangePoint]:
    """The change points that this policy would have told of a history: the preview of a change of policy."""
    kind = history.kind
    if len(history.costs):
        events = [event for change in _changes(history, policy) for event in events_of(change, kind.direction)]
    else:
        events = [event for judgement in judge_all(history.points, kind, policy) for event in judgement.events]
    return [event for event in events if event.past_gate and event.state in TOLD]


def _changes(history: History, policy: Policy) -> list[Change]:
    noises = np.array([assumed_noise(within, runs, count, policy) for within, runs, count in history.spreads])
    known = (runs >= REPLICATED_RUNS for _, runs, _ in history.spreads)
    replicated_from = next((number for number, is_known in enumerate(known) if is_known), len(noises))
    detector = Detector()
    found: list[Change] = []
    for replicated, part in ((False, slice(0, replicated_from)), (True, slice(replicated_from, None))):
        detector.replicated = replicated
        found += detector.feed(history.costs[part], history.places[part], policy, noises[part])
    return found
