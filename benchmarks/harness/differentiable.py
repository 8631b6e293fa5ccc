"""The common base of attention, MoE layers and Llama blocks: one function of tensors, timed forward and backward.

The family says how inputs are drawn, what the function is, and what the plain reference in double precision is. Here
are the timed step, the check of output and gradients against that reference, and the counters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.harness.check import Correctness, norm_error, relative_limit, worst_error
from benchmarks.harness.counters import count_activation_bytes, count_operations, host_syncs
from benchmarks.harness.plugin import PluginError
from benchmarks.harness.timing.marks import Marks, NoMarks
from benchmarks.harness.workload import Job, NotApplicable, StepCounter, Work, fact

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


@dataclass(frozen=True, slots=True)
class Tensors:
    """Named inputs: those that take gradients, and constants such as routes or masks."""

    learned: dict[str, Tensor]
    constant: dict[str, Tensor]

    def to(self, dtype: torch.dtype, device: str) -> Tensors:
        """A copy in that precision; the learned ones are leaves again.

        Constants keep single precision at least, for routes and angles decide more than they weigh; integers stay.
        """
        at_least = torch.promote_types(dtype, torch.float32)
        learned = {k: v.detach().to(device, dtype).clone().requires_grad_() for k, v in self.learned.items()}
        constant = {
            k: v.to(device, at_least) if v.is_floating_point() else v.to(device) for k, v in self.constant.items()
        }
        return Tensors(learned, constant)

    def gradients(self) -> list[Tensor]:
        """Gradients in the order of the names; a missing one is zero."""
        return [t.grad if t.grad is not None else torch.zeros_like(t) for t in self.learned.values()]

    def clear(self) -> None:
        """Forgets all gradients."""
        for tensor in self.learned.values():
            tensor.grad = None


Function = Callable[[Tensors], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Inputs of one check, and the words for them."""

    name: str
    inputs: Tensors
    also: Callable[[Correctness, Tensor, Tensors], None] | None = None
    """Further requirements on the output of the measured function."""


class Differentiable(ABC):
    """A workload around one differentiable function. Families fill in the four methods below the line."""

    forward_only = False
    compiles = False
    further_error = 0.0
    """The error allowed beyond the plain path's, which has none of the measured path's shortcuts; a fraction."""
    flushes = False
    """Whether the device's cache is emptied before each timed step: where in use other work comes in between."""
    work: Work

    def __init__(self, job: Job) -> None:
        self.job = job
        self.device = str(job.config.get("device", "cpu"))
        self.dtype = str(job.config.get("dtype", "fp32"))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise NotApplicable(f"preset {job.preset} needs a GPU and torch sees none; --preset cpu runs anywhere")
        # Drawn where they are used: billions of weights would take a CPU minutes.
        self.generator = torch.Generator(self.device).manual_seed(job.seed)

    # what a family says

    def normal(self, *shape: int) -> Tensor:
        """Seeded normal numbers in single precision, on the device."""
        return torch.randn(shape, generator=self.generator, device=self.device)

    @abstractmethod
    def inputs(self, *, reduced: bool) -> Tensors:
        """Seeded inputs in single precision; `reduced` for the check."""

    @abstractmethod
    def function(self, tensors: Tensors) -> Tensor:
        """The measured function."""

    @abstractmethod
    def reference(self, tensors: Tensors) -> Tensor:
        """The plain function, in whatever precision its inputs have."""

    def scenes(self) -> Sequence[Scene]:
        """Inputs to check with; the first is also checked for its gradients."""
        return [Scene(name="seeded normal inputs", inputs=self.inputs(reduced=True))]

    def further_counters(self, inputs: Tensors) -> list[StepCounter]:
        """Further counters of the family."""
        return []

    # what the harness calls

    def prepare(self) -> None:
        self.tensors = self.inputs(reduced=False).to(DTYPES[self.dtype], self.device)
        # With gradients where the step takes them: a compiler makes another graph without.
        with torch.set_grad_enabled(not self.forward_only):
            output = self.function(self.tensors)
        scale = self.normal(*output.shape) / output.numel() ** 0.5
        self.upstream = scale.to(output.dtype)

    def step(self, marks: Marks) -> None:
        marks.enter("forward")
        if self.forward_only:
            with torch.no_grad():
                self.output = self.function(self.tensors)
            return
        self.output = self.function(self.tensors)
        marks.enter("backward")
        self.output.backward(self.upstream)
        self.tensors.clear()

    def after(self) -> str | None:
        return (
            None
            if bool(torch.isfinite(self.output.detach()).all())
            else "the output is not finite after the timed steps"
        )

    def counters(self) -> list[StepCounter]:
        operations = count_operations(lambda: self.step(NoMarks()))
        found = [
            StepCounter(metric="ops_per_step", value=operations.total),
            host_syncs(operations, self.device, lambda: self.step(NoMarks())),
            fact("flop_per_step", self.work.flop, "FLOP", self.work.formula),
        ]
        if not self.forward_only:
            kept = count_activation_bytes(lambda: self.function(self.tensors), self.tensors.learned.values())
            found.append(StepCounter(metric="activation_bytes", value=kept, unit="B", role="gate"))
        return found + self.further_counters(self.tensors)

    def check(self) -> Correctness:
        """Output, then gradients, each against double precision and no worse than twice the plain path."""
        result = Correctness(reference="fp64, plain implementation, reduced sizes")
        for number, scene in enumerate(self.scenes()):
            exact = scene.inputs.to(torch.float64, self.device)
            plain = scene.inputs.to(DTYPES[self.dtype], self.device)
            ours = scene.inputs.to(DTYPES[self.dtype], self.device)
            if self.dtype != "fp64":
                # All three see the same numbers: those that the measured precision can hold.
                exact = plain.to(torch.float64, self.device)
            wanted, naive, got = self.reference(exact), self.reference(plain), self.function(ours)
            if not isinstance(got, Tensor) or got.shape != wanted.shape:
                shape = tuple(got.shape) if isinstance(got, Tensor) else type(got).__name__
                raise PluginError(f"the implementation returned {shape}; expected a tensor of {tuple(wanted.shape)}")
            suffix = "" if number == 0 else f"_{number + 1}"
            limit = relative_limit(worst_error(naive, wanted), self.dtype) + self.further_error
            result.require(f"output_relative_error{suffix}", worst_error(got, wanted), limit, scene.name)
            if scene.also is not None:
                scene.also(result, got, ours)
            if not self.forward_only:
                self._check_gradients(result, suffix, scene.name, (wanted, exact), (naive, plain), (got, ours))
        return result

    def _check_gradients(self, result: Correctness, suffix: str, name: str, *sides: tuple[Tensor, Tensors]) -> None:
        shape = sides[0][0].shape
        upstream = torch.randn(shape, generator=self.generator, dtype=torch.float64, device=self.device)
        for output, _ in sides:
            output.backward(upstream.to(output.device, output.dtype))
        wanted, naive, got = (tensors.gradients() for _, tensors in sides)
        limit = relative_limit(norm_error(naive, wanted), self.dtype) + self.further_error
        result.require(f"gradient_relative_error{suffix}", norm_error(got, wanted), limit, name)


def with_constant(tensors: Tensors, **changed: Tensor) -> Tensors:
    """The same inputs with some constants replaced."""
    return replace(tensors, constant={**tensors.constant, **changed})


def with_learned(tensors: Tensors, **changed: Tensor) -> Tensors:
    """The same inputs with some learned tensors replaced."""
    return replace(tensors, learned={**tensors.learned, **changed})


__all__ = ["DTYPES", "Differentiable", "Scene", "Tensors", "with_constant", "with_learned"]
