"""The built-in GPT-2: every choice of the ladder in one plain model.

The from-scratch paths are also the correctness reference.
"""

# B batch, T context, C width, H heads, D head width, V vocabulary

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks.workloads.gpt.config import GptConfig, Mask, Rung, ladder

NAIVE = ladder()[0]
BEST_EAGER = Rung(name="builtin", fused_optimizer=True, torch_layers=True, flash_attention=True)


class ScratchLayerNorm(nn.Module):
    """LayerNorm spelled out, one kernel per operation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class ScratchGelu(nn.Module):
    """GPT-2's tanh GELU spelled out."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Attention(nn.Module):
    """Causal self-attention: from scratch, with the mask kept or made each time, or by the fused kernel."""

    def __init__(self, config: GptConfig, rung: Rung) -> None:
        super().__init__()
        self.rung, self.heads = rung, config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        if not rung.flash_attention and rung.mask is Mask.BUFFER:
            T = config.block_size
            self.register_buffer("mask", torch.tril(torch.ones(T, T)).view(1, 1, T, T), persistent=False)

    def forward(self, x_BTC: Tensor) -> Tensor:
        B, T, C = x_BTC.shape
        q, k, v = (
            part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.c_attn(x_BTC).split(C, dim=2)
        )
        if self.rung.flash_attention:
            y_BHTD = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y_BHTD = self._from_scratch(q, k, v)
        return self.c_proj(y_BHTD.transpose(1, 2).reshape(B, T, C))

    def _from_scratch(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        T = q.shape[-2]
        scores_BHTT = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
        if self.rung.mask is Mask.BUFFER:
            mask: Tensor = self.mask  # type: ignore[assignment]
            allowed = mask[:, :, :T, :T]
        else:
            allowed = torch.tril(torch.ones(T, T, device=q.device)).view(1, 1, T, T)
        scores_BHTT = scores_BHTT.masked_fill(allowed == 0, float("-inf"))
        weights_BHTT = F.softmax(scores_BHTT, dim=-1)
        return weights_BHTT @ v


class Mlp(nn.Module):
    """Two linear layers around a GELU."""

    def __init__(self, config: GptConfig, rung: Rung) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.gelu = nn.GELU(approximate="tanh") if rung.torch_layers else ScratchGelu()
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.gelu(self.c_fc(x)))


def _layer_norm(config: GptConfig, rung: Rung) -> nn.Module:
    return nn.LayerNorm(config.n_embd) if rung.torch_layers else ScratchLayerNorm(config.n_embd)


class Block(nn.Module):
    """Pre-norm residual block."""

    def __init__(self, config: GptConfig, rung: Rung) -> None:
        super().__init__()
        self.ln_1, self.attn = _layer_norm(config, rung), Attention(config, rung)
        self.ln_2, self.mlp = _layer_norm(config, rung), Mlp(config, rung)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """GPT-2 with a tied head. `text_vocabulary` below the vocabulary masks the padding's logits."""

    def __init__(self, config: GptConfig, rung: Rung, text_vocabulary: int | None = None) -> None:
        super().__init__()
        self.text_vocabulary = text_vocabulary or config.vocab_size
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config, rung) for _ in range(config.n_layer))
        self.ln_f = _layer_norm(config, rung)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        positions = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTC = self.wte(tokens_BT) + self.wpe(positions)
        for block in self.h:
            x_BTC = block(x_BTC)
        logits_BTV = self.lm_head(self.ln_f(x_BTC))
        if self.text_vocabulary < logits_BTV.shape[-1]:
            padding = torch.arange(logits_BTV.shape[-1], device=logits_BTV.device) >= self.text_vocabulary
            logits_BTV = logits_BTV.masked_fill(padding, torch.finfo(logits_BTV.dtype).min)
        return logits_BTV


def build(config: GptConfig) -> nn.Module:
    """The built-in implementation of `gpt.train`: torch layers and fused attention, eager."""
    return Gpt(config, BEST_EAGER)


def optimizer(model: nn.Module, config: GptConfig) -> torch.optim.Optimizer:
    """The optimizer where a project plugs in none."""
    return adamw(model.parameters(), config, fused=True)


def adamw(parameters: Iterable[nn.Parameter], config: GptConfig, *, fused: bool) -> torch.optim.Optimizer:
    """AdamW as the config says: one fused kernel, or a loop over parameters in Python."""
    how: dict[str, Any] = {"fused": True} if fused else {"foreach": False, "fused": False}
    return torch.optim.AdamW(
        parameters, lr=config.learning_rate, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay, **how
    )


class _NamesAndShapes(TorchFunctionMode):
    """Draws nothing where `torch.nn.init` would: for tensors without memory that imports a part of the compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Leaves a tensor that is to be initialised as it is."""
        named = kwargs or {}
        return named["tensor"] if getattr(func, "__module__", None) == "torch.nn.init" else func(*args, **named)


def seeded_weights(config: GptConfig, seed: int = 1234) -> dict[str, Tensor]:
    """GPT-2's initialisation (0.02, residual projections scaled by the depth) from a seed.

    Drawn where they are used: on a CPU in double precision, on a GPU in single, where a CPU would take seconds.
    """
    generator = torch.Generator(config.device).manual_seed(seed)
    kind = torch.float64 if config.device == "cpu" else torch.float32
    with torch.device("meta"), _NamesAndShapes():
        model = Gpt(config, BEST_EAGER)
    weights: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        centre = 1.0 if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0.0
        scale = 0.02 / math.sqrt(2 * config.n_layer) if name.endswith("c_proj.weight") else 0.02
        drawn = torch.randn(parameter.shape, generator=generator, dtype=kind, device=config.device) * scale + centre
        weights[name] = drawn.to(torch.float32)
    return weights
