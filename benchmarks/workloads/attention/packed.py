"""Attention of documents packed one behind the other, without padding."""

# N tokens of all documents, H heads, D head width

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.differentiable import Differentiable, Scene, Tensors
from benchmarks.harness.workload import Job, StepCounter, Work, fact
from benchmarks.workloads.attention.dense import plain_attention

CHECK_LENGTHS = (1, 96, 31)
SHORTEST = 64


def document_lengths(tokens: int, longest: int, seed: int) -> list[int]:
    """Seeded lengths, many short and few long, that fill so many tokens; none is longer than `longest`."""
    rng, left, found = random.Random(seed), tokens, []
    while left > 0:
        drawn = int(math.exp(rng.uniform(math.log(SHORTEST), math.log(longest))))
        found.append(min(drawn, left))
        left -= found[-1]
    return found


class PackedAttention(Differentiable):
    """`attn.packed`: causal attention within each document, forward and backward."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        config = job.config
        self.H, self.D, self.how = int(config["heads"]), int(config["head_dim"]), str(config["how"])
        self.lengths = document_lengths(int(config["tokens"]), int(config["longest"]), job.seed)
        forward = 2.0 * self.H * sum(n * (n + 1) / 2 for n in self.lengths) * 2 * self.D
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        self.work = Work(
            flop=3.5 * forward,
            bytes=3.0 * 4 * width * sum(self.lengths) * self.H * self.D,
            units=3.5 * forward / 1e12,
            unit_metric="tflops",
            unit_unit="TFLOP/s",
            formula="2·H·Σ n(n+1)/2·(2·D) forward over documents of n tokens; backward 2.5 times that",
            phase_flop={"forward": forward, "backward": 2.5 * forward},
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        lengths = CHECK_LENGTHS if reduced else self.lengths
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=self.device)
        return Tensors({name: self.normal(sum(lengths), self.H, self.D) for name in "qkv"}, {"ends": ends})

    def lengths_of(self, tensors: Tensors) -> Sequence[int]:
        """Known to the host, as they are to whoever packed the documents."""
        return self.lengths if tensors.learned["q"].shape[0] == sum(self.lengths) else CHECK_LENGTHS

    def function(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        lengths = self.lengths_of(tensors)
        if self.how == "varlen":
            from torch.nn.attention.varlen import varlen_attn

            ends, longest = tensors.constant["ends"], max(lengths)
            out = varlen_attn(q, k, v, ends, ends, longest, longest, window_size=(-1, 0))
            assert isinstance(out, Tensor)
            return out
        if self.how == "loop":
            parts = zip(*(t.split(list(lengths)) for t in (q, k, v)), strict=True)
            return torch.cat([self._causal(*(part.transpose(0, 1)[None] for part in one))[0] for one in parts])
        padded = (
            torch.nn.utils.rnn.pad_sequence(list(t.split(list(lengths))), batch_first=True).transpose(1, 2)
            for t in (q, k, v)
        )
        rows = self._causal(*padded)
        return torch.cat([row[:length] for row, length in zip(rows, lengths, strict=True)])

    @staticmethod
    def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Heads before tokens in, tokens before heads out."""
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def reference(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        found = []
        for start, end in pairwise([0, *accumulate(self.lengths_of(tensors))]):
            earlier = torch.ones(end - start, end - start, dtype=torch.bool, device=q.device).tril()
            of_q, of_k, of_v = (t[start:end].transpose(0, 1)[None] for t in (q, k, v))
            found.append(plain_attention(of_q, of_k, of_v, earlier)[0].transpose(0, 1))
        return torch.cat(found)

    def scenes(self) -> Sequence[Scene]:
        return [Scene(name="documents of 1, 96 and 31 tokens", inputs=self.inputs(reduced=True))]

    def further_counters(self, inputs: Tensors) -> list[StepCounter]:
        """How many documents there are, and what padding them to the longest would waste."""
        room = len(self.lengths) * max(self.lengths)
        return [
            fact("documents", len(self.lengths), "1"),
            fact("padding_waste", 1 - sum(self.lengths) / room, "ratio", "empty places of a padded batch, of all"),
        ]


__all__ = ["PackedAttention"]
