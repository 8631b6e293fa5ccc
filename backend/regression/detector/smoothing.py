"""The smoothed value of each point: the level as a chart draws it. Causal, robust, and restarted at change points.

An average whose weight for a new run falls from 1 to `GAIN` as runs are added, and which hears at most `CLIP` standard
deviations of any run: a spike moves it by less than half a standard deviation, and never for long.
"""

from __future__ import annotations

import math

from backend.records import record
from backend.regression.detector.density import Floats, middle

GAIN = 0.15
CLIP = 2.0
SETTLED_SHARE = GAIN / (2 - GAIN)
"""What is left of a run's variance once many runs have been added."""
SETTLED_ERROR = math.sqrt(SETTLED_SHARE)
SETTLED_RUNS = math.ceil(1 / SETTLED_SHARE)
"""From so many runs on nothing more is left."""


@record()
class Smooth:
    """The smoothed log cost and the number of runs in it."""

    level: float = 0.0
    runs: int = 0

    def take(self, x: float, noise: float) -> Smooth:
        """The smooth after one more run."""
        if self.runs == 0:
            return Smooth(x, 1)
        gain = max(GAIN, 1 / (self.runs + 1))
        step = max(-CLIP * noise, min(CLIP * noise, x - self.level))
        return Smooth(self.level + gain * step, self.runs + 1)

    def half_width(self, noise: float) -> float:
        """Half the width of a 95 % band of the level."""
        if self.runs >= SETTLED_RUNS:
            return 1.96 * noise * SETTLED_ERROR
        return 1.96 * noise * math.sqrt(max(SETTLED_SHARE, 1 / max(1, self.runs)))


def restart(runs: Floats, noise: float) -> Smooth:
    """The smooth of a new level, of which these runs are known."""
    smooth = Smooth(middle(runs[:3]), min(3, len(runs)))
    for x in runs[3:]:
        smooth = smooth.take(float(x), noise)
    return smooth
