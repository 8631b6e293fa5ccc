"""Which commit of a long range to measure next: evenly spread at first, then where a change must lie between two that
were measured, then evenly again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

EVEN_SHARE = 3
"""One in so many of the wanted runs is spread evenly before any are spent on changes."""
LEAST_EVEN = 5


def next_position(
    eligible: Sequence[int], taken: Collection[int], changed: Collection[tuple[int, int]], asked: int, wanted: int
) -> tuple[int, str] | None:
    """The next position and why (`thin` or `refine`); None if nothing is left.

    `eligible` are the positions that may be measured, in order; `taken` those that are measured or requested, within
    the range or beside it; `changed` pairs of neighbours in `taken` between which the level differs; `asked` how many
    of the `wanted` runs have been requested.
    """
    free = [position for position in eligible if position not in set(taken)]
    if not free or asked >= wanted:
        return None
    if asked >= min(wanted, max(LEAST_EVEN, wanted // EVEN_SHARE)):
        for low, high in sorted(changed, key=_width, reverse=True):
            between = [position for position in free if low < position < high]
            if between:
                return min(between, key=_nearest_to((low + high) / 2)), "refine"
    return _farthest(free, sorted(taken)), "thin"


def _nearest_to(middle: float) -> Callable[[int], float]:
    return lambda position: abs(position - middle)


def _width(pair: tuple[int, int]) -> int:
    return pair[1] - pair[0]


def _farthest(free: Sequence[int], taken: Sequence[int]) -> int:
    """The free position farthest from every taken one: first the newest, then the oldest, then the middles."""
    if not taken:
        return free[-1]
    return max(free, key=lambda position: (min(abs(position - other) for other in taken), position))


def changed_between(levels: Sequence[tuple[int, float]], threshold: float) -> list[tuple[int, int]]:
    """Neighbours whose levels (logarithms) differ by more than the threshold and that have commits between them."""
    ordered = sorted(levels)
    return [
        (low, high)
        for (low, before), (high, after) in pairwise(ordered)
        if high - low > 1 and abs(after - before) > threshold
    ]
