"""Multi-head latent attention: wider queries and keys than values in training, one shared latent cache in decoding."""

# B batch, H heads, S sequence, D width of queries and keys, V width of values, L width of the latent

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.check import Correctness
from benchmarks.harness.counters import count_operations
from benchmarks.harness.differentiable import Differentiable, Scene, Tensors
from benchmarks.harness.workload import Job, NotApplicable, Work
from benchmarks.workloads.attention.dense import FUSED, KERNELS, FlexAttention, allowed_SS, forced, plain_attention

CHECK_LENGTH = 192
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2}


class LatentTraining(Differentiable):
    """`attn.mla`: causal attention whose values are narrower than its keys, forward and backward."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.B, self.H, self.S, self.D, self.V = (
            int(job.config[key]) for key in ("batch_size", "heads", "length", "head_dim", "value_dim")
        )
        self.backend = str(job.config["backend"])
        self.compiles = self.backend == "flex" and self.device == "cuda"
        self._flex = FlexAttention(self.device, gqa=False)
        seen, width = (self.S + 1) / 2, WIDTHS[self.dtype]
        products = 2.0 * self.B * self.H * self.S * seen
        forward, backward = products * (self.D + self.V), products * (3 * self.D + 2 * self.V)
        self.work = Work(
            flop=forward + backward,
            bytes=3.0 * width * self.B * self.H * self.S * (2 * self.D + 2 * self.V),
            units=(forward + backward) / 1e12,
            unit_metric="tflops",
            unit_unit="TFLOP/s",
            formula="2·B·H·S·K·(D+V) forward, K = (S+1)/2; backward 2·B·H·S·K·(3·D + 2·V): the scores once more, and "
            "gradients of queries, keys, values and weights",
            phase_flop={"forward": forward, "backward": backward},
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        B, H, S = (1, min(self.H, 8), min(self.S, CHECK_LENGTH)) if reduced else (self.B, self.H, self.S)
        widths = {"q": self.D, "k": self.D, "v": self.V}
        return Tensors({name: self.normal(B, H, S, width) for name, width in widths.items()}, {})

    def function(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        if self.backend == "flex":
            causal: Callable[..., Any] = lambda b, h, query, key: query >= key  # noqa: E731
            return self._flex(q, k, v, (None, q.shape[-2]), lambda: causal)
        if self.backend == "padded_flash":
            # Kernels of one width: values are padded, and what is padded is cut off again.
            with forced("sdpa_flash"):
                wide = F.scaled_dot_product_attention(q, k, F.pad(v, (0, self.D - self.V)), is_causal=True)
            return wide[..., : self.V]
        with forced(self.backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def reference(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        return plain_attention(q, k, v, allowed_SS("causal", q.shape[-2], 0, str(q.device)))

    def scenes(self) -> Sequence[Scene]:
        return [Scene(name="seeded normal inputs", inputs=self.inputs(reduced=True), also=self._backend_ran)]

    def _backend_ran(self, result: Correctness, output: Tensor, tensors: Tensors) -> None:
        backend = "sdpa_flash" if self.backend == "padded_flash" else self.backend
        if backend not in KERNELS:
            return
        with torch.no_grad():
            ran = count_operations(lambda: self.function(tensors)).by_name
        proof = KERNELS[backend][1]
        fell_back = not any(name in ran for name in proof) if proof else any(name in ran for name in FUSED)
        result.require("silent_fallback", float(fell_back), 0.0, f"backend {backend}; ran {', '.join(ran)}")

    def check(self) -> Correctness:
        """As every function; a kernel that torch does not have for these widths is not applicable, never another."""
        try:
            return super().check()
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise NotApplicable(f"{self.backend} has no kernel for widths {self.D} and {self.V} here") from error
            raise


class LatentDecoding(Differentiable):
    """`attn.mla_decode`: one new query of every head against one latent cache that all of them share."""

    forward_only = flushes = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.B, self.H, self.S, self.L, self.V = (
            int(job.config[key]) for key in ("batch_size", "heads", "length", "latent", "value_dim")
        )
        self.scale = 1 / math.sqrt(float(job.config["scaled_by"]))
        self.how = str(job.config["how"])
        self.compiles = self.how == "compiled"
        self._compiled: Callable[..., Tensor] | None = None
        cache = float(WIDTHS[self.dtype] * self.B * self.S * self.L)
        self.work = Work(
            flop=2.0 * self.B * self.H * self.S * (self.L + self.V),
            bytes=cache,
            units=cache / 1e9,
            unit_metric="cache_gb_per_s",
            unit_unit="GB/s",
            formula="B·S·L·width bytes of cache, read once; 2·B·H·S·(L+V) FLOP",
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        B, S = (2, min(self.S, CHECK_LENGTH)) if reduced else (self.B, self.S)
        return Tensors({"q": self.normal(B, self.H, self.L), "cache": self.normal(B, S, self.L)}, {})

    def plain(self, q: Tensor, cache: Tensor) -> Tensor:
        """Scores by all of the latent, the sum over its first part."""
        weights = torch.softmax((q @ cache.transpose(1, 2)) * self.scale, -1)
        return weights @ cache[..., : self.V]

    def function(self, tensors: Tensors) -> Tensor:
        q, cache = tensors.learned.values()
        if not self.compiles:
            return self.plain(q, cache)
        if self._compiled is None:
            self._compiled = torch.compile(self.plain)
        return self._compiled(q, cache)

    def reference(self, tensors: Tensors) -> Tensor:
        q, cache = tensors.learned.values()
        heads = plain_attention(
            q[:, :, None] * (self.scale * math.sqrt(self.L)), cache[:, None], cache[:, None, :, : self.V], None
        )
        return heads[:, :, 0]


__all__ = ["LatentDecoding", "LatentTraining"]
