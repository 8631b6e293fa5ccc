"""Collectives: operations over a sweep of sizes, exact integer payloads, latency, bandwidth."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._autograd import DeviceType

from benchmarks.analysis.bandwidth import (
    Operation,
    algorithm_gb_per_s,
    bus_gb_per_s,
    fit_line,
    least_elements,
    sent_to,
)
from benchmarks.harness.check import Correctness
from benchmarks.harness.differentiable import DTYPES
from benchmarks.harness.ranks import gpus_needed, require_gpus, run_ranks
from benchmarks.harness.timing.events import queued_seconds
from benchmarks.harness.values import Value
from benchmarks.harness.workload import Job, NotApplicable, StepCounter, Work

WARM_UP, LEAST_ITERATIONS = 3, 10
NVLS = {"nvls_on": "1", "nvls_off": "0"}

# The same operations under torch's new names, or under the old ones where a release has only those.
_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Collective:
    """`coll.<operation>`: time per size is the slowest rank's, its value the median over iterations."""

    work = Work(flop=0.0)

    def __init__(self, job: Job) -> None:
        self.job, self.operation = job, Operation(str(job.config["operation"]))
        self.device, self.ranks = str(job.config["device"]), int(job.config["ranks"])
        self.transport: str | None = job.config.get("transport")
        if self.operation is Operation.SEND_RECV and self.ranks % 2:
            raise NotApplicable(f"{self.ranks} ranks make no pairs; one of them would wait for ever")
        if self.device == "cuda":
            require_gpus(self.ranks, job.preset)
            self._needs_transport()

    def _needs_transport(self) -> None:
        """Check that the transport exists on this machine; where it does not, the variant is not applicable."""
        if self.transport is None:
            return
        from torch._C._distributed_c10d import _SymmetricMemory

        here = torch.device("cuda", torch.cuda.current_device())
        if self.transport in ("nvls_on", "symm_multimem") and not _SymmetricMemory.has_multicast_support(
            DeviceType.CUDA, here.index
        ):
            raise NotApplicable(f"{self.transport} adds in the switch, and these GPUs have no multicast (NVLink SHARP)")
        unlinked = [n for n in range(1, gpus_needed(self.ranks)) if not torch.cuda.can_device_access_peer(0, n)]
        if self.transport.startswith("symm") and unlinked:
            raise NotApplicable(f"symmetric memory needs GPUs that reach each other; 0 does not reach {unlinked[0]}")

    def check(self) -> Correctness:
        """Nothing yet: ranks are started once, and check before they time."""
        return Correctness(reference="integer payloads, checked in every process before timing")

    def prepare(self) -> None:
        """Ranks are started by `measure`."""

    def counters(self) -> list[StepCounter]:
        return []

    def after(self) -> str | None:
        wrong = sum(rank["wrong"] for rank in self.by_rank)
        return f"{wrong} elements arrived wrong; its speed is void" if wrong else None

    def correctness(self) -> Correctness:
        """The ranks' checks."""
        result = Correctness(reference="exact integer payloads, distinct per rank")
        result.require("wrong_elements", sum(rank["wrong"] for rank in self.by_rank), 0.0, f"{self.ranks} ranks")
        return result

    def measure(self) -> list[Value]:
        """Sweeps the sizes on all ranks; each iteration counts as long as its slowest rank took."""
        argument: dict[str, Any] = {"operation": str(self.operation), "sizes": list(self.job.config["sizes"])}
        argument["device"] = self.device
        argument["dtype"] = str(self.job.config.get("dtype", "fp32"))
        argument["in_place"] = self.job.config.get("placement") == "in_place"
        argument["seconds_per_size"] = float(self.job.config["seconds_per_size"])
        argument["transport"] = self.transport
        if self.transport in NVLS:
            # Read by NCCL when a process makes its first group; ranks started from here inherit it.
            os.environ["NCCL_NVLS_ENABLE"] = NVLS[self.transport]
        backend = "nccl" if self.device == "cuda" else "gloo"
        self.by_rank = run_ranks(sweep, self.ranks, argument, backend, self.job.repetition)
        return self.figures()

    def figures(self) -> list[Value]:
        """The metrics of what the ranks timed: an iteration lasts as long as its slowest rank."""
        found: dict[float, float] = {}
        samples: dict[float, list[float]] = {}
        for index, size in enumerate(self.job.config["sizes"]):
            per_rank = [rank["seconds"][index] for rank in self.by_rank]
            samples[size] = [max(iteration) for iteration in zip(*per_rank, strict=True)]
            found[size] = median(samples[size])
        smallest, largest = min(found), max(found)
        queued = [max(sample) for sample in zip(*(rank.get("queued", ()) for rank in self.by_rank), strict=True)]
        line = fit_line(found)
        role = "gate" if self.device == "cuda" else "watch"
        bus = [bus_gb_per_s(self.operation, self.ranks, largest, s) for s in samples[largest]]
        micro = [1e6 * s for s in samples[smallest]]
        mean_of_ranks = median(
            sum(iteration) / self.ranks for iteration in zip(*(r["seconds"][-1] for r in self.by_rank), strict=True)
        )
        values = [
            Value(metric="busbw_gb_per_s", unit="GB/s", value=median(bus), samples=bus, direction="higher", role=role),
            Value(metric="latency_us", unit="us", value=median(micro), samples=micro, role=role),
            *_without_dispatch(queued),
            _shown("algbw_gb_per_s", "GB/s", algorithm_gb_per_s(largest, found[largest]), "higher"),
            _shown(
                "busbw_rank_mean_gb_per_s",
                "GB/s",
                bus_gb_per_s(self.operation, self.ranks, largest, mean_of_ranks),
                "higher",
            ),
            _shown("alpha_us", "us", 1e6 * line.alpha_s),
            _shown("fitted_gb_per_s", "GB/s", line.bytes_per_s / 1e9, "higher"),
            _shown("half_bandwidth_bytes", "B", line.half_bandwidth_bytes),
            Value(
                metric="wrong_elements",
                unit="1",
                value=float(sum(r["wrong"] for r in self.by_rank)),
                exact=True,
                role="gate",
            ),
        ]
        values += [
            _shown(f"time_us_{_size_name(size)}", "us", 1e6 * seconds)
            for size, seconds in found.items()
            if size != smallest
        ]
        self.curve = [
            {"bytes": size, "us": 1e6 * s, "busbw_gb_per_s": bus_gb_per_s(self.operation, self.ranks, size, s)}
            for size, s in found.items()
        ]
        return values

    def notes(self) -> dict[str, Any]:
        """The sweep as a curve: microseconds of the slowest rank and bandwidth at every size."""
        return {"curve": self.curve}


def _without_dispatch(queued: Sequence[float]) -> list[Value]:
    """The latency without the host's part; nothing where the host itself moves the data."""
    micro = [1e6 * seconds for seconds in queued]
    unit: dict[str, Any] = {"unit": "us", "role": "watch"}
    return [Value(metric="latency_queued_us", value=median(micro), samples=micro, **unit)] if micro else []


def _shown(metric: str, unit: str, value: float, direction: str = "lower") -> Value:
    return Value(metric=metric, unit=unit, value=value, direction=direction, role="derived")


def _size_name(size: float) -> str:
    for unit, factor in (("gib", 2**30), ("mib", 2**20), ("kib", 2**10)):
        if size >= factor:
            return f"{size / factor:g}_{unit}"
    return f"{size:g}_b"


def sweep(rank: int, ranks: int, argument: dict[str, Any]) -> dict[str, Any]:
    """One rank's part: check, then time, each size."""
    operation, device = Operation(argument["operation"]), argument["device"]
    wrong, seconds, queued = 0, [], []
    for size in argument["sizes"]:
        if (argument["transport"] or "").startswith("symm"):
            ready = prepare_symmetric(operation, rank, ranks, int(size), argument["transport"])
        else:
            payload = Payload(DTYPES[argument["dtype"]], rank, ranks, device)
            ready = prepare(operation, payload, int(size), in_place=argument["in_place"])
        wrong += check(operation, rank, ranks, ready)
        seconds.append(_timed(ready, device, argument["seconds_per_size"]))
        if device == "cuda" and size == min(argument["sizes"]):
            queued = queued_seconds(ready.call, partial(_begin_together, ready))
    return {"wrong": wrong, "seconds": seconds, "queued": queued}


@dataclass(frozen=True, slots=True)
class Payload:
    """Whole numbers that add up exactly in their precision, whatever the order; every rank has its own.

    Single precision holds all below 2^24, bf16 all up to 256: eight ranks of at most 12 + 7 stay below.
    """

    dtype: torch.dtype
    rank: int
    ranks: int
    device: str

    def base(self, elements: int) -> Tensor:
        """The part of the payload that all ranks share."""
        numbers = torch.arange(elements, device=self.device, dtype=torch.float32)
        return (numbers % (251 if self.dtype is torch.float32 else 13)).to(self.dtype)

    @property
    def apart(self) -> int:
        """The part of the payload by which a rank differs from the one before it."""
        return 1000 if self.dtype is torch.float32 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """An operation about to be called: what it reads, where its result appears, and what restores its input."""

    call: Callable[[], Any]
    refill: Callable[[], Any]
    result: Tensor
    base: Tensor
    part: int
    """Elements of one rank's part, or of one unit of an uneven exchange."""
    apart: int = 1000


def partner(rank: int, ranks: int) -> int:
    """The other side of a pairwise exchange."""
    return (rank + 1) % ranks if rank % 2 == 0 else (rank - 1) % ranks


def prepare(operation: Operation, payload: Payload, size: int, *, in_place: bool) -> Ready:
    """Buffers of `size` total bytes, rounded to whole elements, and to whole parts where ranks have parts.

    In place means that the input is a slice of the output, or the other way round; all_reduce, reduce and broadcast
    are always.
    """
    rank, ranks, least = payload.rank, payload.ranks, least_elements(operation, payload.ranks)
    units = max(1, size // payload.dtype.itemsize // least)
    base = payload.base(units * least)
    mine = base + payload.apart * rank
    whole = torch.empty_like(mine)
    made = partial(Ready, base=base, part=units, apart=payload.apart)
    refilled: Callable[[], Any] = partial(whole.copy_, mine)

    match operation:
        case Operation.ALL_REDUCE:
            ready = made(call=lambda: dist.all_reduce(whole), refill=refilled, result=whole)
        case Operation.REDUCE:
            ready = made(call=lambda: dist.reduce(whole, 0), refill=refilled, result=whole)
        case Operation.BROADCAST:
            start = mine if rank == 0 else torch.full_like(mine, float("nan"))
            ready = made(call=lambda: dist.broadcast(whole, 0), refill=lambda: whole.copy_(start), result=whole)
        case Operation.ALL_GATHER | Operation.REDUCE_SCATTER:
            own = slice(rank * units, (rank + 1) * units)
            part = whole[own] if in_place else torch.empty_like(mine[:units])
            source = mine[:units].clone()
            if operation is Operation.ALL_GATHER:
                ready = made(call=lambda: _gather(whole, part), refill=lambda: part.copy_(source), result=whole)
            else:
                ready = made(call=lambda: _scatter(part, whole), refill=refilled, result=part)
        case Operation.ALL_TO_ALL:
            ready = made(call=lambda: dist.all_to_all_single(whole, mine), refill=_nothing, result=whole)
        case Operation.ALL_TO_ALLV:
            # Rank r has for s what s has for r, so the same parts come as go.
            parts = [units * sent_to(rank, other, ranks) for other in range(ranks)]
            ready = made(call=lambda: dist.all_to_all_single(whole, mine, parts, parts), refill=_nothing, result=whole)
        case Operation.SEND_RECV:
            ready = made(call=_exchange(mine, whole, partner(rank, ranks)), refill=_nothing, result=whole)
    return ready


def prepare_symmetric(operation: Operation, rank: int, ranks: int, size: int, transport: str) -> Ready:
    """As `prepare`, for torch's kernels on symmetric memory: buffers that every rank of the group has mapped."""
    from torch.distributed import _symmetric_memory as symmetric

    part = max(1, size // 4 // ranks)
    base = torch.arange(part * ranks, device="cuda", dtype=torch.float32) % 251
    mine, group, kernels = base + 1000 * rank, dist.distributed_c10d._get_default_group().group_name, torch.ops.symm_mem

    here = torch.device("cuda", torch.cuda.current_device())

    def mapped(elements: int) -> Tensor:
        buffer = symmetric.empty(elements, dtype=torch.float32, device=here)
        symmetric.rendezvous(buffer, group)
        return buffer

    ready = partial(Ready, base=base, part=part)
    if operation is Operation.ALL_GATHER:
        into, source = mapped(part * ranks), mine[:part].clone()
        return ready(call=lambda: kernels.multimem_all_gather_out(source, group, into), refill=_nothing, result=into)
    shared = mapped(part * ranks)
    ready = partial(ready, refill=lambda: shared.copy_(mine))
    if operation is Operation.REDUCE_SCATTER:
        own = torch.empty(part, device="cuda")
        return ready(call=lambda: kernels.reduce_scatter_out(shared, group, False, own), result=own)
    if transport == "symm_one_shot":
        summed = torch.empty_like(mine)
        return ready(call=lambda: kernels.one_shot_all_reduce_out(shared, "sum", group, summed), result=summed)
    in_place = kernels.multimem_all_reduce_ if transport == "symm_multimem" else kernels.two_shot_all_reduce_
    return ready(call=lambda: in_place(shared, "sum", group), result=shared)


def _nothing() -> None:
    """The input survives the call."""


def _exchange(sent: Tensor, received: Tensor, other: int) -> Callable[[], None]:
    def both_ways() -> None:
        sending, receiving = dist.isend(sent, other), dist.irecv(received, other)
        for request in (sending, receiving):
            if request is not None:
                request.wait()

    return both_ways


def check(operation: Operation, rank: int, ranks: int, ready: Ready) -> int:
    """Elements that differ from what arithmetic says, out of poisoned buffers."""
    ready.result.fill_(float("nan"))
    ready.refill()
    ready.call()
    wanted = expected(operation, rank, ranks, ready)
    if ready.result.is_cuda:
        torch.cuda.synchronize()
    return 0 if wanted is None else int((ready.result != wanted).sum())


def expected(operation: Operation, rank: int, ranks: int, ready: Ready) -> Tensor | None:
    """The expected payload; None where this rank is promised nothing."""
    base, part, apart = ready.base, ready.part, ready.apart
    own = slice(rank * part, (rank + 1) * part)
    if operation in (Operation.ALL_REDUCE, Operation.REDUCE, Operation.REDUCE_SCATTER):
        if operation is Operation.REDUCE and rank > 0:
            return None
        summed = base * ranks + apart * (ranks * (ranks - 1) // 2)
        return summed[own] if operation is Operation.REDUCE_SCATTER else summed
    if operation is Operation.ALL_GATHER:
        return torch.cat([base[:part] + apart * r for r in range(ranks)])
    if operation is Operation.ALL_TO_ALL:
        return torch.cat([base[own] + apart * r for r in range(ranks)])
    if operation is Operation.ALL_TO_ALLV:
        return torch.cat([base[_uneven(r, rank, ranks, part)] + apart * r for r in range(ranks)])
    return base if operation is Operation.BROADCAST else base + apart * partner(rank, ranks)


def _uneven(sender: int, receiver: int, ranks: int, unit: int) -> slice:
    """Where the sender's buffer has what the receiver gets."""
    before = unit * sum(sent_to(sender, other, ranks) for other in range(receiver))
    return slice(before, before + unit * sent_to(sender, receiver, ranks))


def _timed(ready: Ready, device: str, seconds: float) -> list[float]:
    """Refill, barrier, then one call, again and again; all ranks make the same number of calls."""
    for _ in range(WARM_UP):
        _once(ready, device)
    began = time.perf_counter()
    for _ in range(3):
        _once(ready, device)
    each = torch.tensor([(time.perf_counter() - began) / 3], device=device)
    dist.all_reduce(each, op=dist.ReduceOp.MAX)
    iterations = max(LEAST_ITERATIONS, min(400, int(seconds / max(float(each), 1e-6))))
    return [_once(ready, device) for _ in range(iterations)]


def _begin_together(ready: Ready) -> None:
    ready.refill()
    dist.barrier()


def _once(ready: Ready, device: str) -> float:
    _begin_together(ready)
    if device == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        ready.call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000
    began = time.perf_counter()
    ready.call()
    return time.perf_counter() - began
