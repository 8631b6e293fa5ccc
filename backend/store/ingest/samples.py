"""Samples of a measurement: those of all its processes one after the other, and how many belong to each.

Most often each process has as many, and then nothing is stored of it: the two arrays say it. That is an eleventh of
what a measurement of 30 samples takes.
"""

from __future__ import annotations

from collections.abc import Sequence

COUNTS = """CASE WHEN m.sample_counts IS NOT NULL OR m.samples IS NULL THEN m.sample_counts
     ELSE array_fill(cardinality(m.samples) / cardinality(m.processes), ARRAY[cardinality(m.processes)]) END
     AS sample_counts"""
"""SQL: how many samples each process has, of a row of `measurement m`; null where it has no samples."""


def stored_counts(counts: Sequence[int], processes: int) -> Sequence[int]:
    """The numbers of samples by process, as they are stored; nothing where every process has as many."""
    return () if len(counts) == processes and len(set(counts)) == 1 else counts


def split(samples: Sequence[float], counts: Sequence[int]) -> list[list[float]]:
    """Samples of all processes, one after the other, as one list per process."""
    lists, start = [], 0
    for count in counts:
        lists.append(list(samples[start : start + count]))
        start += count
    return lists
