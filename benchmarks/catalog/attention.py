"""Attention: training shapes by backend and mask, and decoding from a cache."""

from __future__ import annotations

from typing import Any

from benchmarks.spec import FEW, Benchmark, Case, Preset, PublishedFigure

CPU_SHAPE = {
    "batch_size": 1,
    "heads": 4,
    "kv_heads": 4,
    "length": 512,
    "head_dim": 64,
    "dtype": "fp32",
    "device": "cpu",
}
TOKENS, HEADS_TIMES_DIM = 16384, 2048
BACKENDS = ("sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "sdpa_math")

_NO_CPU_KERNEL = "torch has no {} kernel for a CPU; only flash and math run there"
_NO_FLEX_DECODING = (
    "FlexAttention decodes by a kernel made for accelerators; on a CPU it would compile for some 12 s a plain loop"
)
_NO_FLEX_BACKWARD = "FlexAttention has no backward pass on a CPU"
_NO_GRAPH = "a CUDA graph needs a GPU"
_TOLD_CAUSAL_ALONE = "an implementation is told `causal` and nothing else; it cannot be asked for the {} mask"

TRAIN_SIGNATURE = """\
attention(q, k, v, *, causal: bool) -> out
    q (B, H, S, D), k and v (B, G, S, D) with H a multiple of G (grouped queries); out (B, H, S, D), differentiable.
    Scores are scaled by 1/sqrt(D). Timed: the call, then out.backward with a fixed random upstream gradient."""
DECODE_SIGNATURE = """\
decode(q, k, v, lengths) -> out
    q (B, H, 1, D); k and v (B, G, S, D), a cache of which sequence b holds lengths[b] entries; out (B, H, 1, D).
    Timed: the call, without gradients."""


def _train_case(preset: Preset, shape: dict[str, Any], backend: str, mask: str) -> Case:
    reason = None
    if preset is Preset.CPU and backend in ("sdpa_efficient", "sdpa_cudnn"):
        reason = _NO_CPU_KERNEL.format(backend.removeprefix("sdpa_"))
    elif preset is Preset.CPU and backend == "flex":
        reason = _NO_FLEX_BACKWARD
    variant = {"backend": backend, "mask": mask, "length": shape["length"], "head_dim": shape["head_dim"]}
    if shape["kv_heads"] != shape["heads"]:
        variant["kv_heads"] = shape["kv_heads"]
    config = {**shape, "backend": backend, "mask": mask, "window": max(64, shape["length"] // 8)}
    few = FEW if preset is Preset.CPU else None
    return Case(
        variant=variant,
        config=config,
        backend=backend,
        not_applicable=reason,
        built_in_only=None if mask in ("full", "causal") else _TOLD_CAUSAL_ALONE.format(mask),
        timeout_s=300,
        processes=few,
    )


def _gpu_shape(length: int, head_dim: int, kv_share: int = 1) -> dict[str, Any]:
    heads = HEADS_TIMES_DIM // head_dim
    return {
        "batch_size": max(1, TOKENS // length),
        "heads": heads,
        "kv_heads": heads // kv_share,
        "length": length,
        "head_dim": head_dim,
        "dtype": "bf16",
        "device": "cuda",
    }


def _train_cases(preset: Preset) -> tuple[Case, ...]:
    if preset is Preset.CPU:
        cases = [_train_case(preset, CPU_SHAPE, backend, "causal") for backend in BACKENDS]
        cases.append(_train_case(preset, {**CPU_SHAPE, "kv_heads": 2}, "sdpa_flash", "causal"))
        cases += [_train_case(preset, CPU_SHAPE, "flex", mask) for mask in ("causal", "window", "document")]
        cases.append(_train_case(preset, CPU_SHAPE, "best", "causal"))
        return tuple(cases)
    if preset is Preset.SMOKE:
        smoke = ("sdpa_flash", "sdpa_cudnn", "flex", "best")
        return tuple(_train_case(preset, _gpu_shape(4096, 128), backend, "causal") for backend in smoke)
    cases = []
    for width in (64, 128):
        for length in (512, 1024, 2048, 4096, 8192, 16384, 32768):
            shape = _gpu_shape(length, width)
            cases += [_train_case(preset, shape, b, "causal") for b in BACKENDS if b != "sdpa_math" or length <= 4096]
            cases += [_train_case(preset, shape, backend, "causal") for backend in ("flex", "best")]
    cases += [_train_case(preset, _gpu_shape(8192, 256), b, "causal") for b in ("sdpa_flash", "flex", "best")]
    long = _gpu_shape(8192, 128)
    cases += [_train_case(preset, long, "flex", mask) for mask in ("window", "document")]
    cases += [_train_case(preset, long, "sdpa_flash", "full")]
    cases += [_train_case(preset, _gpu_shape(8192, 128, kv_share=4), b, "causal") for b in ("sdpa_flash", "flex")]
    return tuple(cases)


def _decode_cases(preset: Preset) -> tuple[Case, ...]:
    if preset is Preset.CPU:
        shape = {"heads": 8, "kv_heads": 2, "head_dim": 64, "dtype": "fp32", "device": "cpu"}
        cases = [_decode_case(shape, b, 256) for b in (1, 8)]
        cases.append(_decode_case(shape, 8, 256, "flex", reason=_NO_FLEX_DECODING))
        return (*cases, _decode_case(shape, 8, 256, launch="graph", reason=_NO_GRAPH))
    shape = {"heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bf16", "device": "cuda"}
    batches, lengths = ((8,), (8192,)) if preset is Preset.SMOKE else ((1, 8, 64), (1024, 8192, 32768))
    ways = (("sdpa", "calls"), ("flex", "calls"), ("sdpa", "graph"))
    return tuple(_decode_case(shape, b, s, *way) for b in batches for s in lengths for way in ways)


def _decode_case(
    shape: dict[str, Any],
    batch: int,
    length: int,
    backend: str = "sdpa",
    launch: str = "calls",
    reason: str | None = None,
) -> Case:
    variant: dict[str, Any] = {"batch": batch, "length": length}
    if backend != "sdpa":
        variant["backend"] = backend
    if launch != "calls":
        variant["launch"] = launch
    return Case(
        variant=variant,
        config={**shape, "backend": backend, "launch": launch, "batch_size": batch, "length": length},
        backend=backend,
        not_applicable=reason,
        processes=FEW if shape["device"] == "cpu" else None,
    )


BENCHMARKS = (
    Benchmark(
        id="attn.train",
        title="Attention forward and backward, with a forced backend",
        mode="forward_backward",
        workload="benchmarks.workloads.attention.dense:AttentionTraining",
        cases=_train_cases,
        meaning="One attention call and its backward pass at the shapes of training (16k tokens a batch, heads × width "
        "2048). The backend is forced, and the dispatched kernel proves that it ran: a silent fallback is an error, "
        "not a slow result. `best` tries every backend at the shape, takes the fastest, and names it in the notes "
        "of the result. Masks: full, causal, sliding window, packed documents; grouped queries. forward_tflops and "
        "backward_tflops are comparable with published figures.",
        formula="FLOP = 2·B·H·S·K·(2·D) forward, with K the mean number of keys a query sees, element-exact (causal "
        "(S+1)/2, the window's and documents' own means); the backward pass counts 2.5 times that, recomputation "
        "included. Grouped queries change bytes, not FLOP. Other tools count block sparsity or softmax FLOP: their "
        "numbers are not comparable.",
        bound="Matrix units from S of about 1k; below that launch latency. The math backend writes the S×S matrix "
        "and is bound by memory.",
        references=(
            PublishedFigure(
                figure="H100, fp16, D 128, causal forward TFLOP/s at S 512·1k·2k·4k·8k·16k: FlashAttention-3 "
                "292·423·521·579·602·616; cuDNN 315·410·484·518·529·539; FlashAttention-2 191·260·298·319·333·335",
                source="FlashAttention-3 paper, figures read through a third-party extraction",
            ),
            PublishedFigure(
                figure="H100, fp16, D 128, backward TFLOP/s: FlashAttention-3 316·424·501·542·559·561; cuDNN "
                "305·408·465·499·518·516; FlashAttention-2 214·260·291·310·318·322",
                source="FlashAttention-3 paper, as above",
            ),
        ),
        signature=TRAIN_SIGNATURE,
        chooses=("backend",),
        builtin="torch.nn.functional.scaled_dot_product_attention",
    ),
    Benchmark(
        id="attn.decode",
        title="Attention of one new token against a cache",
        mode="decode",
        workload="benchmarks.workloads.attention.dense:AttentionDecoding",
        cases=_decode_cases,
        meaning="What each generated token pays to read the keys and values before it: a batch of single queries, "
        "grouped heads, sequences of unequal lengths. With SDPA, where torch chooses the kernel and the notes of the "
        "result name it, and with FlexAttention's decoding kernel; `launch=graph` replays the call as a CUDA graph, as "
        "servers do, which removes the host's part. On a GPU, the cache of the device is flushed before each step, "
        "outside its timed part: in a model, the other layers' keys and weights have passed through it meanwhile. The "
        "arithmetic rate means nothing here; bytes do.",
        formula="bytes = 2·B·S·G·D·width, the cache read once; cache_gb_per_s = bytes / time.",
        bound="Memory bandwidth: 4.8 TB/s on one H200, of which a good kernel reaches 80 %; small batches leave "
        "most of the chip idle unless the sequence is split over it.",
        references=(PublishedFigure(figure="4.8 TB/s HBM3e", source="H200 SXM data sheet"),),
        signature=DECODE_SIGNATURE,
        chooses=("backend", "launch"),
        builtin="torch.nn.functional.scaled_dot_product_attention",
    ),
)
