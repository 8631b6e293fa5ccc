"""Dense GPT: the optimisation ladder, and the training step a project plugs its own model into."""

from __future__ import annotations

from benchmarks.spec import FEW, Benchmark, Case, Preset, PublishedFigure
from benchmarks.workloads.gpt.config import Rung, ladder

GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "vocab_size": 50304}
TINY = {"n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 256, "vocab_size": 512, "batch_size": 1}
"""A step of about 15 ms on one CPU thread: short, because many pairs with the yardstick beat few long ones, and with
a context long enough that attention is a third of it."""

UNPADDED = {"cpu": 509, "smoke": 50257, "full": 50257}
"""Odd sizes as GPT-2's own 50,257: the ladder pads them at its tenth rung."""

SMOKE_RUNGS = ("r00_fp32_from_scratch", "r02_tf32", "r05_bf16", "r07_flash_attention", "r08_compile")
"""One of every kind of change: the smoke preset must be over within two minutes, all benchmarks together."""

FORMULA = (
    "flop_per_token = 6·N_mm + 12·L·C·T (PaLM appendix B: forward 2, backward 4 per weight; no causal discount, no "
    "recompute); N_mm = 12·L·C² + V·C, the weights of matrix products, the tied head once, embeddings not at all. "
    "The causal count, 6·N_mm + 6·L·C·T, is carried beside it. GPT-2 124M, V=50304, T=1024: N_mm = 123,568,128, "
    "854.65 MFLOP per token (798.0 causal). tokens_per_s = B·T / step time."
)
SIGNATURE = """\
build(config: GptConfig) -> torch.nn.Module
    config has n_layer, n_head, n_embd, block_size (T), vocab_size (V), batch_size (B), dtype, device, learning_rate,
    betas, eps, weight_decay.
    The module maps token ids (B, T) int64 to logits (B, T, V). It is GPT-2: learned positions, pre-LayerNorm
    (eps 1e-5), causal attention with biases, MLP of width 4·C with tanh GELU, head tied to the token embedding.
    Its parameters carry GPT-2's names, Linear weights as (out, in), so that the suite can load one seeded set into
    every implementation:
        wte.weight  wpe.weight  h.<i>.ln_1.*  h.<i>.attn.c_attn.*  h.<i>.attn.c_proj.*
        h.<i>.ln_2.*  h.<i>.mlp.c_fc.*  h.<i>.mlp.c_proj.*  ln_f.*
    A prefix `transformer.` and a tied lm_head.weight are understood; masks and other buffers are left alone.
    Another layout: define load_weights(model, weights: dict[str, Tensor]) beside build, and
    named_gradients(model) -> dict[str, Tensor] under the names above.
optimizer(model: torch.nn.Module, config: GptConfig) -> object with step() and zero_grad()   [optional, same module]
    AdamW with the config's learning_rate, betas, eps and weight_decay on every parameter.
    Absent: torch.optim.AdamW(fused=True).
Timed: next batch, forward with cross-entropy, backward, optimizer step and zero_grad. Inputs, check, formula and
phases are the suite's."""


def _train_cases(preset: Preset) -> tuple[Case, ...]:
    if preset is Preset.CPU:
        return (
            Case(
                variant={"model": "tiny", "dtype": "fp32"},
                config={**TINY, "dtype": "fp32", "device": "cpu"},
                timeout_s=120,
            ),
        )
    batch = 8 if preset is Preset.SMOKE else 64
    config = {**GPT2, "batch_size": batch, "dtype": "bf16", "device": "cuda"}
    return (Case(variant={"model": "gpt2-124m", "dtype": "bf16"}, config=config, timeout_s=900),)


def _ladder_cases(preset: Preset) -> tuple[Case, ...]:
    chosen = [rung for rung in ladder() if preset is not Preset.SMOKE or rung.name in SMOKE_RUNGS]
    return tuple(_ladder_case(rung, preset) for rung in chosen)


def _ladder_case(rung: Rung, preset: Preset) -> Case:
    sizes = dict(TINY) if preset is Preset.CPU else {**GPT2, "batch_size": 4 if preset is Preset.SMOKE else 16}
    if not rung.padded_vocabulary:
        sizes["vocab_size"] = UNPADDED[preset]
    device = "cpu" if preset is Preset.CPU else "cuda"
    config = {
        **sizes,
        "dtype": "bf16" if rung.bf16 else "fp32",
        "device": device,
        "text_vocabulary": UNPADDED[preset],
        "rung": rung.name,
    }
    compiled = rung.compiled and preset is not Preset.CPU
    return Case(
        variant={"rung": rung.name},
        config=config,
        backend="inductor" if compiled else "eager",
        not_applicable=_never_on_cpu(rung.name) if preset is Preset.CPU else None,
        timeout_s=120 if preset is Preset.CPU else 900,
        processes=FEW if preset is Preset.CPU else None,
    )


def _never_on_cpu(rung: str) -> str | None:
    return {
        "r02_tf32": "TF32 is a mode of NVIDIA's matrix units; a CPU has none, so this rung would repeat r01",
        "r04_pinned_memory": "pinned memory speeds copies to an accelerator; on a CPU nothing is copied, so this rung "
        "would repeat r03",
        "r08_compile": "compiling takes some 25 s on a CPU for a step of 15 ms, so the cpu preset leaves it out of the "
        "ladder (r09 and r10 run uncompiled there); compile.cold measures it",
    }.get(rung)


def _ddp_cases(preset: Preset) -> tuple[Case, ...]:
    cpu = preset is Preset.CPU
    if cpu:
        sizes = {**TINY, "n_layer": 1, "block_size": 128, "dtype": "fp32", "device": "cpu", "steps": 12}
        chosen = [("none", 1, True), ("ddp", 2, True), ("fsdp2", 2, True)]
    else:
        sizes = {
            **GPT2,
            "batch_size": 16,
            "dtype": "bf16",
            "compile": "inductor",
            "device": "cuda",
            "steps": 20 if preset is Preset.SMOKE else 60,
        }
        ranks = (2,) if preset is Preset.SMOKE else (2, 4, 8)
        chosen = [(how, n, overlap) for how in ("ddp", "fsdp2") for n in ranks for overlap in (True, False)]
        chosen.insert(0, ("none", 1, True))
    return tuple(
        Case(
            variant={"strategy": strategy, "ranks": ranks, "overlap": "on" if overlap else "off"},
            config={**sizes, "strategy": strategy, "ranks": ranks, "overlap": overlap},
            backend="gloo" if cpu else "nccl",
            world_size=ranks,
            processes=1 if cpu else None,
            timeout_s=120 if cpu else 900,
        )
        for strategy, ranks, overlap in chosen
    )


BENCHMARKS = (
    Benchmark(
        id="gpt.train",
        title="GPT training step, with a plug-in point",
        mode="train_step",
        workload="benchmarks.workloads.gpt.training:GptTraining",
        cases=_train_cases,
        meaning="One optimizer step of a dense GPT-2: batch, forward with cross-entropy, backward, AdamW. A project "
        "plugs in its model and its optimizer; the number shows how a commit changed the cost of a token.",
        formula=FORMULA,
        bound="Compute on a GPU once attention is fused and shapes are padded; below that, memory traffic of unfused "
        "element-wise work. On a CPU: single-thread matrix products and the traffic of the attention matrix.",
        references=(
            PublishedFigure(
                figure="463k tokens/s per GPU, 40 % MFU, 8×H100",
                source="llm.c, in the README of KellerJordan/modded-nanogpt, record 1",
            ),
            PublishedFigure(
                figure="303k tokens/s per GPU at 216.33 ms a step, 8×H100",
                source="KellerJordan/modded-nanogpt, record of 2024-10-10",
            ),
        ),
        signature=SIGNATURE,
        builtin="benchmarks.workloads.gpt.model:build",
    ),
    Benchmark(
        id="gpt.ladder",
        title="GPT-2 optimization ladder, r00 to r10",
        mode="train_step",
        workload="benchmarks.workloads.gpt.training:GptLadder",
        cases=_ladder_cases,
        meaning="The same training step in eleven rungs; each adds one thing to the rung below: r00 fp32 from "
        "scratch, r01 mask on the fly, r02 TF32, r03 fused AdamW, r04 pinned memory, r05 bf16, r06 torch LayerNorm and "
        "GELU, r07 flash attention, r08 compile, r09 padded vocabulary, r10 largest batch. The ratio of two "
        "neighbours is the benefit of that one change on this machine; r01 and r04 are neutral by design.",
        formula=FORMULA,
        bound="r00 to r06: the memory traffic of the attention matrix and of unfused layers; from r07 on matrix "
        "products; r10 the compute ceiling. H200 at 100 % of 989.5 TFLOP/s: 1,157,000 tokens/s.",
        references=(
            PublishedFigure(
                figure="one A100, tokens/s: r00 12,525 · r01 12,526 · r02 27,648 · r03 28,399 · r04 28,402 · "
                "r05 45,486 · r06 55,256 · r07 91,901 · r08 112,046 · r09 127,345 · r10 142,156 (38.9 % MFU)",
                source="the published A100 ladder for GPT-2 124M; up to r07 averages over a run, from r08 single steps",
            ),
        ),
        builtin="benchmarks.workloads.gpt.model:Gpt",
    ),
    Benchmark(
        id="gpt.ddp",
        title="GPT training step on several ranks, DDP and FSDP2",
        mode="train_step",
        workload="benchmarks.workloads.gpt.distributed:GptDistributed",
        cases=_ddp_cases,
        meaning="The same training step on n ranks: with DDP, which sums gradients during the backward pass, and "
        "with FSDP2, which also gathers the weights; without overlap, DDP sends one bucket at the end and FSDP2 "
        "gathers all of its weights at once. It measures the step alone, on all ranks, and on all ranks "
        "without communication, after comparing averaged gradients with those of one process. One rank, strategy "
        "none, is the start of the scaling curve.",
        formula="scaling_efficiency = tokens/s on n ranks over n times tokens/s on one; exposed_communication = step "
        "less the same step without communication (DDP: no_sync; FSDP2: the unsharded step). " + FORMULA,
        bound="The link, once the backward pass is too short to hide 2(n−1)/n bytes of gradients per byte of weights. "
        "Efficiency below 80 % deserves a look; below 70 % it is a fault.",
        references=(
            PublishedFigure(
                figure="4×A100: 419,259 tokens/s, 73.7 % of four single ones", source="the published A100 ladder"
            ),
            PublishedFigure(
                figure="8×H100: 463k tokens/s per GPU", source="llm.c, in the README of KellerJordan/modded-nanogpt"
            ),
        ),
        builtin="benchmarks.workloads.gpt.model:build",
        distributed=True,
    ),
)
