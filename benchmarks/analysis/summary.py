"""Statistics of repetitions: process values, spread, bimodality, and the smallest change the repeats could show.

Processes are what statistics compare: samples of one process share its memory layout and its minute, and are
correlated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median

ALPHA = 0.001
POWER = 0.95
Z = NormalDist().inv_cdf(1 - ALPHA / 2) + NormalDist().inv_cdf(POWER)
MAX_SAMPLES_KEPT = 1000


def robust_sd(values: Sequence[float]) -> float:
    """Standard deviation by the median absolute deviation: one straggler does not inflate it."""
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Spread as a fraction of the mean, or None where two values are not at hand."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    if mean == 0:
        return None
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) / abs(mean)


def repeats_needed(spread: float, change: float) -> int:
    """Processes a side needed to see `change` when process values scatter by `spread` (both fractions).

    At least two.
    """
    if change <= 0:
        raise ValueError(f"a change to detect must be positive, not {change}")
    return max(2, math.ceil(2 * (Z * spread / change) ** 2))


def minimum_detectable_change(spread: float, processes: int) -> float:
    """The smallest change that this many processes a side would show, given the spread of process values."""
    return Z * spread * math.sqrt(2 / max(processes, 1))


def is_bimodal(values: Sequence[float]) -> bool:
    """Whether the samples sit in two clumps (clock states, two code paths): the widest gap splits them cleanly.

    Both clumps must hold a tenth of the samples, and the gap must exceed four times the spread inside the clumps and
    one percent of the level. The flag is reported beside the value; no sample is ever dropped for it.
    """
    ordered = sorted(values)
    if len(ordered) < 20:
        return False
    least = max(2, len(ordered) // 10)
    gap, at = max((ordered[i] - ordered[i - 1], i) for i in range(least, len(ordered) - least + 1))
    inside = max(robust_sd(ordered[:at]), robust_sd(ordered[at:]))
    return gap > 4 * inside and gap > 0.01 * abs(ordered[at])


def as_told(sample: float) -> float:
    """A sample with the seven digits that a clock has. GPU events are 32-bit floats with a resolution of half a
    microsecond; further digits are left over from a division. Integers were counted, and stay."""
    return sample if float(sample).is_integer() else float(f"{sample:.7g}")


def thin(samples: Sequence[float], limit: int = MAX_SAMPLES_KEPT) -> list[float]:
    """At most `limit` samples, evenly spaced over the run so that its course stays visible."""
    if len(samples) <= limit:
        return list(samples)
    return [samples[i * len(samples) // limit] for i in range(limit)]
