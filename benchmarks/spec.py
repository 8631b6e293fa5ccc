"""Types of a registered benchmark: its words, its variants and where its code lives. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

VariantValue = str | int | float | bool


class WrongCall(ValueError):
    """Options of a command that do not go together, or make no sense."""


class Preset(StrEnum):
    """How large a benchmark is run.

    `cpu`: seconds, any machine. `smoke`: one GPU, never judged. `full`: the real thing.
    """

    CPU = "cpu"
    SMOKE = "smoke"
    FULL = "full"


class Status(StrEnum):
    """How one result ended. Only `ok` results are judged; no other status is ever red."""

    OK = "ok"
    FAILED = "failed"
    CHECK_FAILED = "check_failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    INCOMPLETE = "incomplete"
    NOT_APPLICABLE = "not_applicable"


class Role(StrEnum):
    """gate: judged. watch: judged, never red. derived: computed from others. phase: a part of the step."""

    GATE = "gate"
    WATCH = "watch"
    DERIVED = "derived"
    PHASE = "phase"


class Direction(StrEnum):
    """Which way a metric is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One variant of a benchmark under one preset: what identifies it, and the sizes it runs with."""

    variant: Mapping[str, VariantValue]
    config: Mapping[str, Any]
    backend: str = "eager"
    world_size: int = 1
    not_applicable: str | None = None
    """Why this machine class can never run it, known before anything starts."""
    built_in_only: str | None = None
    """Why nothing that is plugged in can run this case; None where an implementation may stand in."""
    timeout_s: float = 300.0
    processes: int | None = None
    """Fresh processes, where this case is content with fewer than its preset; an explicit `--processes` wins."""


FEW = 2
"""Fresh processes of a secondary variant at the cpu preset: the suite must end within minutes there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A published figure to stand beside, with its source."""

    figure: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A registered benchmark.

    `workload` names the class that measures it; nothing is imported until a child runs it.
    """

    id: str
    title: str
    mode: str
    workload: str
    cases: Callable[[Preset], tuple[Case, ...]]
    meaning: str
    formula: str
    bound: str
    references: tuple[PublishedFigure, ...] = ()
    signature: str | None = None
    """The plug-in point, as documentation; None where the benchmark measures the machine, not a project's code."""
    builtin: str | None = None
    """The built-in implementation, used where none is plugged in."""
    chooses: tuple[str, ...] = ()
    """Keys of the variant that choose among what is built in; with an implementation plugged in they say nothing."""
    distributed: bool = False
    metrics: tuple[str, ...] = field(default=())

    @property
    def family(self) -> str:
        """The first part of the id: `gpt` of `gpt.ladder`."""
        return self.id.split(".", 1)[0]


def slug_of(variant: Mapping[str, VariantValue]) -> str:
    """A name for files: the variant's values joined, without characters that file systems dislike."""
    text = "-".join(str(value) for value in variant.values()) or "default"
    return "".join(ch if ch.isalnum() or ch in "._-" else "_" for ch in text)[:96]
