"""Attention: training shapes with each backend forced, and decoding from a key-value cache."""

# B batch, H query heads, G key-value heads, S sequence, D head width

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.check import Correctness
from benchmarks.harness.counters import count_operations
from benchmarks.harness.differentiable import Differentiable, Scene, Tensors, with_learned
from benchmarks.harness.plugin import load_plugin
from benchmarks.harness.workload import Job, Work

CHECK_LENGTH = 96

KERNELS = {
    "sdpa_flash": (
        "FLASH_ATTENTION",
        ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    ),
    "sdpa_efficient": ("EFFICIENT_ATTENTION", ("_scaled_dot_product_efficient_attention",)),
    "sdpa_cudnn": ("CUDNN_ATTENTION", ("_scaled_dot_product_cudnn_attention",)),
    "sdpa_math": ("MATH", ()),
}
"""Backend -> the name torch forces it by, and the operations that prove that it ran (math: that no other did)."""

FUSED = frozenset(name for _, names in KERNELS.values() for name in names)


def keys_seen(mask: str, length: int, window: int, documents: Sequence[int]) -> float:
    """Mean number of keys that a query sees, element-exact: what the FLOP count goes by."""
    if mask == "full":
        return float(length)
    if mask == "causal":
        return (length + 1) / 2
    if mask == "window":
        return sum(min(i + 1, window) for i in range(length)) / length
    return sum(part * (part + 1) / 2 for part in documents) / length


def document_lengths(length: int) -> list[int]:
    """Documents of unequal lengths that fill a sequence, as packed data has: an eighth, three eighths, a half."""
    first, second = length // 8, 3 * length // 8
    return [first, second, length - first - second]


def allowed_SS(mask: str, length: int, window: int, device: str) -> Tensor | None:
    """The mask as booleans, for the reference; None where everything is seen."""
    if mask == "full":
        return None
    query, key = torch.arange(length, device=device)[:, None], torch.arange(length, device=device)[None, :]
    causal = key <= query
    if mask == "causal":
        return causal
    if mask == "window":
        return causal & (query - key < window)
    number = torch.repeat_interleave(torch.tensor(document_lengths(length), device=device))
    return causal & (number[query] == number[key])


def plain_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """Attention spelled out; key-value heads are shared by groups of query heads."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.softmax(scores, -1) @ v


class AttentionTraining(Differentiable):
    """`attn.train`: forward and backward of one attention shape, its backend forced and proved."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        config = job.config
        self.B, self.H, self.G, self.S, self.D = (
            int(config[key]) for key in ("batch_size", "heads", "kv_heads", "length", "head_dim")
        )
        self.mask, self.window, self.backend = str(config["mask"]), int(config.get("window", 0)), str(config["backend"])
        self.plugin = load_plugin(job.implementation, from_checkout=True) if job.implementation else None
        self._flex: Callable[..., Tensor] | None = None
        seen = keys_seen(self.mask, self.S, self.window, document_lengths(self.S))
        forward = 2 * self.B * self.H * self.S * seen * (2 * self.D)
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        one_pass = width * self.B * self.S * self.D * (2 * self.H + 2 * self.G)
        self.work = Work(
            flop=3.5 * forward,
            bytes=float(one_pass + 2 * one_pass),
            units=3.5 * forward / 1e12,
            unit_metric="tflops",
            unit_unit="TFLOP/s",
            formula="2·B·H·S·K·(2·D) forward, K mean keys seen, element-exact; backward 2.5 times that",
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        B, S = (min(self.B, 2), min(self.S, CHECK_LENGTH)) if reduced else (self.B, self.S)

        def normal(heads: int) -> Tensor:
            return torch.randn(B, heads, S, self.D, generator=self.generator)

        return Tensors({"q": normal(self.H), "k": normal(self.G), "v": normal(self.G)}, {})

    def function(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        if self.plugin is not None:
            out: Tensor = self.plugin.function(q, k, v, causal=self.mask == "causal")
            return out
        if self.backend.startswith("flex"):
            return self._flexible(q, k, v)
        with self._forced():
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.mask == "causal", enable_gqa=self.H != self.G)

    def _forced(self) -> contextlib.AbstractContextManager[Any]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        return sdpa_kernel([getattr(SDPBackend, KERNELS[self.backend][0])])

    def _flexible(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        length = q.shape[-2]
        allowed = allowed_SS(self.mask, length, self.window, str(q.device))
        if self._flex is None:
            self._flex = torch.compile(flex_attention)
            self._blocks: dict[int, Any] = {}
        if length not in self._blocks:

            def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
                return allowed[query, key] if allowed is not None else query >= 0

            self._blocks[length] = create_block_mask(seen, None, None, length, length, device=str(q.device))
        return self._flex(q, k, v, block_mask=self._blocks[length], enable_gqa=self.H != self.G)

    def reference(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        return plain_attention(q, k, v, allowed_SS(self.mask, q.shape[-2], self.window, str(q.device)))

    def scenes(self) -> Sequence[Scene]:
        """Normal inputs, with the backend proved and masked keys perturbed; then scores that overflow a soft-max."""
        normal = self.inputs(reduced=True)
        large = with_learned(normal, q=normal.learned["q"] * 30, k=normal.learned["k"])
        return [
            Scene(name="seeded normal inputs", inputs=normal, also=self._mask_and_backend),
            Scene(name="queries scaled by 30", inputs=large),
        ]

    def _mask_and_backend(self, result: Correctness, output: Tensor, tensors: Tensors) -> None:
        with torch.no_grad():
            if self.mask != "full":
                changed = {name: tensor.detach().clone() for name, tensor in tensors.learned.items()}
                changed["k"][:, :, -1] += 3.0
                changed["v"][:, :, -1] -= 3.0
                moved = self.function(Tensors(changed, tensors.constant))
                leak = float((moved[:, :, :-1] - output.detach()[:, :, :-1]).abs().max())
                result.require("masked_key_leak", leak, 0.0, "a changed last key and value")
            if self.plugin is None and self.backend in KERNELS:
                ran = count_operations(lambda: self.function(tensors)).by_name
                proof = KERNELS[self.backend][1]
                fell_back = not any(name in ran for name in proof) if proof else any(name in ran for name in FUSED)
                result.require(
                    "silent_fallback", float(fell_back), 0.0, f"backend {self.backend}; ran {', '.join(ran)}"
                )


class AttentionDecoding(Differentiable):
    """`attn.decode`: one new query per sequence against its cache of keys and values; only memory traffic counts."""

    forward_only = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        config = job.config
        self.B, self.H, self.G, self.S, self.D = (
            int(config[key]) for key in ("batch_size", "heads", "kv_heads", "length", "head_dim")
        )
        self.backend = str(config["backend"])
        self.plugin = load_plugin(job.implementation, from_checkout=True) if job.implementation else None
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        cache = 2 * self.B * self.S * self.G * self.D * width
        self.work = Work(
            flop=4.0 * self.B * self.H * self.S * self.D,
            bytes=float(cache),
            units=cache / 1e9,
            unit_metric="cache_gb_per_s",
            unit_unit="GB/s",
            formula="2·B·S·G·D·width bytes of cache, read once; 4·B·H·S·D FLOP",
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        B, S = (2, min(self.S, CHECK_LENGTH)) if reduced else (self.B, self.S)
        shapes = {"q": (B, self.H, 1, self.D), "k": (B, self.G, S, self.D), "v": (B, self.G, S, self.D)}
        drawn = {name: torch.randn(*shape, generator=self.generator) for name, shape in shapes.items()}
        # A ragged batch, as serving has: the first sequence is full, the others shorter.
        lengths = torch.tensor([S - (S // 3) * (b % 3) // 2 for b in range(B)])
        allowed = torch.arange(S)[None, :] < lengths[:, None]
        return Tensors(drawn, {"allowed": allowed[:, None, None, :], "lengths": lengths})

    def function(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        if self.plugin is not None:
            out: Tensor = self.plugin.function(q, k, v, tensors.constant["lengths"])
            return out
        allowed = tensors.constant["allowed"]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=self.H != self.G)

    def reference(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        return plain_attention(q, k, v, tensors.constant["allowed"])

    def scenes(self) -> Sequence[Scene]:
        """Normal inputs; what lies past a sequence's end must not be read."""
        return [
            Scene(
                name="seeded normal inputs, ragged lengths", inputs=self.inputs(reduced=True), also=self._past_the_end
            )
        ]

    def _past_the_end(self, result: Correctness, output: Tensor, tensors: Tensors) -> None:
        past = ~tensors.constant["allowed"].squeeze(1).squeeze(1)
        changed = {name: tensor.detach().clone() for name, tensor in tensors.learned.items()}
        for name in ("k", "v"):
            changed[name] = torch.where(past[:, None, :, None], torch.full_like(changed[name], 9.0), changed[name])
        with torch.no_grad():
            moved = self.function(Tensors(changed, tensors.constant))
        result.require(
            "past_the_end_leak", float((moved - output.detach()).abs().max()), 0.0, "changed keys past each length"
        )
