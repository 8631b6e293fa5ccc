"""The dense GPT on several ranks: DDP and FSDP2, what communication stays exposed, and how throughput scales."""

from __future__ import annotations

import contextlib
import random
import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness.check import Correctness
from benchmarks.harness.counters import count_compiled_regions, count_operations
from benchmarks.harness.ranks import require_gpus, run_ranks
from benchmarks.harness.timing.start_up import spare_the_compiler_import
from benchmarks.harness.values import Value
from benchmarks.harness.workload import Job, StepCounter, Work
from benchmarks.workloads.gpt import model as gpt_model
from benchmarks.workloads.gpt.config import GptConfig
from benchmarks.workloads.gpt.training import TokenStream, load_by_name

WARM_UP = 3
GRADIENT_LIMITS = {"fp32": 1e-4, "bf16": 2e-2}
"""By what a sum over ranks may round differently."""


class GptDistributed:
    """`gpt.ddp`: the same step alone, on all ranks, and on all ranks without communication."""

    def __init__(self, job: Job) -> None:
        self.job = job
        sizes = dict(job.config)
        self.ranks, self.strategy = int(sizes.pop("ranks")), str(sizes.pop("strategy"))
        self.overlap, self.steps = bool(sizes.pop("overlap")), int(sizes.pop("steps"))
        self.compiled = bool(sizes.pop("compile", None))
        self.config = GptConfig(**sizes)
        if self.config.device == "cuda":
            require_gpus(self.ranks, job.preset)
        tokens = self.config.tokens_per_step * self.ranks
        self.work = Work(
            flop=float(tokens * self.config.flop_per_token()), units=float(tokens), unit_metric="tokens_per_s"
        )

    def check(self) -> Correctness:
        """Ranks are started once, and check before they time."""
        return Correctness(reference="one process on the ranks' batches together")

    def prepare(self) -> None:
        """Ranks are started by `measure`."""

    def counters(self) -> list[StepCounter]:
        return []

    def after(self) -> str | None:
        return None

    def correctness(self) -> Correctness:
        """Whether the ranks' averaged gradients are those of one process."""
        result = Correctness(reference="one process on the ranks' batches together")
        worst = max(rank["gradient_error"] for rank in self.by_rank)
        result.require(
            "gradient_relative_error", worst, GRADIENT_LIMITS[self.config.dtype], f"{self.ranks} ranks, {self.strategy}"
        )
        if self.compiled:
            eager = sum(rank["compiled_regions"] == 0 for rank in self.by_rank)
            result.require("ranks_that_ran_eagerly", eager, 0.0, "the compiler fell back to eager code")
        return result

    def measure(self) -> list[Value]:
        argument = {"job": dict(self.job.config), "seed": self.job.seed}
        backend = "nccl" if self.config.device == "cuda" else "gloo"
        self.by_rank = run_ranks(_train, self.ranks, argument, backend, self.job.repetition)
        # A step is over when the slowest rank is done.
        together, silent, alone = (self._slowest(name) for name in ("together", "silent", "alone"))
        exposed = max(0.0, median(together) - median(silent)) if self.ranks > 1 else 0.0
        efficiency = median(alone) / median(together)
        role = "gate" if self.config.device == "cuda" else "watch"
        tokens = self.config.tokens_per_step * self.ranks
        milliseconds = [1000 * s for s in together]
        speed, calls = tokens / median(together), float(self.by_rank[0]["collectives"])
        scaling = Value(
            metric="scaling_efficiency",
            unit="ratio",
            value=efficiency,
            direction="higher",
            role="watch",
            formula="throughput of n ranks over n times that of one; the batch per rank is the same",
        )
        return [
            Value(metric="step_ms", unit="ms", value=median(milliseconds), samples=milliseconds, role=role),
            # One rank against itself would only state the noise of the moment.
            *([scaling] if self.ranks > 1 else []),
            Value(
                metric="exposed_communication_ms",
                unit="ms",
                value=1000 * exposed,
                role="phase",
                formula="step with communication less step without",
            ),
            Value(metric="exposed_share", unit="ratio", value=exposed / median(together), role="derived"),
            Value(metric="step_alone_ms", unit="ms", value=1000 * median(alone), role="derived"),
            Value(metric="tokens_per_s", unit="1/s", value=speed, direction="higher", role="derived"),
            Value(metric="collective_calls", unit="1", value=calls, exact=True, role="watch"),
        ]

    def _slowest(self, name: str) -> list[float]:
        return [max(step) for step in zip(*(rank[name] for rank in self.by_rank), strict=True)]


class _Rank:
    """One rank: its model, its batches, its step."""

    def __init__(self, rank: int, ranks: int, argument: dict[str, Any]) -> None:
        sizes = dict(argument["job"])
        sizes.pop("ranks")
        self.strategy, self.overlap, self.steps = sizes.pop("strategy"), sizes.pop("overlap"), sizes.pop("steps")
        self.compile_backend: str | None = sizes.pop("compile", None)
        self.config = GptConfig(**sizes)
        self.rank, self.ranks, self.seed = rank, ranks, int(argument["seed"])
        self.stream = TokenStream(self.config, self.config.vocab_size, pinned=False, seed=self.seed + rank)

    def fresh(self) -> nn.Module:
        model = gpt_model.build(self.config).to(self.config.device)
        load_by_name(model, gpt_model.seeded_weights(self.config))
        return model

    def alone(self) -> nn.Module:
        """The model of one rank, compiled where that of all ranks is."""
        model = self.fresh()
        self.compile(model)
        return model

    def shared(self) -> nn.Module:
        """The model under its strategy.

        Without overlap DDP has one bucket, sent when the backward pass is done, and FSDP2 one group, gathered before
        the forward pass and scattered after the backward pass.
        """
        model = self.fresh()
        if self.ranks == 1 or self.strategy == "ddp":
            self.compile(model)
        if self.ranks == 1:
            return model
        if self.strategy == "ddp":
            buckets: dict[str, Any] = {} if self.overlap else {"bucket_cap_mb": 10_000}
            return nn.parallel.DistributedDataParallel(model, **buckets)
        from torch.distributed.fsdp import fully_shard

        for block in model.h:  # type: ignore[union-attr]
            self.compile(block)
            if self.overlap:
                fully_shard(block)
        return fully_shard(model)  # type: ignore[return-value]

    def compile(self, module: nn.Module) -> None:
        """In place, where the case is compiled; its parameters keep their names."""
        if self.compile_backend:
            module.compile(backend=self.compile_backend)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = (part.to(self.config.device) for part in batch)
        with torch.autocast(self.config.device, dtype=torch.bfloat16, enabled=self.config.dtype == "bf16"):
            return F.cross_entropy(model(inputs).view(-1, self.config.vocab_size), targets.reshape(-1))

    def timed(self, model: nn.Module, *, silent: bool = False) -> list[float]:
        optimizer = gpt_model.adamw(model.parameters(), self.config, fused=True)
        seconds = []
        for number in range(WARM_UP + self.steps):
            dist.barrier()
            began = time.perf_counter()
            with model.no_sync() if silent else contextlib.nullcontext():  # type: ignore[operator]
                self.loss(model, self.stream.next()).backward()
            optimizer.step()
            optimizer.zero_grad()
            if self.config.device == "cuda":
                torch.cuda.synchronize()
            if number >= WARM_UP:
                seconds.append(time.perf_counter() - began)
        return seconds

    def gradient_error(self) -> float:
        """Gradients of the shared model on this rank's batch against those of one process on all ranks' batches."""
        streams = [
            TokenStream(self.config, self.config.vocab_size, pinned=False, seed=self.seed + 50 + r)
            for r in range(self.ranks)
        ]
        batches = [stream.next() for stream in streams]
        alone, shared = self.fresh(), self.shared()
        for batch in batches:
            (self.loss(alone, batch) / self.ranks).backward()
        self.loss(shared, batches[self.rank]).backward()
        difference = total = 0.0
        plain = dict(alone.named_parameters())
        for name, parameter in shared.named_parameters():
            ours = parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad  # type: ignore[union-attr]
            wanted = plain[name.removeprefix("module.")].grad
            difference += float((ours - wanted).double().square().sum())  # type: ignore[operator]
            total += float(wanted.double().square().sum())  # type: ignore[union-attr]
        return (difference / total) ** 0.5


def _train(rank: int, ranks: int, argument: dict[str, Any]) -> dict[str, Any]:
    if argument["job"]["device"] == "cpu":
        spare_the_compiler_import()
    random.seed(argument["seed"] + rank)
    work = _Rank(rank, ranks, argument)
    error = work.gradient_error()
    alone = work.timed(work.alone())
    shared = work.shared()
    together = work.timed(shared)
    # FSDP2 cannot train without gathering its weights: its silent step is the unsharded one. One rank says nothing.
    silent = work.timed(shared, silent=True) if work.strategy == "ddp" and ranks > 1 else alone
    return {
        "gradient_error": error,
        "alone": alone,
        "together": together,
        "silent": silent,
        "compiled_regions": count_compiled_regions(lambda: work.loss(shared, work.stream.next()).backward()),
        "collectives": _collectives(work, shared),
    }


def _collectives(work: _Rank, model: nn.Module) -> int:
    """Collective operations that one forward and backward pass dispatches."""
    counter = count_operations(lambda: work.loss(model, work.stream.next()).backward())
    words = ("allreduce", "all_reduce", "allgather", "all_gather", "reduce_scatter", "broadcast")
    return sum(count for name, count in counter.by_name.items() if any(word in name for word in words))
