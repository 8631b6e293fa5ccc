"""Single kernels that every model is made of: norms, soft-max, the loss over a vocabulary, products of few rows."""

from __future__ import annotations

from typing import Any

from benchmarks.spec import FEW, Benchmark, Case, Preset, PublishedFigure

COMPILING = "compiling takes seconds on a CPU for a kernel of milliseconds; compile.cold measures it"
NO_FP8 = "fp8 products are made for GPUs of compute capability 8.9 and up"
HBM = PublishedFigure(figure="4.8 TB/s HBM3e", source="H200 SXM data sheet")


def case(variant: dict[str, Any], config: dict[str, Any], *, reason: str | None = None) -> Case:
    """A case of this family; `how` says whether it is compiled."""
    compiled = config["how"] == "compiled"
    cpu = config["device"] == "cpu"
    return Case(
        variant=variant,
        config=config,
        backend="inductor" if compiled else "eager",
        not_applicable=reason or (COMPILING if compiled and cpu else None),
        processes=FEW if cpu else None,
    )


def _where(preset: Preset) -> dict[str, Any]:
    return {"dtype": "fp32", "device": "cpu"} if preset is Preset.CPU else {"dtype": "bf16", "device": "cuda"}


def _norm_cases(preset: Preset) -> tuple[Case, ...]:
    rows = 512 if preset is Preset.CPU else 16384
    widths = {Preset.CPU: (512,), Preset.SMOKE: (4096,), Preset.FULL: (2048, 4096, 8192)}[preset]
    return tuple(
        case(
            {"kind": kind, "how": how, "width": width},
            {"kind": kind, "how": how, "rows": rows, "width": width, **_where(preset)},
        )
        for kind in ("rms", "layer")
        for how in ("torch", "compiled")
        for width in widths
    )


def _softmax_cases(preset: Preset) -> tuple[Case, ...]:
    rows = 128 if preset is Preset.CPU else 8192
    columns = {Preset.CPU: (4096,), Preset.SMOKE: (8192,), Preset.FULL: (1024, 8192, 50304)}[preset]
    return tuple(
        case({"how": how, "columns": size}, {"how": how, "rows": rows, "columns": size, **_where(preset)})
        for how in ("torch", "compiled")
        for size in columns
    )


def _loss_cases(preset: Preset) -> tuple[Case, ...]:
    small = {"rows": 256, "width": 64, "vocabulary": 2048, "chunk": 64}
    large = {"rows": 8192, "width": 4096, "vocabulary": 128256, "chunk": 1024}
    sizes = small if preset is Preset.CPU else large
    hows = ("plain", "chunked") if preset is Preset.SMOKE else ("plain", "compiled", "chunked")
    return tuple(
        case({"how": how, "vocabulary": sizes["vocabulary"]}, {"how": how, **sizes, **_where(preset)}) for how in hows
    )


def _skinny_cases(preset: Preset) -> tuple[Case, ...]:
    cpu = preset is Preset.CPU
    sizes = {"inner": 512, "columns": 2048} if cpu else {"inner": 8192, "columns": 28672}
    rows = {Preset.CPU: (1, 16), Preset.SMOKE: (16,), Preset.FULL: (1, 16, 64)}[preset]
    hows = ("mm", "fp8_exact", "fp8_fast")
    return tuple(
        case(
            {"how": how, "rows": count},
            {"how": how, "rows": count, **sizes, **_where(preset)},
            reason=NO_FP8 if cpu and how != "mm" else None,
        )
        for how in hows
        for count in rows
        if count >= 16 or how == "mm"
    )


BENCHMARKS = (
    Benchmark(
        id="kernel.norm",
        title="RMSNorm and LayerNorm, forward and backward",
        mode="forward_backward",
        workload="benchmarks.workloads.kernels:Norm",
        cases=_norm_cases,
        meaning="One normalization over the last dimension of 16k rows, with torch's own kernel and the compiler's. "
        "It does almost no arithmetic: a good kernel reads and writes every element once per pass.",
        formula="bytes = 5·R·C·width: x and y forward; x, the gradient of y and that of x backward; gb_per_s = bytes / "
        "time. FLOP = 12·R·C, for the roofline only.",
        bound="Memory bandwidth: 4.8 TB/s on one H200, of which a copy reaches some 4.2.",
        references=(HBM,),
        builtin="torch.nn.functional.rms_norm, layer_norm",
    ),
    Benchmark(
        id="kernel.softmax",
        title="Softmax over rows, forward and backward",
        mode="forward_backward",
        workload="benchmarks.workloads.kernels:Softmax",
        cases=_softmax_cases,
        meaning="Softmax over the last dimension, from a row of attention to a row of a vocabulary, with torch's own "
        "kernel and with the compiler's. Long rows do not fit a block's registers, so kernels read them twice.",
        formula="bytes = 5·R·V·width: x and y forward; y, its gradient and that of x backward; gb_per_s = bytes / "
        "time. FLOP = 9·R·V, for the roofline only.",
        bound="Memory bandwidth: 4.8 TB/s on one H200, of which a copy reaches some 4.2.",
        references=(HBM,),
        builtin="torch.softmax",
    ),
    Benchmark(
        id="kernel.linear_cross_entropy",
        title="Loss over a vocabulary, from hidden states, forward and backward",
        mode="forward_backward",
        workload="benchmarks.workloads.kernels:LinearCrossEntropy",
        cases=_loss_cases,
        meaning="The head of a language model with its loss: hidden states times the vocabulary's weights, then cross "
        "entropy. `plain` keeps the logits, which are larger than anything else in the step; `compiled` fuses what "
        "follows the product; `chunked` computes the logits of 1,024 rows at a time together with their gradients, so "
        "that none are kept. Besides time, activation_bytes and peak memory matter here.",
        formula="FLOP = 6·R·C·V: one product forward, two backward; nothing is recomputed by any of them.",
        bound="Matrix products; `plain` moves some 12 bytes per logit besides.",
        references=(
            PublishedFigure(
                figure="R 8192, C 4096, V 128,256: logits of 2.1 GB in bf16, 4.2 GB in fp32",
                source="counted from the sizes of Llama 3",
            ),
        ),
        builtin="torch.nn.functional.cross_entropy",
    ),
    Benchmark(
        id="kernel.skinny_gemm",
        title="Product of a few rows with a large matrix",
        mode="decode",
        workload="benchmarks.workloads.kernels:SkinnyGemm",
        cases=_skinny_cases,
        meaning="The cost of a layer during generation: 1 to 64 rows times weights of 8192×28672 (the MLP of a 70B "
        "Llama), which are read once for all rows. In bf16, and in fp8 with exact and with fast accumulation, which "
        "keeps fewer bits of the running sum.",
        formula="bytes = (K·N + R·K)·width + 2·R·N; gb_per_s = bytes / time; 2·R·K·N FLOP.",
        bound="Memory bandwidth of the weights: at 16 rows 16 FLOP a byte, where the ridge is 206.",
        references=(HBM,),
        builtin="torch.mm, torch._scaled_mm",
    ),
)
