"""Collectives: one benchmark per operation."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.analysis.bandwidth import Operation, least_elements
from benchmarks.spec import Benchmark, Case, Preset, PublishedFigure

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = {
    Preset.CPU: (8, KIB, 64 * KIB, MIB, 4 * MIB),
    Preset.SMOKE: (8, KIB, MIB, 64 * MIB, GIB),
    Preset.FULL: (8, 64, 256, *(KIB * 4**power for power in range(11)), 8 * GIB),
}
"""From 8 bytes, or from one element a rank where ranks have parts: there a call costs what it costs to be made."""
BYTES = {"fp32": 4, "bf16": 2}
RANKS = {Preset.CPU: (2,), Preset.SMOKE: (2,), Preset.FULL: (2, 4, 8)}
SECONDS_PER_SIZE = {Preset.CPU: 0.12, Preset.SMOKE: 0.5, Preset.FULL: 2.0}
WITH_PLACEMENT = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)

IN_SWITCH = ("nvls_on", "nvls_off")
"""NCCL with or without NVLink SHARP, in which the switch adds and copies."""
TRANSPORTS = {
    Operation.ALL_REDUCE: (*IN_SWITCH, "symm_one_shot", "symm_two_shot", "symm_multimem"),
    Operation.ALL_GATHER: (*IN_SWITCH, "symm_multimem"),
    Operation.REDUCE_SCATTER: (*IN_SWITCH, "symm_one_shot"),
}
"""Ways of one operation besides what NCCL chooses by itself; `symm_*` are torch's kernels on symmetric memory."""
ONE_SHOT_UP_TO = 64 * MIB
"""Every rank reads all of every other's buffer in one shot: made for small messages."""

_NOT_ON_A_CPU = "{} is a way between GPUs linked by NVLink; gloo carries the ranks of a CPU"

_WHAT = {
    Operation.ALL_REDUCE: "every rank ends with the sum of all buffers: gradients under DDP",
    Operation.ALL_GATHER: "every rank ends with all parts: weights under FSDP",
    Operation.REDUCE_SCATTER: "every rank ends with its part of the sum: gradients under FSDP",
    Operation.ALL_TO_ALL: "every rank sends each other rank its own part: tokens to experts",
    Operation.BROADCAST: "every rank ends with rank 0's buffer: start-up of weights",
    Operation.SEND_RECV: "pairs of ranks exchange buffers: pipeline stages",
    Operation.REDUCE: "rank 0 ends with the sum of all buffers: sharded optimizers, checkpoints of metrics",
    Operation.ALL_TO_ALLV: "as all_to_all, with 1, 2, … n parts for the ranks: experts with unequal loads",
}
_REFERENCES = (
    PublishedFigure(
        figure="8×H100 without NVLS: 360–370 GB/s busbw at 1 GB and up", source="NVIDIA/nccl-tests issue 326"
    ),
    PublishedFigure(
        figure="8×H100 or H200 all_reduce with NVLS: 475–480 GB/s", source="NVIDIA/nccl-tests issues 272 and 290"
    ),
)
_SMALL = (
    PublishedFigure(
        figure="0.5 MB on two GPUs: 7 us in one shot on symmetric memory, 11 us by NCCL",
        source="vllm-project/vllm pull request 24111",
    ),
)


def _cases_of(operation: Operation) -> Callable[[Preset], tuple[Case, ...]]:
    def cases(preset: Preset) -> tuple[Case, ...]:
        cpu = preset is Preset.CPU
        placements = ["out_of_place"]
        if not cpu and operation in WITH_PLACEMENT:
            placements.append("in_place")
        if operation in (Operation.ALL_REDUCE, Operation.BROADCAST, Operation.REDUCE):
            placements = ["in_place"]
        ways: list[tuple[str, str | None, str]] = [(placement, None, "fp32") for placement in placements]
        ways.append((placements[0], None, "bf16"))
        ways += [(placements[0], transport, "fp32") for transport in TRANSPORTS.get(operation, ())]
        return tuple(_case(operation, preset, ranks, *way) for ranks in RANKS[preset] for way in ways)

    return cases


def _case(operation: Operation, preset: Preset, ranks: int, placement: str, transport: str | None, dtype: str) -> Case:
    cpu = preset is Preset.CPU
    variant: dict[str, str | int] = {"ranks": ranks, "placement": placement}
    if dtype != "fp32":
        variant["dtype"] = dtype
    least = BYTES[dtype] * least_elements(operation, ranks)
    sizes = sorted({max(size, least) for size in SIZES[preset]})
    if transport is not None:
        variant["transport"] = transport
        sizes = [size for size in sizes if transport != "symm_one_shot" or size <= ONE_SHOT_UP_TO]
    return Case(
        variant=variant,
        config={
            "operation": str(operation),
            "ranks": ranks,
            "placement": placement,
            "sizes": sizes,
            "seconds_per_size": SECONDS_PER_SIZE[preset],
            "device": "cpu" if cpu else "cuda",
            "dtype": dtype,
            **({"transport": transport} if transport else {}),
        },
        backend="gloo" if cpu else "nccl",
        world_size=ranks,
        not_applicable=_NOT_ON_A_CPU.format(transport) if cpu and transport else None,
        processes=1 if cpu else None,
        timeout_s=120 if cpu else 600,
    )


BENCHMARKS = tuple(
    Benchmark(
        id=f"coll.{operation}",
        title=f"Collective {operation}, sweep of sizes",
        mode="collective",
        workload="benchmarks.workloads.collectives:Collective",
        cases=_cases_of(operation),
        meaning=f"{operation}: {_WHAT[operation]}. Each iteration starts at a barrier and lasts as long as its slowest "
        "rank; the value is the median over iterations, accompanied by the mean over ranks, as nccl-tests reports it. "
        "latency_us, for the smallest size, includes the time the host takes to launch; latency_queued_us (GPUs) does "
        "not: it is the mean of twenty calls that wait in the queue together. "
        "Payloads are integers, distinct per rank, and compared exactly before anything is timed. On one rank "
        "nothing crosses a link: not applicable, never 0. The transport is NCCL's choice, or is named: NVLink SHARP on "
        "or off, or one of torch's kernels on symmetric memory (one shot, two shots, in the switch with multimem).",
        formula="algbw = S/t with S the TOTAL bytes (all ranks' output of a gather, input of a scatter), decimal GB; "
        "busbw = algbw × factor: all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all (n−1)/n; broadcast, "
        "reduce and send_recv 1; all_to_allv 1 − 2/(n(n+1)), for the rank that keeps least. 1 GiB in 15.2 ms on 8 "
        "ranks of an all_reduce: 70.6 × 1.75 = 123.6 GB/s. Times of all sizes are fitted by t = alpha + S/B; half of "
        "the bandwidth is reached at alpha·B.",
        bound="Small sizes: latency alpha. Large ones: NVLink, 450 GB/s per direction on H200; the 900 GB/s in data "
        "sheets counts both directions.",
        references=(*_REFERENCES, *_SMALL) if operation is Operation.ALL_REDUCE else _REFERENCES,
        builtin="torch.distributed",
        distributed=True,
    )
    for operation in Operation
)
