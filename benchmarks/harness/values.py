"""One figure of one process, as a workload reports it that measures in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A metric's value in this process, with the samples behind it."""

    metric: str
    unit: str
    value: float
    samples: Sequence[float] = ()
    direction: str = "lower"
    role: str = "watch"
    exact: bool = False
    formula: str | None = None
