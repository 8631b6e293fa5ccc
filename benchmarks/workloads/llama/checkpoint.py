"""Llama blocks one behind the other, whose activations are kept, or made again for the backward pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from benchmarks.harness.differentiable import Tensors
from benchmarks.harness.workload import Job, StepCounter, Work
from benchmarks.workloads.llama.block import LlamaBlock, block

aten = torch.ops.aten
PRODUCTS = [
    aten.mm.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
]
"""The results that selective checkpointing keeps: those that cost most to make again."""


class LlamaCheckpoint(LlamaBlock):
    """`llama.checkpoint`: forward and backward of several blocks; `keep` says what stays in memory between them."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.layers, self.keep = int(job.config["n_layer"]), str(job.config["keep"])
        one = self.work
        self.work = Work(
            flop=self.layers * one.flop,
            bytes=self.layers * (one.bytes or 0.0),
            units=one.units,
            unit_metric=one.unit_metric,
            formula="L·T·B·(6·N_mm + 12·C·T); what is made again is not counted",
            precision=one.precision,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        layers = [super(LlamaCheckpoint, self).inputs(reduced=reduced) for _ in range(self.layers)]
        learned = {"x": layers[0].learned["x"]}
        learned |= {
            f"{number}.{name}": tensor
            for number, layer in enumerate(layers)
            for name, tensor in layer.learned.items()
            if name != "x"
        }
        return Tensors(learned, layers[0].constant)

    def function(self, tensors: Tensors) -> Tensor:
        return self._stack(tensors, plain=False)

    def reference(self, tensors: Tensors) -> Tensor:
        return self._stack(tensors, plain=True)

    def _stack(self, tensors: Tensors, *, plain: bool) -> Tensor:
        x = tensors.learned["x"]
        how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        if self.keep == "products":
            how["context_fn"] = partial(create_selective_checkpoint_contexts, PRODUCTS)
        for number in range(self.layers):
            prefix = f"{number}."
            weights = {name.removeprefix(prefix): t for name, t in tensors.learned.items() if name.startswith(prefix)}

            def one(x: Tensor, weights: dict[str, Tensor] = weights) -> Tensor:
                inputs = Tensors({"x": x, **weights}, tensors.constant)
                return block(inputs, self.H, self.G, plain=plain)

            x = one(x) if plain or self.keep == "all" else checkpoint(one, x, **how)
        return x

    def counters(self) -> list[StepCounter]:
        """Counters of memory. Bytes kept selectively are seen by no hook; for these peak memory is read."""
        found = super().counters()
        return [one for one in found if self.keep != "products" or one.metric != "activation_bytes"]


__all__ = ["LlamaCheckpoint"]
