"""Kernels that changed: two kernel tables (`tidemark.kernels/1`) of one workload, before and after. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA = "tidemark.kernels/1"
COLUMNS = ("phase", "name", "shape", "calls_per_step", "us_per_step")
MAX_ROWS = 20_000
# What sort of work a name speaks of: one product may take the place of another, one attention of another.
KINDS = {
    "attention": ("attention", "flash", "fmha", "softmax"),
    "product": ("gemm", "mm", "matmul", "linear", "cutlass", "dot"),
    "norm": ("norm",),
    "copy": ("copy", "memcpy", "cat", "clone"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of one phase, all its shapes together, in a typical step."""

    phase: str
    name: str
    shapes: frozenset[str]
    calls: float
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBeforeAfter:
    """A kernel on both sides. `replaces`: it came where that one went; `calls_us`: what more or fewer calls changed."""

    phase: str
    name: str
    before_us: float
    after_us: float
    before_calls: float
    after_calls: float
    replaces: str | None = None

    @property
    def change_us(self) -> float:
        return self.after_us - self.before_us

    @property
    def calls_us(self) -> float:
        """The part of the change that more or fewer calls explain."""
        mean = self.before_us / self.before_calls if self.before_calls else self.after_us / max(self.after_calls, 1e-9)
        return (self.after_calls - self.before_calls) * mean

    @property
    def words(self) -> str:
        """The change of this kernel, in words."""
        if self.replaces is not None:
            return f"replaces {self.replaces}"
        if not self.before_calls:
            return "new"
        if not self.after_calls:
            return "gone"
        if abs(self.calls_us) > abs(self.change_us - self.calls_us):
            return "more calls" if self.calls_us > 0 else "fewer calls"
        return "each call slower" if self.change_us > 0 else "each call faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDifference:
    """The kernels that carry the change, the largest first; `rest_us` is what all others changed together."""

    before_us: float
    after_us: float
    changes: tuple[KernelBeforeAfter, ...]
    rest: int
    rest_us: float


def read_table(document: Any) -> tuple[Kernel, ...] | None:
    """The kernels of a table as a benchmark wrote it; None where it is not one."""
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        return None
    columns = [document.get(name) for name in COLUMNS]
    if not all(isinstance(column, list) for column in columns) or len({len(column or ()) for column in columns}) != 1:
        return None
    found: dict[tuple[str, str], tuple[set[str], float, float]] = {}
    for phase, name, shape, calls, us in list(zip(*columns, strict=True))[:MAX_ROWS]:
        if not _is_size(calls) or not _is_size(us):
            return None
        shapes, sum_calls, sum_us = found.get((str(phase), str(name)), (set(), 0.0, 0.0))
        found[str(phase), str(name)] = (shapes | {str(shape)}, sum_calls + calls, sum_us + us)
    return tuple(
        Kernel(phase=phase, name=name, shapes=frozenset(shapes), calls=calls, us=us)
        for (phase, name), (shapes, calls, us) in found.items()
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


def difference(before: Iterable[Kernel], after: Iterable[Kernel], at_most: int = 12) -> KernelDifference:
    """Kernel by kernel. One that only came is paired with one that only went, where they did the same work."""
    old = {(kernel.phase, kernel.name): kernel for kernel in before}
    new = {(kernel.phase, kernel.name): kernel for kernel in after}
    changes = [_change(old[key], new[key]) for key in old.keys() & new.keys()]
    gone = sorted((old[key] for key in old.keys() - new.keys()), key=lambda kernel: -kernel.us)
    for kernel in sorted((new[key] for key in new.keys() - old.keys()), key=lambda kernel: -kernel.us):
        match = next((each for each in gone if _same_work(each, kernel)), None)
        if match is not None:
            gone.remove(match)
        changes.append(_change(match, kernel))
    changes += [_change(kernel, None) for kernel in gone]
    changes = sorted((each for each in changes if each.change_us), key=lambda each: (-abs(each.change_us), each.name))
    rest = changes[at_most:]
    return KernelDifference(
        before_us=sum(kernel.us for kernel in old.values()),
        after_us=sum(kernel.us for kernel in new.values()),
        changes=tuple(changes[:at_most]),
        rest=len(rest),
        rest_us=sum(each.change_us for each in rest),
    )


def _change(before: Kernel | None, after: Kernel | None) -> KernelBeforeAfter:
    kernel = after or before
    assert kernel is not None  # one of the two is given
    replaced = before is not None and after is not None and before.name != after.name
    return KernelBeforeAfter(
        phase=kernel.phase,
        name=kernel.name,
        before_us=before.us if before else 0.0,
        after_us=after.us if after else 0.0,
        before_calls=before.calls if before else 0.0,
        after_calls=after.calls if after else 0.0,
        replaces=before.name if replaced and before is not None else None,
    )


def _same_work(before: Kernel, after: Kernel) -> bool:
    return before.phase == after.phase and (bool(before.shapes & after.shapes) or _kind(before) == _kind(after))


def _kind(kernel: Kernel) -> str:
    lowered = kernel.name.lower()
    return next((kind for kind, words in KINDS.items() if any(word in lowered for word in words)), lowered)
