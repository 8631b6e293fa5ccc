"""Layers divided among ranks: the step of the slowest, its collectives alone, and agreement with one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.harness.check import Correctness, norm_error, relative_limit
from benchmarks.harness.counters import count_operations
from benchmarks.harness.differentiable import DTYPES
from benchmarks.harness.ranks import require_gpus, run_ranks
from benchmarks.harness.timing.start_up import spare_the_compiler_import
from benchmarks.harness.values import Value
from benchmarks.harness.workload import Job, StepCounter, Work
from benchmarks.workloads.parts import KINDS, Named, RankPart

WARM_UP = 3
COLLECTIVES = ("allreduce", "all_reduce", "allgather", "all_gather", "reduce_scatter", "alltoall", "all_to_all")


class DividedLayer:
    """`moe.parallel`, `parallel.tensor` and `parallel.context`: one layer, forward and backward, on all ranks."""

    def __init__(self, job: Job) -> None:
        self.job, self.config = job, dict(job.config)
        self.ranks, self.device = int(self.config["ranks"]), str(self.config["device"])
        if self.device == "cuda":
            require_gpus(self.ranks, job.preset)
        self.work = Work(flop=float(self.config["flop_per_rank"]), units=float(self.config["tokens_per_rank"]))

    def check(self) -> Correctness:
        """Ranks are started once, and check before they time."""
        return Correctness(reference="fp64, the whole layer in one process, reduced sizes")

    def prepare(self) -> None:
        """Ranks are started by `measure`."""

    def counters(self) -> list[StepCounter]:
        return []

    def after(self) -> str | None:
        return None

    def correctness(self) -> Correctness:
        """Each rank's output and gradients against those of one process."""
        result = self.check()
        for rank, found in enumerate(self.by_rank):
            for name, (value, limit) in found["errors"].items():
                result.require(name, value, limit, f"rank {rank} of {self.ranks}")
        return result

    def measure(self) -> list[Value]:
        """Times the step on all ranks; an iteration lasts as long as its slowest rank took."""
        backend = "nccl" if self.device == "cuda" else "gloo"
        argument = {"config": self.config, "seed": self.job.seed}
        self.by_rank = run_ranks(run_part, self.ranks, argument, backend, self.job.repetition)
        step, silent = ([1000 * s for s in self._slowest(name)] for name in ("step", "communication"))
        role = "gate" if self.device == "cuda" else "watch"
        per_s = self.ranks * self.work.units / median(step) * 1000
        rate = self.work.flop / median(step) / 1e9
        return [
            Value(metric="step_ms", unit="ms", value=median(step), samples=step, role=role),
            Value(metric="communication_ms", unit="ms", value=median(silent), samples=silent, role="watch"),
            Value(
                metric="communication_share",
                unit="ratio",
                value=median(silent) / median(step),
                role="derived",
                formula="the step's collectives alone over the step",
            ),
            Value(metric="tokens_per_s", unit="1/s", value=per_s, direction="higher", role="derived"),
            Value(metric="tflops_per_rank", unit="TFLOP/s", value=rate, direction="higher", role="derived"),
            Value(
                metric="collective_calls",
                unit="1",
                value=float(self.by_rank[0]["calls"]),
                exact=True,
                role="watch",
            ),
        ]

    def _slowest(self, name: str) -> list[float]:
        return [max(step) for step in zip(*(rank[name] for rank in self.by_rank), strict=True)]


def run_part(rank: int, ranks: int, argument: dict[str, Any]) -> dict[str, Any]:
    """One rank: checks, then times its steps and its collectives."""
    config = argument["config"]
    if config["device"] == "cpu":
        spare_the_compiler_import()
    part = KINDS[config["kind"]](rank, ranks, config, int(argument["seed"]))
    dtype = DTYPES[str(config["dtype"])]
    errors = errors_of(part, str(config["dtype"]))
    tensors = _leaves(part.local(part.whole(reduced=False)), dtype)
    with torch.no_grad():
        upstream = torch.randn_like(part.forward(tensors))

    def step() -> None:
        part.forward(tensors).backward(upstream)  # type: ignore[no-untyped-call]
        for tensor in tensors.values():
            tensor.grad = None

    calls = count_operations(step).by_name
    return {
        "errors": errors,
        "calls": sum(count for name, count in calls.items() if any(word in name for word in COLLECTIVES)),
        "step": _timed(step, config),
        "communication": _timed(lambda: part.communicate(tensors), config),
    }


def errors_of(part: RankPart, dtype: str) -> dict[str, tuple[float, float]]:
    """Name -> error and limit: twice that of the whole layer in the same precision, both against double precision."""
    drawn = {name: tensor.to(DTYPES[dtype]) for name, tensor in part.whole(reduced=True).items()}
    exact, naive = _leaves(drawn, torch.float64), _leaves(drawn, DTYPES[dtype])
    ours = _leaves(part.local(drawn), DTYPES[dtype])
    wanted, plain, got = part.plain(exact), part.plain(naive), part.forward(ours)
    upstream = part.normal(part.generator(), *wanted.shape)
    for output, gradient in ((wanted, upstream), (plain, upstream), (got, part.output(upstream))):
        output.backward(gradient.to(output.dtype))  # type: ignore[no-untyped-call]
    for name in sorted(part.partial):
        dist.all_reduce(ours[name].grad)
    of_naive, of_ours = (norm_error([made], [part.output(wanted)]) for made in (part.output(plain), got))
    found = {"output_relative_error": (of_ours, relative_limit(of_naive, dtype))}
    references, naives = (part.local({name: _gradient(t) for name, t in one.items()}) for one in (exact, naive))
    for name, reference in references.items():
        limit = relative_limit(norm_error([naives[name]], [reference]), dtype)
        found[f"gradient_relative_error_{name}"] = (norm_error([_gradient(ours[name])], [reference]), limit)
    return found


def _leaves(tensors: Named, dtype: torch.dtype) -> Named:
    return {name: tensor.detach().to(dtype).clone().requires_grad_() for name, tensor in tensors.items()}


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _timed(step: Callable[[], None], config: dict[str, Any]) -> list[float]:
    """Seconds of each step after a barrier, on this rank."""
    seconds = []
    for number in range(WARM_UP + int(config["steps"])):
        dist.barrier()
        began = time.perf_counter()
        step()
        if config["device"] == "cuda":
            torch.cuda.synchronize()
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    return seconds


__all__ = ["DividedLayer"]
