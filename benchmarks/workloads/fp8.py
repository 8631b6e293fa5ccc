"""Matrix products in eight bits, forward and backward: operands scaled by their largest value."""

# M rows, K inner, N columns

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FORWARD, GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
LEAST_CAPABILITY = (8, 9)
"""Of a CUDA device that multiplies in eight bits."""
FAST_ACCUMULATION_ERROR = 0.04
"""Of the largest element: fast accumulation keeps some fourteen bits of a running sum over thousands of products."""


def rounded_to(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """The tensor in eight bits, and the factor that scales it back: the largest value takes the format's largest."""
    scale = x.detach().abs().amax().float().clamp_min(1e-12) / torch.finfo(kind).max
    return (x.float() / scale).to(kind), scale


class _Product(torch.autograd.Function):
    """x (M, K) @ w (K, N): three products in eight bits, one forward and two backward."""

    @staticmethod
    def forward(ctx: Any, x_MK: Tensor, w_KN: Tensor, fast: bool) -> Tensor:
        x8, x_scale = rounded_to(x_MK, FORWARD)
        w8, w_scale = rounded_to(w_KN, FORWARD)
        ctx.save_for_backward(x8, x_scale, w8, w_scale)
        return _scaled(x8, w8, x_scale, w_scale, x_MK.dtype, fast=fast)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        x8, x_scale, w8, w_scale = ctx.saved_tensors
        g8, g_scale = rounded_to(upstream[0], GRADIENT)
        kind = upstream[0].dtype
        return _scaled(g8, w8.t(), g_scale, w_scale, kind), _scaled(x8.t(), g8, x_scale, g_scale, kind), None


def _scaled(
    left: Tensor, right: Tensor, left_scale: Tensor, right_scale: Tensor, kind: torch.dtype, *, fast: bool = False
) -> Tensor:
    """The kernels take the left operand by rows and the right one by columns, whatever they were before."""
    by_rows, by_columns = left.contiguous(), right.t().contiguous().t()
    out: Tensor = torch._scaled_mm(
        by_rows, by_columns, left_scale, right_scale, out_dtype=torch.bfloat16, use_fast_accum=fast
    )
    return out.to(kind)


class _Rounded(torch.autograd.Function):
    """The same three products with operands rounded to eight bits and multiplied in the wider precision."""

    @staticmethod
    def forward(ctx: Any, x_MK: Tensor, w_KN: Tensor) -> Tensor:
        x, w = _back(x_MK, FORWARD), _back(w_KN, FORWARD)
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        g = _back(upstream[0], GRADIENT)
        return g @ w.t(), x.t() @ g


def _back(x: Tensor, kind: torch.dtype) -> Tensor:
    eight, scale = rounded_to(x, kind)
    return (eight.float() * scale).to(x.dtype)


def product(x: Tensor, w_KN: Tensor, *, fast: bool = False) -> Tensor:
    """x (…, K) @ w (K, N) in eight bits; all sizes must be multiples of 16, as the kernels demand.

    `fast` accumulates the forward product with fewer bits; gradients are always accumulated exactly.
    """
    return _Product.apply(x.flatten(0, -2), w_KN, fast).view(*x.shape[:-1], w_KN.shape[1])  # type: ignore[no-any-return,no-untyped-call]


def rounded_product(x: Tensor, w_KN: Tensor) -> Tensor:
    """The reference for `product`."""
    return _Rounded.apply(x.flatten(0, -2), w_KN).view(*x.shape[:-1], w_KN.shape[1])  # type: ignore[no-any-return,no-untyped-call]
