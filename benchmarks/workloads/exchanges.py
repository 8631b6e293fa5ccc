"""Collectives that gradients pass through: each knows the one that its backward pass is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# The same operations under torch's new names, or under the old ones where a release has only those.
gather_single = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
scatter_single = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def gathered(x: Tensor) -> Tensor:
    """All ranks' tensors along the first dimension."""
    whole = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
    gather_single(whole, x.contiguous())
    return whole


def scattered(x: Tensor) -> Tensor:
    """This rank's part, along the first dimension, of the sum of all ranks' tensors."""
    part = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
    scatter_single(part, x.contiguous())
    return part


def exchanged(x: Tensor, coming: Sequence[int], going: Sequence[int]) -> Tensor:
    """Rows of all ranks for this one; so many come from each, and so many go to each."""
    rows = x.new_empty(sum(coming), *x.shape[1:])
    dist.all_to_all_single(rows, x.contiguous(), list(coming), list(going))
    return rows


class Gather(torch.autograd.Function):
    """Forward all_gather, backward reduce_scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return gathered(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        return scattered(upstream[0])


class Scatter(torch.autograd.Function):
    """Forward reduce_scatter, backward all_gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return scattered(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        return gathered(upstream[0])


class Copy(torch.autograd.Function):
    """Forward nothing, backward all_reduce: what is the same on all ranks and used by each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        gradient = upstream[0].clone()
        dist.all_reduce(gradient)
        return gradient


class Sum(torch.autograd.Function):
    """Forward all_reduce, backward nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        return upstream[0]


class Exchange(torch.autograd.Function):
    """Forward all_to_all with these parts, backward the same the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, coming: list[int], going: list[int]) -> Tensor:
        ctx.coming, ctx.going = coming, going
        return exchanged(x, coming, going)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        return exchanged(upstream[0], ctx.going, ctx.coming), None, None
