"""Attention as models have it besides: packed documents, latent attention, pages of a cache."""

from __future__ import annotations

from typing import Any

from benchmarks.spec import FEW, Benchmark, Case, Preset, PublishedFigure

ONLY_CUDA = "torch has this kernel for GPUs only"
COMPILED = "FlexAttention and compiled decoding are made for accelerators; a CPU would compile for seconds a plain loop"
HBM = PublishedFigure(figure="4.8 TB/s HBM3e", source="H200 SXM data sheet")
PEAK = PublishedFigure(figure="989.5 TFLOP/s bf16 dense", source="H200 SXM data sheet")


def _case(preset: Preset, variant: dict[str, Any], config: dict[str, Any], way: str, reason: str | None = None) -> Case:
    cpu = preset is Preset.CPU
    where = {"dtype": "fp32", "device": "cpu"} if cpu else {"dtype": "bf16", "device": "cuda"}
    return Case(
        variant=variant,
        config={**config, **where},
        backend={"compiled": "inductor"}.get(way, way),
        not_applicable=reason if cpu else None,
        processes=FEW if cpu else None,
    )


def _packed_cases(preset: Preset) -> tuple[Case, ...]:
    small = {"tokens": 1024, "longest": 512, "heads": 4, "head_dim": 64}
    large = {"tokens": 32768, "longest": 8192, "heads": 16, "head_dim": 128}
    sizes = small if preset is Preset.CPU else large
    return tuple(
        _case(
            preset,
            {"how": how, "longest": sizes["longest"]},
            {**sizes, "how": how},
            how,
            ONLY_CUDA if how == "varlen" else None,
        )
        for how in ("varlen", "padded", "loop")
        if preset is not Preset.SMOKE or how == "varlen"
    )


def _latent_cases(preset: Preset) -> tuple[Case, ...]:
    small = {"batch_size": 1, "heads": 4, "length": 256, "head_dim": 48, "value_dim": 32}
    large = {"batch_size": 4, "heads": 128, "length": 4096, "head_dim": 192, "value_dim": 128}
    sizes = small if preset is Preset.CPU else large
    lacking = {"sdpa_cudnn": ONLY_CUDA, "sdpa_efficient": ONLY_CUDA, "flex": "FlexAttention has no backward on a CPU"}
    ways = ("padded_flash", "sdpa_cudnn", "sdpa_efficient", "flex", *(["sdpa_math"] if preset is Preset.CPU else []))
    return tuple(
        _case(
            preset,
            {"backend": way, "length": sizes["length"], "head_dim": sizes["head_dim"], "value_dim": sizes["value_dim"]},
            {**sizes, "backend": way},
            way,
            lacking.get(way),
        )
        for way in ways
        if preset is not Preset.SMOKE or way == "padded_flash"
    )


def _latent_decode_cases(preset: Preset) -> tuple[Case, ...]:
    small = {"heads": 8, "latent": 72, "value_dim": 64, "scaled_by": 48}
    large = {"heads": 128, "latent": 576, "value_dim": 512, "scaled_by": 192}
    sizes = small if preset is Preset.CPU else large
    batches = {Preset.CPU: ((2, 256),), Preset.SMOKE: ((32, 8192),), Preset.FULL: ((1, 32768), (32, 8192))}[preset]
    return tuple(
        _case(
            preset,
            {"how": how, "batch": batch, "length": length},
            {**sizes, "how": how, "batch_size": batch, "length": length},
            how,
            COMPILED if how == "compiled" else None,
        )
        for how in ("products", "compiled")
        for batch, length in batches
        if preset is not Preset.SMOKE or how == "products"
    )


def _paged_cases(preset: Preset) -> tuple[Case, ...]:
    small = {"heads": 8, "kv_heads": 2, "head_dim": 64, "page": 32, "batch_size": 4, "length": 256}
    large = {"heads": 32, "kv_heads": 8, "head_dim": 128, "page": 128, "batch_size": 64, "length": 8192}
    sizes = small if preset is Preset.CPU else large
    lacking = {"flex": COMPILED, "block_table": ONLY_CUDA}
    # FlashAttention-2 takes tables of pages whose size is a multiple of 256.
    pages = {"block_table": {"page": 256}}
    return tuple(
        _case(
            preset,
            {"how": how, "batch": sizes["batch_size"], "length": sizes["length"]},
            {**sizes, "how": how, **pages.get(how, {})},
            how,
            lacking.get(how),
        )
        for how in ("gather", "flex", "block_table")
    )


BENCHMARKS = (
    Benchmark(
        id="attn.packed",
        title="Attention of packed documents, forward and backward",
        mode="forward_backward",
        workload="benchmarks.workloads.attention.packed:PackedAttention",
        cases=_packed_cases,
        meaning="Causal attention within documents of unequal lengths, stored one after another: with torch's "
        "kernel for variable lengths, by padding all to the longest, and with one call for each. The counter "
        "padding_waste is the share of a padded batch that is padding.",
        formula="FLOP = 2·H·Σ n(n+1)/2·(2·D) forward over documents of n tokens, 2.5 times that backward.",
        bound="Matrix units for long documents; launches and half-empty tiles for short ones.",
        references=(PEAK,),
        builtin="torch.nn.attention.varlen.varlen_attn",
    ),
    Benchmark(
        id="attn.mla",
        title="Latent attention in training: keys of 192, values of 128",
        mode="forward_backward",
        workload="benchmarks.workloads.attention.latent:LatentTraining",
        cases=_latent_cases,
        meaning="Attention as DeepSeek-V3 trains it: 128 heads whose queries and keys are wider than their values. "
        "Kernels that support only one width get padded values (`padded_flash`); the others take them unpadded. A "
        "backend that has no kernel for these widths is not applicable, and a silent fallback is an error.",
        formula="FLOP = 2·B·H·S·K·(D+V) forward with K = (S+1)/2, 2·B·H·S·K·(3·D + 2·V) backward; padding not counted.",
        bound="Matrix units.",
        references=(PEAK,),
        builtin="torch.nn.functional.scaled_dot_product_attention",
    ),
    Benchmark(
        id="attn.mla_decode",
        title="Latent attention of one new token, with one cache for all heads",
        mode="decode",
        workload="benchmarks.workloads.attention.latent:LatentDecoding",
        cases=_latent_decode_cases,
        meaning="The absorbed form that DeepSeek-V3 serves: 128 queries of width 576 per sequence against one latent "
        "cache, whose first 512 columns are also the values. Two batched products with a softmax in between, eager and "
        "compiled; both read the cache twice, while a fused kernel would read it once.",
        formula="bytes = B·S·L·width of cache, counted once; 2·B·H·S·(L+V) FLOP; cache_gb_per_s = bytes / time.",
        bound="With 128 heads 242 FLOP a byte: near the ridge of 206, so that both memory and matrix units matter.",
        references=(HBM, PEAK),
        builtin="torch.bmm, torch.softmax",
    ),
    Benchmark(
        id="attn.paged",
        title="Attention of one new token against a paged cache",
        mode="decode",
        workload="benchmarks.workloads.attention.paged:PagedDecoding",
        cases=_paged_cases,
        meaning="Decoding as servers do it: each sequence's keys and values are in pages of 128 tokens scattered over "
        "a pool. `gather` copies them into a row and calls SDPA; `flex` gives FlexAttention a block mask that finds "
        "them; `block_table` passes the table itself to torch's kernel for variable lengths, with pages of 256 tokens. "
        "The check changes all pages that a sequence does not hold: its output must not change.",
        formula="bytes = 2·Σs·G·D·width, the tokens s that sequences hold, read once; cache_gb_per_s = bytes / time.",
        bound="Memory bandwidth; a copy beforehand triples the traffic.",
        references=(HBM,),
        builtin="torch.nn.functional.scaled_dot_product_attention, torch.nn.attention.flex_attention, "
        "torch.nn.attention.varlen.varlen_attn",
    ),
)
