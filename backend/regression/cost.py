"""Cost: the one scale on which every change is measured. Cost is the value where lower is better, else 1/value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from backend.regression.terms import Direction


def log_cost(value: float, direction: Direction) -> float:
    """Natural logarithm of the cost; differences of it are relative changes."""
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"value {value!r} has no relative change: positive finite numbers are judged")
    return math.log(value) if direction is Direction.LOWER else -math.log(value)


def log_costs(values: Sequence[float], direction: Direction) -> list[float]:
    """The same of each value."""
    if not (min(values) > 0 and math.isfinite(sum(values))):
        return [log_cost(value, direction) for value in values]
    logs = list(map(math.log, values))
    return logs if direction is Direction.LOWER else [-log for log in logs]


def value_of(log: float, direction: Direction) -> float:
    """The metric's value at a log cost."""
    return math.exp(log) if direction is Direction.LOWER else math.exp(-log)


def added(values: Sequence[float]) -> float:
    """Their sum, one after the other, as numpy accumulates: from Python 3.12 on `sum` makes up for what is rounded, and
    its last bit is another."""
    total = 0.0
    for value in values:
        total += value
    return total


def typical(values: Sequence[float]) -> float:
    """Mean of the middle half of the process values, so that one odd process is not heard."""
    n = len(values)
    if n < 3:
        return added(values) / n
    cut = n // 4 or 1
    kept = sorted(values)[cut : n - cut]
    return added(kept) / len(kept)
