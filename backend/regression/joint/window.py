"""The runs around one onset, all series jointly: one worker or all, how many series, a healthy machine or not.

The same levels, residuals and signals as the joint detector has, for a caller that asks about one onset only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from backend.regression.joint.health import ENOUGH, CanaryNoise, Health
from backend.regression.joint.rows import CALIBRATION, RowsOfTestbed
from backend.regression.joint.scan import channels, share_of
from backend.regression.joint.state import MOVED
from backend.regression.joint.terms import Bools, Floats, Ints, JointRun, JointSeries

CLEAR = 3.0
"""Standard errors from which a series counts as moved."""
INFORMATION = 8.0
"""Below it other workers cannot tell whether they show a change."""
RECENT = 12
"""Newest runs before an onset from which no level is learnt, where there are older ones."""
SHOWN = 0.5
"""Share of a change from which a run shows it."""


@dataclass(frozen=True, slots=True)
class WindowEvidence:
    """Evidence from the runs around an onset, over all series."""

    worker: str
    """The worker that showed the change first."""
    moved: int
    watched: int
    """Series that a machine can move: those that moved on this worker, and all."""
    others_agree: bool | None
    """Whether other workers show it too; None: none of them ran these commits, or they are too noisy to say."""
    signals: tuple[str, ...]
    """Of an ill machine, in words; empty where they are no proof."""


def examine_window(
    series: Sequence[JointSeries], before: Sequence[JointRun], after: Sequence[JointRun], lead: int
) -> WindowEvidence | None:
    """Compare the runs since an onset with those before it; None where too few runs came before."""
    rows = RowsOfTestbed("", series)
    settled = _settled(before)
    for run in before[:settled]:
        rows.add(run, 0)
    for w in range(len(rows.workers)):
        rows.learn_level(w, young=0)
    rows.learn_noise(young=0)
    known = {name for name, ready in zip(rows.workers, rows.ready, strict=True) if ready}
    recent = [run for run in (*before[settled:], *after) if run.worker in known]
    onset = sum(run.worker in known for run in before[settled:])
    if onset == len(recent):
        return None
    numbers = np.array([rows.add(run, 0) for run in recent], dtype=np.int64)
    first = _first_to_show(rows, numbers[onset:], lead)
    since = numbers[onset:]
    change, error = rows.mean(since[rows.worker[since] == first])
    threshold = np.array([s.min_change for s in series])
    moved = (np.abs(change) >= MOVED * threshold) & (np.abs(change) >= CLEAR * error)
    moved &= np.sign(change) == np.sign(change[lead])
    pattern = np.where(moved, change, 0.0)
    pattern[lead] = change[lead]
    picked = channels(pattern, rows.sigma**2, _benchmarks(series))
    share, information = share_of(rows.tail(numbers), pattern, picked)
    own = rows.worker[numbers] == first
    others = ~own & (np.arange(len(numbers)) >= _began(own, share, onset))
    bound = np.array([s.machine_bound for s in series])
    worker = rows.workers[first]
    return WindowEvidence(
        worker,
        int((moved & bound).sum()),
        int(bound.sum()),
        _agree(share[others], information[others]),
        _symptoms(before, recent[onset:], worker),
    )


def _settled(before: Sequence[JointRun]) -> int:
    """How many of the runs before an onset make the levels: not the newest, which may be the beginning already."""
    early = before[: len(before) - RECENT] if len(before) > RECENT else before[:0]
    runs_of = Counter(run.worker for run in early)
    enough = bool(runs_of) and all(runs_of[run.worker] >= CALIBRATION for run in before)
    return len(early) if enough else len(before)


def _began(own: Bools, share: Floats, onset: int) -> int:
    """The first of the worker's runs in a row that show the change, which may lie before the onset."""
    began = onset
    for number in np.flatnonzero(own)[::-1]:
        if number < onset and share[number] <= SHOWN:
            break
        began = min(began, int(number))
    return began


def _benchmarks(series: Sequence[JointSeries]) -> Ints:
    names = list(dict.fromkeys(s.benchmark for s in series))
    return np.array([names.index(s.benchmark) for s in series], dtype=np.int64)


def _first_to_show(rows: RowsOfTestbed, numbers: Ints, lead: int) -> int:
    """The worker of the first run that has the change, in the series that leads."""
    residual = rows.tail(numbers).residual[:, lead]
    most = float(residual[np.argmax(np.abs(residual))])
    showing = residual * np.sign(most) > SHOWN * abs(most)
    return int(rows.worker[numbers[int(np.argmax(showing))]])


def _agree(share: Floats, information: Floats) -> bool | None:
    """Whether the runs of other workers show the change."""
    total = float(information.sum())
    return float((share * information).sum()) / total > SHOWN if total >= INFORMATION else None


def _symptoms(before: Sequence[JointRun], since: Sequence[JointRun], worker: str) -> tuple[str, ...]:
    """Health signals of this worker since the onset, where one run or two in a row are proof enough."""
    noise = CanaryNoise()
    health: dict[str, Health] = {}
    for run in before:
        health.setdefault(run.worker, Health(noise)).learn(run)
    found = [health[worker].examine(run, 0.0) for run in since if run.worker == worker]
    points = [signals.points for signals in found]
    proof = any(p >= ENOUGH for p in points) or any(a >= 1 and b >= 1 for a, b in pairwise(points))
    if not proof:
        return ()
    return max(found, key=lambda signals: signals.points).sentences
