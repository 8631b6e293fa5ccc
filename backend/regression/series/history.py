"""What a policy would have told of a whole history: the changes alone, without a judgement of every point.

The answer is the same as point by point, in a fraction of the time, because the detector takes a history in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from backend.regression.cost import log_cost, typical
from backend.regression.detector.density import Floats
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Change
from backend.regression.policy import Policy
from backend.regression.series.judge import judge_all
from backend.regression.series.noisy import REPLICATED_RUNS, assumed_noise, learn_within
from backend.regression.series.verdicts import events_of
from backend.regression.terms import ChangePoint, ChangeState, Point, SeriesKind

TOLD = (ChangeState.CONFIRMED, ChangeState.FIXED)


def replay(points: Iterable[Point], kind: SeriesKind, policy: Policy) -> list[ChangePoint]:
    """The change points that this policy would have told of a history: the preview of a change of policy."""
    known = list(points)
    if kind.exact or len({point.worker for point in known}) > 1:
        # Counters cost little; a worker that joins later is calibrated run by run.
        events = [event for judgement in judge_all(known, kind, policy) for event in judgement.events]
    else:
        events = [event for change in _changes(known, kind, policy) for event in events_of(change, kind.direction)]
    return [event for event in events if event.past_gate and event.state in TOLD]


def _changes(points: Sequence[Point], kind: SeriesKind, policy: Policy) -> list[Change]:
    costs, noises, replicated_from = _as_entered(points, kind, policy)
    places = np.array([point.position for point in points], dtype=np.int64)
    detector = Detector()
    found: list[Change] = []
    for replicated, part in ((False, slice(0, replicated_from)), (True, slice(replicated_from, None))):
        detector.replicated = replicated
        found += detector.feed(costs[part], places[part], policy, noises[part])
    return found


def _as_entered(points: Sequence[Point], kind: SeriesKind, policy: Policy) -> tuple[Floats, Floats, int]:
    """Log costs, the noise assumed at each run, and the first run at which the spread of processes is known."""
    costs, noises = [], []
    within, runs, replicated_from = 0.0, 0, len(points)
    for number, point in enumerate(points):
        raw = [log_cost(value, kind.direction) for value in point.values]
        within, runs = learn_within(within, runs, raw)
        if runs >= REPLICATED_RUNS:
            replicated_from = min(replicated_from, number)
        costs.append(typical(raw))
        noises.append(assumed_noise(within, runs, len(raw), policy))
    return np.array(costs).astype(np.float32).astype(np.float64), np.array(noises), replicated_from
