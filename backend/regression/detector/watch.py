"""One run each of many series at once: the detectors that it leaves quiet are moved on together, as columns of numbers.

Nothing is decided here. A run is quiet when it brings no CUSUM to the limit of a close look, no drift, no refit, and
nothing that may be a step in plain sight; any other is left to `Detector.feed`, which does for a single quiet run
exactly what is done here for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend.regression.detector.close_look import drifted
from backend.regression.detector.density import CELLS_PER_SD, REACH, Floats, Ints
from backend.regression.detector.detector import BOTH_WAYS, DRIFT_EVERY, Detector
from backend.regression.detector.memory import NOTICE
from backend.regression.detector.plain_sight import in_plain_sight_each
from backend.regression.policy import Policy

Fed = tuple[Detector, float, int, Policy]
"""A detector, its next run, the run's place, and the policy."""

MOST_BEYOND_MEMORY = 39
"""So many runs more than the policy remembers are kept until the oldest are dropped."""
_WIDTH = 2 * REACH + 1


def feed_quiet(runs: Sequence[Fed]) -> list[bool]:
    """Feed each detector its run where that is quiet (True); the others (False) are as they were."""
    fed = [False] * len(runs)
    may = [number for number, run in enumerate(runs) if _only_watched(*run)]
    if not may:
        return fed
    sums, high = _cusums([runs[number] for number in may])
    lengths = np.array([[len(runs[number][0].segment) + 1] for number in may])
    started = np.where(sums == 0, lengths, np.stack([runs[number][0].started for number in may]))
    new_x, new_places = np.array([run[1] for run in runs]), np.array([run[2] for run in runs])
    histories = [np.concatenate((runs[number][0].segment, new_x[number : number + 1])) for number in may]
    plain = in_plain_sight_each(histories, [runs[number][3] for number in may])
    for row, number in enumerate(may):
        (detector, _, _, policy), history = runs[number], histories[row]
        if high[row] or plain[row]:
            continue
        where = np.concatenate((detector.places, new_places[number : number + 1]))
        if len(history) % DRIFT_EVERY == 0 and detector.opened:
            continue
        if len(history) % DRIFT_EVERY == 0 and drifted(detector, history, where, policy) is not None:
            continue
        detector.started = started[row]
        detector.cusum = sums[row]
        detector.segment, detector.places = history, where
        detector.notice = NOTICE
        fed[number] = True
    return fed


def _only_watched(detector: Detector, x: float, place: int, policy: Policy) -> bool:
    """Whether nothing but the CUSUMs can take notice of one more run."""
    n = len(detector.segment) + 1
    return detector.settled(policy) and n < detector.next_fit and n - policy.memory_runs <= MOST_BEYOND_MEMORY


def _cusums(runs: Sequence[Fed]) -> tuple[Ints, list[bool]]:
    """The CUSUMs of each detector (a row) after its run, and whether any is high or the run is beyond all measure."""
    models = [detector.model for detector, *_ in runs]
    level: Floats = np.array([model.level for model in models if model is not None])
    cells_per_log: Floats = CELLS_PER_SD / np.array([model.scale for model in models if model is not None])
    density = np.concatenate([model.density for model in models if model is not None])
    x = np.array([x for _, x, *_ in runs])
    cell = np.rint((x - level) * cells_per_log).astype(np.int64)
    beyond = np.abs(cell) > REACH
    shift = np.rint(BOTH_WAYS.T * cells_per_log[:, None]).astype(np.int64)
    row = (np.arange(len(runs)) * _WIDTH + REACH)[:, None]
    plain = np.maximum(np.minimum(cell, REACH), -REACH)[:, None]
    moved = np.maximum(np.minimum(cell[:, None] - shift, REACH), -REACH)
    gain = density.take(row + moved) - density.take(row + plain)
    sums: Ints = np.maximum(np.stack([detector.cusum for detector, *_ in runs]) + gain, 0)
    high = (sums.max(axis=1) >= NOTICE) | beyond
    return sums, high.tolist()
