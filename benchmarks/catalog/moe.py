"""Mixture of experts: the layer under three implementations and three loads, and a small model of such layers."""

from __future__ import annotations

from typing import Any

from benchmarks.spec import FEW, Benchmark, Case, Preset, PublishedFigure

CPU_SIZES = {
    "width": 128,
    "expert_width": 256,
    "experts": 8,
    "top_k": 2,
    "tokens": 1024,
    "dtype": "fp32",
    "device": "cpu",
}
SHAPES: dict[str, dict[str, int]] = {
    "mixtral": {"width": 4096, "expert_width": 14336, "experts": 8, "top_k": 2},
    "olmoe": {"width": 2048, "expert_width": 1024, "experts": 64, "top_k": 8},
    "deepseek_v3": {"width": 7168, "expert_width": 2048, "experts": 256, "top_k": 8, "shared": 1},
}
IMPLEMENTATIONS, LOADS = ("loop", "capacity", "grouped_mm"), ("uniform", "zipf", "hot")

SIGNATURE = """\
layer(x, bias, weights, config) -> y
    x (T, C) tokens; bias (T, E) added to the router's scores for the choice only; weights: router_CE (C, E),
    gate_ECF and up_ECF (E, C, F), down_EFC (E, F, C); y (T, C), differentiable in x and all weights.
    With S > 0 shared experts also shared_gate_CF and shared_up_CF (C, S·F), shared_down_FC (S·F, C), else None; what
    they say of every token is added unweighted.
    config: width (C), expert_width (F), experts (E), top_k (K), shared (S), tokens (T), dtype, device,
    capacity_factor.
    Each token goes to the K experts of highest score + bias; their outputs, SwiGLU (silu(x@gate) * (x@up)) @ down,
    are added with the soft-max of the K chosen scores (without the bias) as weights. No token may be dropped.
    Timed: the call, then y.backward with a fixed random upstream gradient."""

_FORMULA = (
    "FLOP forward per token = 2·C·E (router) + 6·K·C·F (routed SwiGLU experts) + 6·S·C·F (shared ones), active "
    "parameters; training 3 times that. Bytes: 3·E·C·F·width of expert weights a pass, all experts touched; dispatch "
    "and combination 2·T·K·C·width each."
)


def _layer_case(sizes: dict[str, Any], impl: str, load: str, shape: str | None = None) -> Case:
    variant: dict[str, Any] = {"shape": shape, "tokens": sizes["tokens"]} if shape else {}
    variant |= {
        "impl": impl,
        "experts": sizes["experts"],
        "top_k": sizes["top_k"],
        "load": load,
        "dtype": sizes["dtype"],
    }
    few = FEW if sizes["device"] == "cpu" else None
    return Case(variant=variant, config={**sizes, "impl": impl, "load": load}, processes=few)


def _layer_cases(preset: Preset) -> tuple[Case, ...]:
    if preset is Preset.CPU:
        pairs = [("loop", "uniform"), ("capacity", "uniform"), ("grouped_mm", "uniform"), ("grouped_mm", "zipf")]
        return tuple(_layer_case(CPU_SIZES, impl, load) for impl, load in [*pairs, ("grouped_mm", "hot")])
    if preset is Preset.SMOKE:
        sizes = {**SHAPES["olmoe"], "tokens": 4096, "dtype": "bf16", "device": "cuda"}
        return tuple(_layer_case(sizes, impl, "uniform", "olmoe") for impl in IMPLEMENTATIONS)
    cases: list[Case] = []
    for shape, widths in SHAPES.items():
        whole = {**widths, "tokens": 16384, "dtype": "bf16", "device": "cuda"}
        cases += [_layer_case(whole, impl, load, shape) for impl in IMPLEMENTATIONS for load in LOADS]
    # The same layer at a quarter of the rows per expert, 128 instead of 512: under the ridge, so bound by memory.
    few = {**SHAPES["deepseek_v3"], "tokens": 4096, "dtype": "bf16", "device": "cuda"}
    cases += [_layer_case(few, impl, "uniform", "deepseek_v3") for impl in IMPLEMENTATIONS]
    return tuple(cases)


def _infer_cases(preset: Preset) -> tuple[Case, ...]:
    """From one token to the width of a batch that serves many; the loop is what a project without a kernel has."""
    if preset is Preset.CPU:
        return tuple(_infer_case({**CPU_SIZES, "tokens": 8}, impl) for impl in ("grouped_mm", "loop"))
    few = (16,) if preset is Preset.SMOKE else (1, 16, 256)
    where = {"dtype": "bf16", "device": "cuda"}
    return tuple(
        _infer_case({**SHAPES[shape], "tokens": tokens, **where}, impl, shape)
        for shape in ("olmoe", "mixtral")
        for tokens in few
        for impl in ("grouped_mm", "loop")
        if shape == "olmoe" or preset is Preset.FULL
    )


def _infer_case(sizes: dict[str, Any], impl: str, shape: str = "small") -> Case:
    return Case(
        variant={"shape": shape, "impl": impl, "tokens": sizes["tokens"]},
        config={**sizes, "impl": impl, "load": "uniform"},
        processes=FEW if sizes["device"] == "cpu" else None,
    )


MODES = ("eager", "cuda_graph", "default", "reduce-overhead", "max-autotune")
"""Eager; eager, its forward and backward passes captured and replayed; compiled; compiled with graphs; autotuned."""
_COMPILING = "compiling takes some 30 s on a CPU for a step of 20 ms; compile.cold measures it"
_NOT_ON_A_CPU = {
    "cuda_graph": "a CPU has no graphs to capture: there is no queue to replay them on",
    **dict.fromkeys(("default", "reduce-overhead", "max-autotune"), _COMPILING),
}


def _model_case(sizes: dict[str, Any], compile_mode: str, reason: str | None = None) -> Case:
    return Case(
        variant={"impl": "grouped_mm", "compile": compile_mode, "dtype": sizes["dtype"]},
        config={**sizes, "impl": "grouped_mm", "compile": compile_mode},
        backend={"eager": "eager", "cuda_graph": "cuda_graph"}.get(compile_mode, "inductor"),
        not_applicable=reason,
        timeout_s=900,
        processes=FEW if sizes["device"] == "cpu" else None,
    )


def _model_cases(preset: Preset) -> tuple[Case, ...]:
    experts = {"expert_width": 128, "experts": 8, "top_k": 2}
    if preset is Preset.CPU:
        sizes = {"n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 256, "vocab_size": 512, "batch_size": 1}
        cpu = {**sizes, **experts, "dtype": "fp32", "device": "cpu"}
        return tuple(_model_case(cpu, mode, _NOT_ON_A_CPU.get(mode)) for mode in MODES)
    # 0.9 G weights, of which a token visits 0.2 G: the check keeps them in double precision with gradients and moments.
    sizes = {"n_layer": 8, "n_head": 16, "n_embd": 1024, "block_size": 2048, "vocab_size": 50304}
    experts = {"expert_width": 512, "experts": 64, "top_k": 8}
    batch = 1 if preset is Preset.SMOKE else 8
    whole = {**sizes, **experts, "batch_size": batch, "dtype": "bf16", "device": "cuda"}
    return tuple(_model_case(whole, mode) for mode in (("eager",) if preset is Preset.SMOKE else MODES))


BENCHMARKS = (
    Benchmark(
        id="moe.layer",
        title="Mixture-of-experts layer, with a plug-in point",
        mode="train_step",
        workload="benchmarks.workloads.moe.layer:MoeLayer",
        cases=_layer_cases,
        meaning="One MoE layer forward and backward: router, dispatch, expert products, combination. Built in are the "
        "loop over experts (the honest baseline), fixed capacity 1.25 with batched products (drops tokens, says how "
        "many) and dropless grouped products, each with uniform, Zipf (1/rank^0.8) and one-hot-expert loads. Besides "
        "time: imbalance, drop rate, padding waste, and host syncs, the classical regression of such layers.",
        formula=_FORMULA,
        bound="Matrix products when T·K/E rows per expert put the intensity over the ridge (206 FLOP/B on H200), else "
        "the memory traffic of the experts' weights: DeepSeek-V3-like shapes are compute-bound at 16k tokens (414) and "
        "memory-bound at 4k (121).",
        references=(
            PublishedFigure(
                figure="grouped GEMM up to 2.62× a loop over experts on H100",
                source="PyTorch blog on persistent Triton grouped GEMM",
            ),
            PublishedFigure(
                figure="30B MoE, 8×H100 bf16: 328 model TFLOP/s per GPU (33 %)",
                source="NeMo AutoModel performance summary",
            ),
        ),
        signature=SIGNATURE,
        chooses=("impl",),
        builtin="benchmarks.workloads.moe.layer:grouped, loop_over_experts, capacity_bmm",
    ),
    Benchmark(
        id="moe.infer",
        title="Mixture-of-experts layer during generation, few tokens",
        mode="decode",
        workload="benchmarks.workloads.moe.inference:MoeInference",
        cases=_infer_cases,
        meaning="The layer of moe.layer without gradients, on 1 to 256 tokens: what each generated token pays. Nearly "
        "all of it is reading the weights of the chosen experts; a good implementation avoids the cost of sorting, "
        "dispatch and launches, which is negligible in training.",
        formula="T·(2·C·E + 6·K·C·F) FLOP; 3·C·F·width bytes for each expert that is touched, of which there are "
        "E·(1 − (1 − K/E)^T) on average: of 64 experts, 8 chosen, 8 by one token and 56 by 16.",
        bound="Memory bandwidth of the touched weights; with one token the launches, a dozen of them.",
        references=(PublishedFigure(figure="4.8 TB/s HBM3e", source="H200 SXM data sheet"),),
        signature=SIGNATURE,
        chooses=("impl",),
        builtin="benchmarks.workloads.moe.layer:grouped, loop_over_experts",
    ),
    Benchmark(
        id="moe.model",
        title="Small mixture-of-experts model, training step",
        mode="train_step",
        workload="benchmarks.workloads.moe.model:MoeModel",
        cases=_model_cases,
        meaning="A GPT whose MLPs are MoE layers, trained for one step: what the layer's gains are worth next to "
        "attention, head and optimizer. Eager, with its passes captured as CUDA graphs (`cuda_graph`), compiled, "
        "compiled with graphs (`reduce-overhead`) and autotuned.",
        formula=f"6·N_active + 12·L·C·T per token; N_active counts the K experts a token visits. {_FORMULA}",
        bound="The optimizer's traffic over all experts' weights when batches are small; matrix products otherwise.",
        references=(
            PublishedFigure(
                figure="16B DeepSeek-V3-like: 13.5 → 21 % MFU on 8×B200", source="pytorch/torchtitan pull request 1993"
            ),
        ),
        signature=SIGNATURE,
        chooses=("impl",),
        builtin="benchmarks.workloads.moe.layer:grouped",
    ),
)
