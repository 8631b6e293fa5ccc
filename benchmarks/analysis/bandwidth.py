"""Collectives' arithmetic: algorithm and bus bandwidth, and the latency-bandwidth fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Operation(StrEnum):
    """The operations of `coll.*`."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"
    REDUCE = "reduce"
    ALL_TO_ALLV = "all_to_allv"


IN_PARTS = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL)
"""Their bytes are divided evenly, an equal part for every rank."""


def least_elements(operation: Operation, ranks: int) -> int:
    """Elements of the smallest message: where ranks have parts of it, one for each; uneven ones are 1, 2, … n."""
    if operation is Operation.ALL_TO_ALLV:
        return ranks * (ranks + 1) // 2
    return ranks if operation in IN_PARTS else 1


def sent_to(rank: int, other: int, ranks: int) -> int:
    """The share of an uneven exchange that one rank has for another: 1, 2, … n units, and alike in all received."""
    return 1 + (rank + other) % ranks


def bus_factor(operation: Operation, ranks: int) -> float:
    """busbw over algbw: what share of the bytes must cross the slowest link, whichever the algorithm.

    all_reduce moves every byte twice, 2(n−1)/n; gather, scatter and all-to-all (n−1)/n of the TOTAL bytes; broadcast,
    reduce and point-to-point all of them. Of an uneven exchange rank r keeps `sent_to(r, r)` of n(n+1)/2 units.
    """
    if ranks < 2:
        raise ValueError(f"a collective needs at least 2 ranks, not {ranks}")
    if operation is Operation.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    if operation in IN_PARTS:
        return (ranks - 1) / ranks
    if operation is Operation.ALL_TO_ALLV:
        # The rank that keeps least sends most, and the exchange lasts as long as it takes.
        kept = min(sent_to(rank, rank, ranks) for rank in range(ranks))
        return 1 - kept / least_elements(operation, ranks)
    return 1.0


def algorithm_gb_per_s(total_bytes: float, seconds: float) -> float:
    """S/t in decimal gigabytes; S is the total: all ranks' output of a gather, all ranks' input of a scatter."""
    return total_bytes / seconds / 1e9


def bus_gb_per_s(operation: Operation, ranks: int, total_bytes: float, seconds: float) -> float:
    """Comparable with the links' rate, whatever the number of ranks."""
    return algorithm_gb_per_s(total_bytes, seconds) * bus_factor(operation, ranks)


@dataclass(frozen=True, slots=True)
class LatencyFit:
    """t = alpha + S / bandwidth."""

    alpha_s: float
    bytes_per_s: float

    @property
    def half_bandwidth_bytes(self) -> float:
        """The size at which half of the bandwidth is reached: alpha × bandwidth."""
        return self.alpha_s * self.bytes_per_s


def fit_line(seconds_by_bytes: Mapping[float, float]) -> LatencyFit:
    """Least squares in relative terms, so that the small sizes fix alpha and the large ones the bandwidth."""
    points: Sequence[tuple[float, float]] = sorted(seconds_by_bytes.items())
    if len(points) < 2:
        raise ValueError(f"a line needs at least 2 sizes, not {len(points)}")
    # Each point weighs 1/t²: an error of a tenth counts the same at every size.
    weights = [1 / (t * t) for _, t in points]
    total = sum(weights)
    mean_s = sum(w * s for w, (s, _) in zip(weights, points, strict=True)) / total
    mean_t = sum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    above = sum(w * (s - mean_s) * (t - mean_t) for w, (s, t) in zip(weights, points, strict=True))
    below = sum(w * (s - mean_s) ** 2 for w, (s, _) in zip(weights, points, strict=True))
    slope = max(above / below, 1e-18)
    return LatencyFit(alpha_s=max(mean_t - slope * mean_s, 0.0), bytes_per_s=1 / slope)
