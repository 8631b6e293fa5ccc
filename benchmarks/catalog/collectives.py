"""Collectives: one benchmark per operation."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bandwidth import Operation
from benchmarks.spec import Benchmark, Case, Preset, Reference

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = {
    Preset.CPU: (KIB, 64 * KIB, MIB, 4 * MIB),
    Preset.SMOKE: (KIB, MIB, 64 * MIB, GIB),
    Preset.FULL: (*(KIB * 4**power for power in range(11)), 8 * GIB),
}
RANKS = {Preset.CPU: (2,), Preset.SMOKE: (2,), Preset.FULL: (2, 4, 8)}
SECONDS_PER_SIZE = {Preset.CPU: 0.12, Preset.SMOKE: 0.5, Preset.FULL: 2.0}
WITH_PLACEMENT = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)

_WHAT = {
    Operation.ALL_REDUCE: "every rank ends with the sum of all buffers: gradients under DDP",
    Operation.ALL_GATHER: "every rank ends with all parts: weights under FSDP",
    Operation.REDUCE_SCATTER: "every rank ends with its part of the sum: gradients under FSDP",
    Operation.ALL_TO_ALL: "every rank sends each other rank its own part: tokens to experts",
    Operation.BROADCAST: "every rank ends with rank 0's buffer: start-up of weights",
    Operation.SEND_RECV: "pairs of ranks exchange buffers: pipeline stages",
}
_REFERENCES = (
    Reference(figure="8×H100 without NVLS: 360–370 GB/s busbw at 1 GB and up", source="NVIDIA/nccl-tests issue 326"),
    Reference(
        figure="8×H100 or H200 all_reduce with NVLS: 475–480 GB/s", source="NVIDIA/nccl-tests issues 272 and 290"
    ),
)


def _cases_of(operation: Operation) -> Callable[[Preset], tuple[Case, ...]]:
    def cases(preset: Preset) -> tuple[Case, ...]:
        cpu = preset is Preset.CPU
        placements = ["out_of_place"]
        if not cpu and operation in WITH_PLACEMENT:
            placements.append("in_place")
        if operation in (Operation.ALL_REDUCE, Operation.BROADCAST):
            placements = ["in_place"]
        return tuple(
            Case(
                variant={"ranks": ranks, "placement": placement},
                config={
                    "operation": str(operation),
                    "ranks": ranks,
                    "placement": placement,
                    "sizes": list(SIZES[preset]),
                    "seconds_per_size": SECONDS_PER_SIZE[preset],
                    "device": "cpu" if cpu else "cuda",
                    "dtype": "fp32",
                },
                backend="gloo" if cpu else "nccl",
                world_size=ranks,
                processes=1 if cpu else None,
                timeout_s=120 if cpu else 600,
            )
            for ranks in RANKS[preset]
            for placement in placements
        )

    return cases


BENCHMARKS = tuple(
    Benchmark(
        id=f"coll.{operation}",
        title=f"Collective {operation}, sweep of sizes",
        mode="collective",
        workload="benchmarks.workloads.collectives:Collective",
        cases=_cases_of(operation),
        meaning=f"{operation}: {_WHAT[operation]}. Each iteration starts at a barrier and lasts as long as its slowest "
        "rank; the value is the median over iterations, with the mean over ranks, as nccl-tests reports it, beside it. "
        "Payloads are whole numbers, distinct per rank, and compared exactly before anything is timed. On one rank "
        "nothing crosses a link: not applicable, never 0.",
        formula="algbw = S/t with S the TOTAL bytes (all ranks' output of a gather, input of a scatter), decimal GB; "
        "busbw = algbw × factor: all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all (n−1)/n; broadcast and "
        "send_recv 1. 1 GiB in 15.2 ms on 8 ranks of an all_reduce: 70.6 × 1.75 = 123.6 GB/s. Times of all sizes are "
        "fitted by t = alpha + S/B; half of the bandwidth is reached at alpha·B.",
        bound="Small sizes: latency alpha. Large ones: NVLink, 450 GB/s a direction on H200; the 900 GB/s of data "
        "sheets counts both directions.",
        references=_REFERENCES,
        builtin="torch.distributed",
        distributed=True,
    )
    for operation in Operation
)
