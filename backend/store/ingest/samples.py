"""Samples of a measurement: those of all its processes one after the other, and how many belong to each.

They are packed (`backend.store.ingest.packed`); those of measurements from before version 0.2 stand as an array of
floats. Most often each process has as many samples, and then nothing is stored of how many.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.store.ingest.packed import unpack

COLUMNS = "m.processes, m.samples, m.samples_packed, m.sample_counts"
"""Columns of a row of `measurement m` that `by_process` needs, under these names."""


def stored_counts(counts: Sequence[int], processes: int) -> Sequence[int]:
    """The numbers of samples by process, as they are stored; nothing where every process has as many."""
    return () if len(counts) == processes and len(set(counts)) == 1 else counts


def by_process(
    processes: Sequence[float] | None,
    samples: Sequence[float] | None,
    samples_packed: bytes | None,
    sample_counts: Sequence[int] | None,
) -> list[list[float]]:
    """The samples of each process, from the columns of a row; an empty list where it has none."""
    together = samples if samples_packed is None else unpack(samples_packed)
    if not together:
        return []
    known = len(processes or ()) or 1
    counts = [len(together) // known] * known if sample_counts is None else sample_counts
    lists, start = [], 0
    for count in counts:
        lists.append(list(together[start : start + count]))
        start += count
    return lists
