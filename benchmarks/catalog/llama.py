"""Llama block: the modern dense layer."""

from __future__ import annotations

from typing import Any

from benchmarks.catalog.kernels import NO_FP8
from benchmarks.spec import FEW, Benchmark, Case, Preset, PublishedFigure

LLAMA_8B = {"width": 4096, "heads": 32, "kv_heads": 8, "inner": 14336, "context": 8192, "batch_size": 1}

SIGNATURE = """\
block(x, weights, cos, sin, *, heads, kv_heads) -> y
    x and y (B, T, C); weights by name: attention_norm, ffn_norm (C); query, output (C, C); key, value (C, G·D);
    gate, up (C, F); down (F, C), all applied as x @ weight; cos and sin (T, D) for rotation on halves.
    RMSNorm eps 1e-5, causal grouped-query attention, SwiGLU, pre-norm residuals. Differentiable in x and all weights.
    Timed: the call, then y.backward with a fixed random upstream gradient."""


EIGHT_BITS: dict[str, dict[str, bool]] = {"fp8": {"fp8": True}, "fp8_fast": {"fp8": True, "fast_accumulation": True}}


def _case(sizes: dict[str, Any], compile_mode: str, reason: str | None = None, dtype: str | None = None) -> Case:
    return Case(
        variant={"compile": compile_mode, "dtype": dtype or sizes["dtype"]},
        config={**sizes, "compile": compile_mode, **EIGHT_BITS.get(dtype or "", {})},
        backend="eager" if compile_mode == "eager" else "inductor",
        not_applicable=reason,
        timeout_s=900,
        processes=FEW if sizes["device"] == "cpu" else None,
    )


def _cases(preset: Preset) -> tuple[Case, ...]:
    if preset is Preset.CPU:
        sizes = {"width": 128, "heads": 4, "kv_heads": 2, "inner": 384, "context": 256, "batch_size": 2}
        cpu = {**sizes, "dtype": "fp32", "device": "cpu"}
        slow = "compiling takes some 20 s on a CPU for a step of 10 ms; compile.cold measures it"
        return (
            _case(cpu, "eager"),
            _case(cpu, "default", slow),
            _case(cpu, "max-autotune-no-cudagraphs", slow),
            *(_case(cpu, "default", NO_FP8, dtype) for dtype in EIGHT_BITS),
        )
    gpu = {**LLAMA_8B, "dtype": "bf16", "device": "cuda"}
    if preset is Preset.SMOKE:
        return (_case(gpu, "eager"),)
    modes = ("eager", "default", "max-autotune-no-cudagraphs")
    return (*(_case(gpu, mode) for mode in modes), *(_case(gpu, "default", dtype=dtype) for dtype in EIGHT_BITS))


def _checkpoint_cases(preset: Preset) -> tuple[Case, ...]:
    cpu = preset is Preset.CPU
    small = {"width": 64, "heads": 4, "kv_heads": 2, "inner": 192, "context": 128, "batch_size": 1}
    sizes = {**small, "dtype": "fp32", "device": "cpu"} if cpu else {**LLAMA_8B, "dtype": "bf16", "device": "cuda"}
    return tuple(
        Case(
            variant={"keep": keep},
            config={**sizes, "compile": "eager", "n_layer": 4, "keep": keep},
            timeout_s=900,
            processes=FEW if cpu else None,
        )
        for keep in ("all", "products", "none")
    )


BENCHMARKS = (
    Benchmark(
        id="llama.block",
        title="Llama-3-8B block, forward and backward",
        mode="forward_backward",
        workload="benchmarks.workloads.llama.block:LlamaBlock",
        cases=_cases,
        meaning="One block of Llama-3-8B (C 4096, 32 heads on 8 key-value heads, F 14336, T 8192): RMSNorm, rotary "
        "positions, grouped-query attention, SwiGLU. Eager, compiled, with autotuned products, and compiled with the "
        "seven weight products in fp8: operands scaled by their largest value at every call, e4m3 forward, e5m2 "
        "for gradients, weights kept in bf16. `fp8_fast` accumulates the forward products with fewer bits, as is "
        "common in float8 training, and gradients exactly. The MFU of both is relative to the bf16 peak.",
        formula="T·B·(6·N_mm + 12·C·T); N_mm = 218,103,808 at full size: 1.711 GFLOP per token with full attention, "
        "1.510 causal.",
        bound="Matrix products; element-wise work is a sixth of the time until it is fused.",
        references=(
            PublishedFigure(
                figure="8B on 8×H100: 33.7 % MFU with FSDP, 39.0 % compiled (recomputed from tokens/s)",
                source="pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md",
            ),
            PublishedFigure(
                figure="8B on 8×H100, tokens/s per GPU: FSDP 5,762, compiled 6,667, compiled with float8 8,532",
                source="pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md",
            ),
        ),
        signature=SIGNATURE,
        chooses=("compile",),
        builtin="benchmarks.workloads.llama.block:block",
    ),
    Benchmark(
        id="llama.checkpoint",
        title="Four Llama blocks with different activation checkpointing",
        mode="forward_backward",
        workload="benchmarks.workloads.llama.checkpoint:LlamaCheckpoint",
        cases=_checkpoint_cases,
        meaning="Activation checkpointing on four blocks of Llama-3-8B: `all` keeps every activation, `none` keeps "
        "the input of a block and recomputes the rest, `products` (selective) keeps the results of matrix products and "
        "of attention and recomputes the cheap rest. Its cost in time is measured together with what it saves: "
        "activation_bytes (not for `products`, whose activations torch stores separately) and peak memory.",
        formula="L·T·B·(6·N_mm + 12·C·T) with L 4; recomputation is not counted, so that tokens_per_s and mfu "
        "are comparable. `none` does a third more.",
        bound="Matrix products.",
        references=(
            PublishedFigure(
                figure="`none` makes 1 forward pass again for 1 forward and 1 backward pass: 4/3 of the FLOP",
                source="counted: a backward pass has two products for each of the forward pass",
            ),
        ),
        builtin="torch.utils.checkpoint",
    ),
)
