"""Layers divided among ranks: experts, the inner width of an MLP, the sequence of an attention."""

from __future__ import annotations

from typing import Any

from benchmarks.spec import Benchmark, Case, Preset, PublishedFigure

RANKS = {Preset.CPU: (2,), Preset.SMOKE: (2,), Preset.FULL: (2, 4, 8)}
STEPS = {Preset.CPU: 12, Preset.SMOKE: 20, Preset.FULL: 60}
MEANING = (
    " Each step begins at a barrier and lasts as long as its slowest rank. The same collectives are also timed alone: "
    "what they take, and which share of the step that would be without any overlap. Outputs and "
    "gradients of every rank are first compared with those of the whole layer in one process."
)


def _case(
    preset: Preset, variant: dict[str, Any], config: dict[str, Any], ranks: int, flop: float, tokens: int
) -> Case:
    cpu = preset is Preset.CPU
    where = {"dtype": "fp32", "device": "cpu"} if cpu else {"dtype": "bf16", "device": "cuda"}
    sizes = {"ranks": ranks, "steps": STEPS[preset], "flop_per_rank": flop, "tokens_per_rank": tokens}
    return Case(
        variant={**variant, "ranks": ranks},
        config={**config, **where, **sizes},
        backend="gloo" if cpu else "nccl",
        world_size=ranks,
        processes=1 if cpu else None,
        timeout_s=120 if cpu else 900,
    )


def _expert_cases(preset: Preset) -> tuple[Case, ...]:
    small = {"width": 64, "expert_width": 128, "experts": 8, "top_k": 2, "tokens": 512}
    large = {"width": 2048, "expert_width": 1024, "experts": 64, "top_k": 8, "tokens": 8192}
    sizes = small if preset is Preset.CPU else large
    shape = "small" if preset is Preset.CPU else "olmoe"
    per_token = 2 * sizes["width"] * sizes["experts"] + 6 * sizes["top_k"] * sizes["width"] * sizes["expert_width"]
    flop = 3.0 * sizes["tokens"] * per_token
    return tuple(
        _case(preset, {"shape": shape}, {"kind": "experts", **sizes}, n, flop, sizes["tokens"]) for n in RANKS[preset]
    )


def _tensor_cases(preset: Preset) -> tuple[Case, ...]:
    small, large = {"tokens": 256, "width": 128, "inner": 512}, {"tokens": 8192, "width": 4096, "inner": 14336}
    sizes = small if preset is Preset.CPU else large
    flop = 18.0 * sizes["tokens"] * sizes["width"] * sizes["inner"]
    return tuple(
        _case(preset, {"style": style}, {"kind": "tensor", "style": style, **sizes}, n, flop / n, sizes["tokens"] // n)
        for style in ("all_reduce", "sequence")
        for n in RANKS[preset]
    )


def _context_cases(preset: Preset) -> tuple[Case, ...]:
    small = {"heads": 4, "kv_heads": 2, "length": 512, "head_dim": 32}
    large = {"heads": 32, "kv_heads": 8, "length": 32768, "head_dim": 128}
    sizes = small if preset is Preset.CPU else large
    S = sizes["length"]
    flop = 3.5 * 4 * sizes["heads"] * S * (S + 1) / 2 * sizes["head_dim"]
    return tuple(_case(preset, {"length": S}, {"kind": "context", **sizes}, n, flop / n, S // n) for n in RANKS[preset])


_LINKS = PublishedFigure(figure="NVLink 450 GB/s a direction", source="H200 SXM data sheet")

BENCHMARKS = (
    Benchmark(
        id="moe.parallel",
        title="Mixture of experts, with the experts divided among ranks",
        mode="forward_backward",
        workload="benchmarks.workloads.parallel:DividedLayer",
        cases=_expert_cases,
        meaning="One MoE layer whose experts are spread over the ranks: each rank routes its own tokens, counts are "
        "exchanged, rows are sent to the ranks of their experts by all_to_all with uneven parts, multiplied in "
        "groups, and sent back. The host must know the counts before it can send: one sync per step." + MEANING,
        formula="FLOP per rank = 3·T·(2·C·E + 6·K·C·F), active parameters, T tokens per rank; four exchanges of T·K·C "
        "elements per step, of which (n−1)/n leave the rank.",
        bound="The links at small widths, grouped products at large ones: 2·T·K·C·width bytes each way against "
        "6·T·K·C·F FLOP.",
        references=(_LINKS,),
        builtin="torch.distributed.all_to_all_single, torch.nn.functional.grouped_mm",
        distributed=True,
    ),
    Benchmark(
        id="parallel.tensor",
        title="SwiGLU MLP, with its inner width divided among ranks",
        mode="forward_backward",
        workload="benchmarks.workloads.parallel:DividedLayer",
        cases=_tensor_cases,
        meaning="Tensor parallelism of a Llama MLP: every rank has a part of the inner width. In the style all_reduce, "
        "the input is the same everywhere and outputs are summed; in the style sequence, tokens are divided, "
        "gathered before, and summed and scattered after." + MEANING,
        formula="FLOP per rank = 18·T·C·F/n; two all_reduce, or two all_gather and two reduce_scatter, of T·C elements "
        "a step.",
        bound="Matrix products while F/n stays in the thousands; the links beyond.",
        references=(_LINKS,),
        builtin="torch.distributed.all_reduce, all_gather, reduce_scatter",
        distributed=True,
    ),
    Benchmark(
        id="parallel.context",
        title="Causal attention, with its sequence divided among ranks",
        mode="forward_backward",
        workload="benchmarks.workloads.parallel:DividedLayer",
        cases=_context_cases,
        meaning="Context parallelism by gathering: every rank keeps its queries and gathers all keys and values; their "
        "gradients are summed and scattered. Each rank has one piece from the front of the sequence and its mirror "
        "from the back, so that all see equally many keys." + MEANING,
        formula="FLOP per rank = 3.5·4·H·S·(S+1)/2·D/n; all_gather and reduce_scatter of 2·S·G·D elements a step.",
        bound="Matrix units at long sequences: arithmetic grows with S², what is gathered with S.",
        references=(_LINKS,),
        builtin="torch.nn.functional.scaled_dot_product_attention",
        distributed=True,
    ),
)
