"""Kernel tables: self time per phase, normalised name and shape of a typical step; and the difference of two. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of one kernel."""

    phase: str
    name: str
    shape: str
    microseconds: float


def normalised(name: str) -> str:
    """A kernel's name without what differs from build to build: template arguments, hashes, tile sizes, counters."""
    plain = re.sub(r"^void\s+", "", name)
    while (shorter := re.sub(r"<[^<>]*>", "", plain)) != plain:
        plain = shorter
    plain = re.sub(r"\(.*$", "", plain)
    plain = re.sub(r"_[0-9a-f]{8,}(?=_|$)", "", plain)
    plain = re.sub(r"_?\d+x\d+(?:x\d+)*", "", plain)
    return re.sub(r"(?:_\d+)+$", "", plain).strip() or name


def table(rows: Iterable[KernelCall], steps: int) -> dict[str, Any]:
    """Columns of a typical step, the costliest first: small, and quick to read.

    A call counts as long as the median of its kind: one that a neighbour's time slice fell into says nothing of it.
    """
    durations: dict[Key, list[float]] = {}
    for row in rows:
        durations.setdefault((row.phase, row.name, row.shape), []).append(row.microseconds)
    totals = {key: len(calls) * median(calls) for key, calls in durations.items()}
    ordered = sorted(totals, key=lambda key: -totals[key])
    return {
        "schema": "tidemark.kernels/1",
        "steps": steps,
        "phase": [key[0] for key in ordered],
        "name": [key[1] for key in ordered],
        "shape": [key[2] for key in ordered],
        "calls_per_step": [len(durations[key]) / steps for key in ordered],
        "us_per_step": [round(totals[key] / steps, 3) for key in ordered],
    }


Span = tuple[float, float]


def busy_share(kernels: Sequence[Span], steps: Sequence[Span]) -> float | None:
    """Share of the time from the first step's begin to the last kernel's end in which some kernel ran.

    Kernels of several streams that ran at once count once. None without kernels or steps.
    """
    if not kernels or not steps:
        return None
    began = min(start for start, _ in steps)
    ended = max(end for _, end in [*kernels, *steps])
    busy, reached = 0.0, began
    for start, end in sorted(kernels):
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy / (ended - began)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChange:
    """How one kernel's share of a step changed: by how often it runs, and by how long each call takes."""

    phase: str
    name: str
    shape: str
    replaces: str | None
    us_per_step: float
    from_calls_us: float
    from_duration_us: float
    calls: tuple[float, float]
    us_per_call: tuple[float, float]

    @property
    def verdict(self) -> str:
        """The larger part in words."""
        if self.replaces is not None:
            return f"replaces {self.replaces}"
        if abs(self.from_calls_us) >= abs(self.from_duration_us):
            return "more launches" if self.from_calls_us > 0 else "fewer launches"
        return "slower" if self.from_duration_us > 0 else "faster"


def difference(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[KernelChange]:
    """Every kernel's change, the largest first.

    change = (n_head − n_base) · mean_base + n_head · (mean_head − mean_base). Kernels that only one side has are paired
    within a phase and shape as "replaced", costliest with costliest: another algorithm or fusion for the same work.
    """
    before, after = _by_key(base), _by_key(head)
    changes = [_change(key, before[key], after[key], None) for key in before.keys() & after.keys()]
    gone = sorted(before.keys() - after.keys(), key=lambda key: -before[key][1])
    come = sorted(after.keys() - before.keys(), key=lambda key: -after[key][1])
    for key in come:
        match = next((old for old in gone if old[0] == key[0] and old[2] == key[2]), None)
        match = match or next((old for old in gone if old[0] == key[0] and _kind(old[1]) == _kind(key[1])), None)
        if match is not None:
            gone.remove(match)
        old = before[match] if match is not None else (0.0, 0.0)
        changes.append(_change(key, old, after[key], match[1] if match is not None else None))
    changes += [_change(key, before[key], (0.0, 0.0), None) for key in gone]
    return sorted((c for c in changes if c.us_per_step), key=lambda change: -abs(change.us_per_step))


def _by_key(columns: Mapping[str, Any]) -> dict[Key, tuple[float, float]]:
    names: Sequence[str] = ("phase", "name", "shape", "calls_per_step", "us_per_step")
    rows = zip(*(columns[name] for name in names), strict=True)
    return {(phase, name, shape): (calls, micro) for phase, name, shape, calls, micro in rows}


def _kind(name: str) -> str:
    """The kind of work in a kernel's name, where it has one: products replace products, attention attention."""
    words = {
        "attention": ("attention", "flash", "fmha", "softmax"),
        "gemm": ("gemm", "mm", "matmul", "linear", "cutlass", "dot"),
        "norm": ("norm",),
        "copy": ("copy", "memcpy", "cat", "clone"),
    }
    lowered = name.lower()
    return next((kind for kind, known in words.items() if any(word in lowered for word in known)), lowered)


def _change(key: Key, before: tuple[float, float], after: tuple[float, float], replaces: str | None) -> KernelChange:
    n_base, n_head = before[0], after[0]
    mean_base = before[1] / n_base if n_base else 0.0
    mean_head = after[1] / n_head if n_head else 0.0
    # A kernel that is new or gone has no earlier or later duration: all of its change is launches.
    if not n_base or not n_head:
        mean_base = mean_head = mean_base or mean_head
    return KernelChange(
        phase=key[0],
        name=key[1],
        shape=key[2],
        replaces=replaces,
        us_per_step=after[1] - before[1],
        from_calls_us=(n_head - n_base) * mean_base,
        from_duration_us=n_head * (mean_head - mean_base),
        calls=(n_base, n_head),
        us_per_call=(mean_base, mean_head),
    )
