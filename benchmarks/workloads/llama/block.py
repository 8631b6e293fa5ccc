"""One Llama block: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

# B batch, T context, C width, H query heads, G key-value heads, D head width, F inner width

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.differentiable import Differentiable, Tensors
from benchmarks.harness.plugin import load_plugin
from benchmarks.harness.workload import Job, NotApplicable, Work
from benchmarks.workloads import fp8
from benchmarks.workloads.attention.dense import allowed_SS, plain_attention

CHECK_CONTEXT = 64
ROPE_BASE = 500_000.0


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm spelled out."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def rotate(x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """Rotary positions on halves, as Llama's released code lays them out."""
    first, second = x_BHTD.chunk(2, -1)
    return (x_BHTD * cos_TD + torch.cat((-second, first), -1) * sin_TD).to(x_BHTD.dtype)


def angles(length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions, in double precision rounded once."""
    frequency = ROPE_BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    turns = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    both = torch.cat((turns, turns), -1)
    return both.cos().float(), both.sin().float()


Product = Callable[[Tensor, Tensor], Tensor]


def block(tensors: Tensors, heads: int, kv_heads: int, *, plain: bool, product: Product = torch.matmul) -> Tensor:
    """The block; `plain` spells out normalisation and attention, `product` multiplies by weights."""
    w, cos, sin = tensors.learned, tensors.constant["cos"], tensors.constant["sin"]
    x_BTC = w["x"]
    B, T, C = x_BTC.shape
    D = C // heads

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight) if plain else F.rms_norm(x, (C,), weight, 1e-5)

    normed = norm(x_BTC, w["attention_norm"])
    q = rotate(product(normed, w["query"]).view(B, T, heads, D).transpose(1, 2), cos, sin)
    k = rotate(product(normed, w["key"]).view(B, T, kv_heads, D).transpose(1, 2), cos, sin)
    v = product(normed, w["value"]).view(B, T, kv_heads, D).transpose(1, 2)
    if plain:
        y = plain_attention(q, k, v, allowed_SS("causal", T, 0, str(x_BTC.device)))
    else:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
    x_BTC = x_BTC + product(y.transpose(1, 2).reshape(B, T, C), w["output"])
    normed = norm(x_BTC, w["ffn_norm"])
    return x_BTC + product(F.silu(product(normed, w["gate"])) * product(normed, w["up"]), w["down"])


class LlamaBlock(Differentiable):
    """`llama.block`: forward and backward of one block, eager, compiled, or with products in fp8."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        c = job.config
        self.B, self.T, self.C, self.H, self.G, self.F = (
            int(c[key]) for key in ("batch_size", "context", "width", "heads", "kv_heads", "inner")
        )
        self.compile_mode, self.fp8 = str(c["compile"]), bool(c.get("fp8", False))
        fast = bool(c.get("fast_accumulation", False))
        self.further_error = fp8.FAST_ACCUMULATION_ERROR if fast else 0.0
        if self.fp8 and self.device == "cuda" and torch.cuda.get_device_capability() < fp8.LEAST_CAPABILITY:
            here = ".".join(map(str, torch.cuda.get_device_capability()))
            raise NotApplicable(f"fp8 products need compute capability 8.9; this GPU has {here}")
        self.product: Product = partial(fp8.product, fast=fast) if self.fp8 else torch.matmul
        self.plugin = load_plugin(job.implementation, from_checkout=True) if job.implementation else None
        self.compiles = self.compile_mode != "eager" and self.plugin is None
        kv = self.G * (self.C // self.H)
        self.matmul_parameters = 2 * self.C**2 + 2 * self.C * kv + 3 * self.C * self.F
        tokens = self.B * self.T
        width = {"fp32": 4, "bf16": 2}[self.dtype]
        self.work = Work(
            flop=float(tokens * (6 * self.matmul_parameters + 12 * self.C * self.T)),
            bytes=float(3 * width * self.matmul_parameters + 3 * width * tokens * (8 * self.C + 3 * self.F)),
            units=float(tokens),
            unit_metric="tokens_per_s",
            formula="T·B·(6·N_mm + 12·C·T); causal attention counts 6·C·T",
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        T, C, kv = min(self.T, CHECK_CONTEXT) if reduced else self.T, self.C, self.G * (self.C // self.H)

        def scaled(rows: int, columns: int) -> Tensor:
            return self.normal(rows, columns) / math.sqrt(rows)

        shapes = {"query": (C, C), "key": (C, kv), "value": (C, kv), "output": (C, C)}
        shapes |= {"gate": (C, self.F), "up": (C, self.F), "down": (self.F, C)}
        norms = {name: 1 + 0.1 * self.normal(C) for name in ("attention_norm", "ffn_norm")}
        drawn = {"x": self.normal(self.B, T, C), **norms}
        drawn |= {name: scaled(*shape) for name, shape in shapes.items()}
        cos, sin = angles(T, C // self.H)
        return Tensors(drawn, {"cos": cos, "sin": sin})

    def function(self, tensors: Tensors) -> Tensor:
        if self.plugin is not None:
            w, constant = dict(tensors.learned), tensors.constant
            out: Tensor = self.plugin.function(
                w.pop("x"), w, constant["cos"], constant["sin"], heads=self.H, kv_heads=self.G
            )
            return out
        if self.compile_mode == "eager":
            return block(tensors, self.H, self.G, plain=False, product=self.product)
        return self._compiled()(tensors)  # type: ignore[no-any-return]

    def _compiled(self):  # type: ignore[no-untyped-def]
        if not hasattr(self, "_made"):
            mode = None if self.compile_mode == "default" else self.compile_mode

            def run(tensors: Tensors) -> Tensor:
                return block(tensors, self.H, self.G, plain=False, product=self.product)

            self._made = torch.compile(run, mode=mode)
        return self._made

    def reference(self, tensors: Tensors) -> Tensor:
        """Naive in fp8 is the same rounding spelled out: operands rounded, then multiplied in the wider precision."""
        rounded = self.fp8 and tensors.learned["x"].dtype != torch.float64
        return block(tensors, self.H, self.G, plain=True, product=fp8.rounded_product if rounded else torch.matmul)
