"""The interface between a family and the harness: one variant, built, checkable and steppable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.harness.check import Correctness
from benchmarks.harness.timing.marks import Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounter:
    """An exact figure of one step, or a fact of the variant."""

    metric: str
    value: float
    unit: str = "1"
    direction: str = "lower"
    role: str = "watch"
    exact: bool = True
    formula: str | None = None


def fact(metric: str, value: float, unit: str, formula: str | None = None) -> StepCounter:
    """A figure that follows from the configuration: shown, never judged."""
    return StepCounter(metric=metric, value=value, unit=unit, direction="lower", role="derived", formula=formula)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of one step, for rates and the roofline.

    `bytes` is the least memory traffic the step must cause, or None.
    """

    flop: float
    bytes: float | None = None
    units: float = 1.0
    unit_metric: str = "steps_per_s"
    unit_unit: str = "1/s"
    formula: str = ""
    precision: str = "bf16"
    """The precision of its matrix products: `fp32`, `tf32`, `bf16`; it chooses the ceiling."""
    phase_flop: Mapping[str, float] = field(default_factory=dict)
    """FLOP of single phases, where a published figure speaks of the phase: each becomes `<phase>_tflops`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of a measuring process: the case, the plug-in, and which process of how many this is."""

    benchmark: str
    workload: str
    variant: Mapping[str, Any]
    config: Mapping[str, Any]
    preset: str
    implementation: str | None
    builtin: str | None
    process: int
    processes: int
    seed: int
    tasks: tuple[str, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repetition(self) -> str:
        """A name for this process that no other of the run has."""
        return f"{self.benchmark}/{sorted(self.variant.items())}/{self.process}"


class NotApplicable(Exception):
    """This machine cannot run the variant; the sentence says why."""


class Workload(Protocol):
    """One variant of a benchmark. Constructed with the job; nothing heavy happens before `prepare`."""

    work: Work
    compiles: bool
    """Whether the step is meant to run compiled; where no compiled region is entered, its speed is another's."""

    def check(self) -> Correctness:
        """Compares with a reference on a reduced copy of the inputs, before anything is timed."""
        ...

    def prepare(self) -> None:
        """Builds what the step needs."""
        ...

    def step(self, marks: Marks) -> None:
        """The timed step."""
        ...

    def counters(self) -> list[StepCounter]:
        """Exact counters, from steps of their own."""
        ...

    def after(self) -> str | None:
        """A fault found in the timed steps (a loss that is no number), or None."""
        ...
