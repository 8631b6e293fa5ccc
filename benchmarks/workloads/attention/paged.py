"""Decoding from a cache of pages, as serving keeps it: sequences grow page by page, wherever there is room."""

# B batch, H query heads, G key-value heads, S longest sequence, D head width, P pages, Z tokens of a page

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.check import Correctness
from benchmarks.harness.differentiable import Differentiable, Scene, Tensors
from benchmarks.harness.workload import Job, NotApplicable, StepCounter, Work, fact
from benchmarks.workloads.attention.dense import plain_attention

CHECK_BATCH, CHECK_PAGES = 3, 2


def sequence_lengths(batch: int, longest: int) -> list[int]:
    """A ragged batch: the first sequence is full, the others shorter by turns."""
    return [longest - (longest // 3) * (number % 3) // 2 for number in range(batch)]


def _require_block_tables() -> None:
    """Older releases of torch have the kernel for variable lengths, and hand it no table."""
    from torch.nn.attention.varlen import varlen_attn

    if "block_table" not in inspect.signature(varlen_attn).parameters:
        raise NotApplicable(f"varlen_attn of torch {torch.__version__} takes no block_table; 2.13 does")


class PagedDecoding(Differentiable):
    """`attn.paged`: one new query per sequence against pages that are scattered over a pool."""

    forward_only = flushes = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        if job.config["how"] == "block_table":
            _require_block_tables()
        self.B, self.H, self.G, self.S, self.D, self.Z = (
            int(job.config[key]) for key in ("batch_size", "heads", "kv_heads", "length", "head_dim", "page")
        )
        self.how = str(job.config["how"])
        self.compiles = self.how == "flex" and self.device == "cuda"
        self._masks: dict[int, Any] = {}
        self._function: Callable[..., Any] | None = None
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        held = sum(sequence_lengths(self.B, self.S))
        cache = 2.0 * held * self.G * self.D * width
        self.work = Work(
            flop=4.0 * held * self.H * self.D,
            bytes=cache,
            units=cache / 1e9,
            unit_metric="cache_gb_per_s",
            unit_unit="GB/s",
            formula="2·Σs·G·D·width bytes of the cache that sequences of s tokens hold, read once; 4·Σs·H·D FLOP",
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        batch, longest = (CHECK_BATCH, CHECK_PAGES * self.Z) if reduced else (self.B, self.S)
        of_each = longest // self.Z
        # A page more than is needed, which belongs to nobody; the others in the order of a pool long in use.
        order = list(range(batch * of_each + 1))
        random.Random(self.job.seed).shuffle(order)
        table = torch.tensor(order[: batch * of_each], device=self.device).view(batch, of_each)
        lengths = torch.tensor(sequence_lengths(batch, longest), device=self.device)
        places = len(order) * self.Z
        drawn = {"q": self.normal(batch, self.H, 1, self.D), "k": self._pool(places), "v": self._pool(places)}
        if self.how == "block_table":
            # As a server keeps them from step to step: nothing of them is made within the time.
            first = {"queries": torch.arange(batch + 1, dtype=torch.int32, device=self.device)}
            first["keys"] = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
            return Tensors(drawn, {"table": table.int(), "lengths": lengths.int(), **first})
        return Tensors(drawn, {"table": table, "lengths": lengths})

    def _pool(self, places: int) -> Tensor:
        """(G, places, D), in memory as the kernel wants it: a block table's pages hold all heads of their tokens."""
        if self.how == "block_table":
            return self.normal(places, self.G, self.D).transpose(0, 1)
        return self.normal(self.G, places, self.D)

    def function(self, tensors: Tensors) -> Tensor:
        q, k, v = (tensor.detach() for tensor in tensors.learned.values())
        table, lengths = tensors.constant["table"], tensors.constant["lengths"]
        if self.how == "flex":
            return self._flex(q, k[None], v[None], table, lengths)
        if self.how == "block_table":
            return self._by_block_table(q, k, v, tensors.constant)
        k, v = (self._gathered(pool, table) for pool in (k, v))
        allowed = torch.arange(k.shape[-2], device=q.device)[None, :] < lengths[:, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None, None, :], enable_gqa=self.H != self.G)

    def _gathered(self, pool: Tensor, table: Tensor) -> Tensor:
        """(B, G, S, D) from the pool: every token is copied before it is read."""
        pages = pool.view(self.G, -1, self.Z, self.D).index_select(1, table.flatten())
        return pages.view(self.G, table.shape[0], -1, self.D).transpose(0, 1)

    def _flex(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
        """The kernel finds the pages by its block mask, and nothing is copied."""
        from torch.nn.attention.flex_attention import flex_attention

        if self._function is None:
            self._function = torch.compile(flex_attention) if self.device == "cuda" else flex_attention
        if table.shape[0] not in self._masks:
            self._masks[table.shape[0]] = self._mask(table, lengths, k.shape[-2])
        out: Tensor = self._function(q, k, v, block_mask=self._masks[table.shape[0]], enable_gqa=self.H != self.G)
        return out

    def _by_block_table(self, q: Tensor, k: Tensor, v: Tensor, made: dict[str, Tensor]) -> Tensor:
        """torch's kernel for variable lengths reads the table itself, at every call."""
        from torch.nn.attention.varlen import varlen_attn

        k, v = (pool.transpose(0, 1).view(-1, self.Z, self.G, self.D) for pool in (k, v))
        table, longest = made["table"], made["table"].shape[1] * self.Z
        how: dict[str, Any] = {"seqused_k": made["lengths"], "block_table": table, "enable_gqa": self.H != self.G}
        out = varlen_attn(q[:, :, 0], k, v, made["queries"], made["keys"], 1, longest, **how)
        assert isinstance(out, Tensor)
        return out[:, :, None]

    def _mask(self, table: Tensor, lengths: Tensor, pool: int) -> Any:
        """Which positions of the pool each sequence may read: made from the table, once."""
        from torch.nn.attention.flex_attention import create_block_mask

        position = torch.full((table.shape[0], pool // self.Z), -1, device=table.device)
        position.scatter_(1, table, torch.arange(table.shape[1], device=table.device).expand_as(table))

        def held(b: Any, h: Any, query: Any, physical: Any) -> Any:
            page = position[b, physical // self.Z]
            return (page >= 0) & (page * self.Z + physical % self.Z < lengths[b])

        return create_block_mask(held, table.shape[0], None, 1, pool, device=str(table.device), BLOCK_SIZE=self.Z)

    def reference(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        rows = []
        for number, (pages, length) in enumerate(
            zip(tensors.constant["table"].tolist(), tensors.constant["lengths"].tolist(), strict=True)
        ):
            places = [page * self.Z + offset for page in pages for offset in range(self.Z)][:length]
            found = torch.tensor(places, dtype=torch.int64, device=q.device)
            rows.append(plain_attention(q[number : number + 1], k[None, :, found], v[None, :, found], None))
        return torch.cat(rows)

    def scenes(self) -> Sequence[Scene]:
        """Normal inputs; what others hold, and what lies past a sequence's end, must not be read."""
        return [Scene(name="scattered pages", inputs=self.inputs(reduced=True), also=self._reads_its_own)]

    def _reads_its_own(self, result: Correctness, output: Tensor, tensors: Tensors) -> None:
        """Everything that the first sequence does not hold is changed; its row must stay as it was."""
        own = torch.zeros(tensors.learned["k"].shape[1], dtype=torch.bool, device=output.device)
        for page in tensors.constant["table"][0].tolist():
            own[page * self.Z : (page + 1) * self.Z] = True
        changed = {
            name: tensor.detach() if name == "q" else torch.where(own[None, :, None], tensor.detach(), 9.0)
            for name, tensor in tensors.learned.items()
        }
        moved = self.function(Tensors(changed, tensors.constant))
        result.require("reads_other_pages", float((moved[0] - output.detach()[0]).abs().max()), 0.0, "other pages at 9")

    def further_counters(self, inputs: Tensors) -> list[StepCounter]:
        """How many tokens the batch holds, which is what is read."""
        return [fact("tokens_held", float(sum(sequence_lengths(self.B, self.S))), "1", "tokens in the batch's pages")]


__all__ = ["PagedDecoding"]
