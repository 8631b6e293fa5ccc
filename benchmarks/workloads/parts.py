"""One rank's part of a divided layer: experts, the width of an MLP, the sequence of an attention."""

# T tokens of one rank, C model width, F inner or expert width, E experts, K chosen, n ranks

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.timing.marks import NoMarks
from benchmarks.workloads.exchanges import Copy, Exchange, Gather, Scatter, Sum, exchanged, gathered, scattered
from benchmarks.workloads.moe import layer as moe

Named = dict[str, Tensor]
CHECK_TOKENS, CHECK_SEQUENCE = 64, 128


class RankPart(ABC):
    """One rank's share of a layer, and the whole layer in one process that it must agree with."""

    partial: frozenset[str] = frozenset()
    """Leaves whose gradients every rank has a part of."""

    def __init__(self, rank: int, ranks: int, config: Mapping[str, Any], seed: int) -> None:
        self.rank, self.ranks, self.config, self.seed = rank, ranks, config, seed
        self.device = str(config["device"])

    def generator(self) -> torch.Generator:
        """The same numbers on all ranks."""
        return torch.Generator(self.device).manual_seed(self.seed)

    def normal(self, generator: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
        """Seeded normal numbers on the device."""
        return scale * torch.randn(shape, generator=generator, device=self.device)

    @abstractmethod
    def whole(self, *, reduced: bool) -> Named:
        """All ranks' inputs and all weights, the same on every rank; `reduced` for the check."""

    @abstractmethod
    def local(self, tensors: Named) -> Named:
        """This rank's part of the weights; of their gradients likewise."""

    @abstractmethod
    def output(self, whole: Tensor) -> Tensor:
        """This rank's part of the output."""

    @abstractmethod
    def forward(self, tensors: Named) -> Tensor:
        """The measured function, on what this rank has."""

    @abstractmethod
    def plain(self, tensors: Named) -> Tensor:
        """The layer in one process."""

    @abstractmethod
    def communicate(self, tensors: Named) -> None:
        """The collectives of one step, forward and backward, and nothing else."""

    def rows(self, whole: Tensor) -> Tensor:
        """This rank's equal part along the first dimension."""
        return whole.chunk(self.ranks)[self.rank]


class ExpertParallel(RankPart):
    """Tokens travel to the ranks that hold their experts, and back."""

    partial = frozenset({"router"})

    def __init__(self, rank: int, ranks: int, config: Mapping[str, Any], seed: int) -> None:
        super().__init__(rank, ranks, config, seed)
        sizes = {key: int(config[key]) for key in ("width", "expert_width", "experts", "top_k", "tokens")}
        self.moe = moe.MoeConfig(**sizes, dtype=str(config["dtype"]), device=self.device)

    def whole(self, *, reduced: bool) -> Named:
        generator, tokens = self.generator(), min(self.moe.tokens, CHECK_TOKENS) if reduced else self.moe.tokens
        x = self.normal(generator, self.ranks * tokens, self.moe.width)
        return {"x": x, **moe.draw_weights(self.moe, generator)}

    def local(self, tensors: Named) -> Named:
        return {name: tensor if name == "router" else self.rows(tensor) for name, tensor in tensors.items()}

    def output(self, whole: Tensor) -> Tensor:
        return self.rows(whole)

    def forward(self, tensors: Named) -> Tensor:
        x_TC, router_CE, gate, up, down = tensors.values()
        no_bias = torch.zeros((), device=x_TC.device)
        chosen_TK, share_TK = moe.route(x_TC, no_bias, router_CE, self.moe.top_k)
        order_R = chosen_TK.flatten().argsort(stable=True)
        token_R = order_R // self.moe.top_k
        counts_E = torch.zeros(self.moe.experts, dtype=torch.int64, device=x_TC.device).index_add_(
            0, chosen_TK.flatten(), torch.ones_like(chosen_TK.flatten())
        )
        # The host must know how much goes where before anything can go: the one stop of this layer.
        arriving_nE = torch.empty_like(counts_E)
        dist.all_to_all_single(arriving_nE, counts_E)
        arriving_nE = arriving_nE.view(self.ranks, -1)
        coming, going = arriving_nE.sum(1).tolist(), counts_E.view(self.ranks, -1).sum(1).tolist()
        rows_RC: Tensor = Exchange.apply(x_TC.index_select(0, token_R), coming, going)  # type: ignore[no-untyped-call]
        # They come by rank and then by expert, and are multiplied by expert.
        numbers_nE = torch.arange(arriving_nE.shape[1], device=x_TC.device).expand_as(arriving_nE)
        of_expert_R = numbers_nE.flatten().repeat_interleave(arriving_nE.flatten(), output_size=sum(coming))
        by_expert_R = of_expert_R.argsort(stable=True)
        ends_E = arriving_nE.sum(0).cumsum(0, dtype=torch.int32)
        sorted_RC = rows_RC.index_select(0, by_expert_R)
        hidden = F.silu(F.grouped_mm(sorted_RC, gate, offs=ends_E)) * F.grouped_mm(sorted_RC, up, offs=ends_E)
        out_RC = F.grouped_mm(hidden, down, offs=ends_E).index_select(0, by_expert_R.argsort())
        back_RC: Tensor = Exchange.apply(out_RC, going, coming)  # type: ignore[no-untyped-call]
        weighted = back_RC * share_TK.flatten()[order_R, None]
        return torch.zeros_like(x_TC).index_add(0, token_R, weighted)

    def plain(self, tensors: Named) -> Tensor:
        x_TC, *weights = tensors.values()
        no_bias = torch.zeros((), device=x_TC.device)
        return moe.loop_over_experts(x_TC, no_bias, moe.MoeWeights(*weights), self.moe, NoMarks())

    def communicate(self, tensors: Named) -> None:
        """Four exchanges of rows, as evenly as uniform routes would have them."""
        x_TC = tensors["x"].detach()
        each = x_TC.shape[0] * self.moe.top_k // self.ranks
        rows = x_TC.new_zeros(each * self.ranks, x_TC.shape[1])
        for _ in range(4):
            exchanged(rows, [each] * self.ranks, [each] * self.ranks)


class TensorParallel(RankPart):
    """A SwiGLU MLP whose inner width is divided; its input is the same on all ranks, or divided by tokens."""

    def __init__(self, rank: int, ranks: int, config: Mapping[str, Any], seed: int) -> None:
        super().__init__(rank, ranks, config, seed)
        self.by_tokens = config["style"] == "sequence"
        self.T, self.C, self.F = (int(config[key]) for key in ("tokens", "width", "inner"))

    def whole(self, *, reduced: bool) -> Named:
        generator, tokens = self.generator(), min(self.T, CHECK_TOKENS) if reduced else self.T
        return {
            "x": self.normal(generator, tokens, self.C),
            "gate": self.normal(generator, self.F, self.C, scale=self.C**-0.5),
            "up": self.normal(generator, self.F, self.C, scale=self.C**-0.5),
            "down": self.normal(generator, self.F, self.C, scale=self.F**-0.5),
        }

    def local(self, tensors: Named) -> Named:
        of_x = self.rows(tensors["x"]) if self.by_tokens else tensors["x"]
        return {"x": of_x, **{name: self.rows(tensors[name]) for name in ("gate", "up", "down")}}

    def output(self, whole: Tensor) -> Tensor:
        return self.rows(whole) if self.by_tokens else whole

    def forward(self, tensors: Named) -> Tensor:
        enter, leave = (Gather, Scatter) if self.by_tokens else (Copy, Sum)
        x: Tensor = enter.apply(tensors["x"])
        out: Tensor = leave.apply(self._mlp({**tensors, "x": x}))
        return out

    @staticmethod
    def _mlp(tensors: Named) -> Tensor:
        x_TC, gate_FC, up_FC, down_FC = tensors.values()
        return (F.silu(x_TC @ gate_FC.t()) * (x_TC @ up_FC.t())) @ down_FC

    def plain(self, tensors: Named) -> Tensor:
        return self._mlp(tensors)

    def communicate(self, tensors: Named) -> None:
        x = tensors["x"].detach()
        for _ in range(2):
            if self.by_tokens:
                scattered(gathered(x))
            else:
                dist.all_reduce(x.clone())


class ContextParallel(RankPart):
    """Causal attention over a sequence that is divided: queries stay, keys and values are gathered.

    Each rank has one piece from the front and its mirror from the back, so that all see equally many keys.
    """

    def __init__(self, rank: int, ranks: int, config: Mapping[str, Any], seed: int) -> None:
        super().__init__(rank, ranks, config, seed)
        self.H, self.G, self.S, self.D = (int(config[key]) for key in ("heads", "kv_heads", "length", "head_dim"))
        self.pieces = (rank, 2 * ranks - 1 - rank)
        self._biases: dict[tuple[int, int], Any] = {}

    def whole(self, *, reduced: bool) -> Named:
        """Sequence first, (S, heads, D): it is what is divided and gathered."""
        generator, length = self.generator(), min(self.S, CHECK_SEQUENCE) if reduced else self.S
        heads = {"q": self.H, "k": self.G, "v": self.G}
        return {name: self.normal(generator, length, count, self.D) for name, count in heads.items()}

    def local(self, tensors: Named) -> Named:
        return {name: self.output(tensor) for name, tensor in tensors.items()}

    def output(self, whole: Tensor) -> Tensor:
        both = whole.chunk(2 * self.ranks)
        return torch.cat([both[piece] for piece in self.pieces])

    def forward(self, tensors: Named) -> Tensor:
        q, k, v = tensors.values()
        k, v = (self._in_order(Gather.apply(part)) for part in (k, v))  # type: ignore[no-untyped-call]
        size = q.shape[0] // 2
        found = []
        for piece, queries in zip(self.pieces, q.chunk(2), strict=True):
            end = (piece + 1) * size
            heads = [part.transpose(0, 1)[None] for part in (queries, k[:end], v[:end])]
            bias = self._bias(size, end)
            out = F.scaled_dot_product_attention(
                heads[0], heads[1], heads[2], attn_mask=bias, enable_gqa=self.H != self.G
            )
            found.append(out[0].transpose(0, 1))
        return torch.cat(found)

    def _bias(self, queries: int, keys: int) -> Any:
        """The last query sees all keys, which flash kernels know as a word; made once, like any mask."""
        from torch.nn.attention.bias import causal_lower_right

        if (queries, keys) not in self._biases:
            self._biases[queries, keys] = causal_lower_right(queries, keys)
        return self._biases[queries, keys]

    def _in_order(self, by_rank: Tensor) -> Tensor:
        """The sequence from its first position to its last, from the ranks' pairs of pieces."""
        pieces = by_rank.chunk(2 * self.ranks)
        return torch.cat([*pieces[::2], *reversed(pieces[1::2])])

    def plain(self, tensors: Named) -> Tensor:
        q, k, v = (tensor.transpose(0, 1) for tensor in tensors.values())
        k, v = (part.repeat_interleave(self.H // self.G, 0) for part in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.D)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        return (torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ v).transpose(0, 1)

    def communicate(self, tensors: Named) -> None:
        for name in ("k", "v"):
            scattered(gathered(tensors[name].detach()))


KINDS: Mapping[str, type[RankPart]] = {"experts": ExpertParallel, "tensor": TensorParallel, "context": ContextParallel}
