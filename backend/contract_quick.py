"""The short way through the contract for what nearly every measurement is: one that nothing is wrong with.

Most of a document is measurements. Here one is read in a few whole looks; where anything at all is unusual, the answer
is None and the contract's own rules read it, and say what is wrong. They decide; nothing is accepted here that they
would refuse. Standard library only, like the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any, Final

USUAL: Final = frozenset({"metric", "unit", "direction", "role", "value", "processes", "samples"})
FLOAT: Final = {float}
LIST: Final = {list}
REMEMBERED: Final = 4096

Head = tuple[str, str, Any, Any]
"""Metric, unit, direction and role, as the rules read them."""


class Heads:
    """Metric, unit, direction and role that the rules have found sound: a suite says the same few in every run."""

    def __init__(self, read: Callable[[Mapping[str, Any]], Head | None]) -> None:
        self._read = read
        self._known: dict[tuple[Any, ...], Head] = {}

    def of(self, value: Mapping[str, Any]) -> Head | None:
        """None where the rules refuse one of them, or where it cannot be looked up."""
        key = value.get("metric"), value.get("unit"), value.get("direction"), value.get("role")
        try:
            known = self._known.get(key)
        except TypeError:  # a list where a name should be
            return None
        if known is None:
            known = self._read(value)
            if known is not None:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[key] = known
        return known


def positive(numbers: Any, least: float, most: float) -> bool:
    """Whether this is a list of fractions, one or more, all within these sizes."""
    return (
        type(numbers) is list
        and set(map(type, numbers)) == FLOAT
        and sum(numbers) < inf  # NaN is not
        and min(numbers) >= least
        and max(numbers) <= most
    )


def sampled(samples: Any, processes: int, most: int) -> bool:
    """Whether these are lists of finite fractions of 0 or more, at most one list a process."""
    if type(samples) is not list or not 0 < len(samples) <= processes or set(map(type, samples)) != LIST:
        return False
    numbers = list(chain.from_iterable(samples))
    return (
        set(map(type, numbers)) == FLOAT
        and sum(numbers) < inf
        and min(numbers) >= 0.0
        and (len(numbers) <= most or max(map(len, samples)) <= most)
    )


def middle(numbers: Sequence[float]) -> float:
    """The median."""
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
