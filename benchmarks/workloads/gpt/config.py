"""Sizes and choices of the dense GPT.

Standard library only, so that a plugged-in module may import it for its types.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class GptConfig:
    """The argument of a plugged-in `build(config)` and `optimizer(model, config)`. Names follow GPT-2's own code."""

    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    vocab_size: int
    batch_size: int
    dtype: str = "fp32"
    device: str = "cpu"
    learning_rate: float = 6e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.n_embd // self.n_head

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one training step."""
        return self.batch_size * self.block_size

    @property
    def matmul_parameters(self) -> int:
        """N_mm: weights of matrix products. 12·C² a layer, and the head; embeddings are look-ups, not products."""
        return 12 * self.n_layer * self.n_embd**2 + self.vocab_size * self.n_embd

    def flop_per_token(self, *, causal: bool = False) -> int:
        """PaLM's convention for a training step.

        6·N_mm + 12·L·C·T; `causal` counts only what the mask leaves (6·L·C·T).
        """
        attention = (6 if causal else 12) * self.n_layer * self.n_embd * self.block_size
        return 6 * self.matmul_parameters + attention


class Mask(StrEnum):
    """Where the causal mask comes from."""

    BUFFER = "buffer"
    ON_THE_FLY = "on_the_fly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step of the optimisation ladder: all choices up to and including the one its name says."""

    name: str
    mask: Mask = Mask.BUFFER
    tf32: bool = False
    fused_optimizer: bool = False
    pinned_memory: bool = False
    bf16: bool = False
    torch_layers: bool = False
    flash_attention: bool = False
    compiled: bool = False
    padded_vocabulary: bool = False
    largest_batch: bool = False


_CHANGES: tuple[tuple[str, dict[str, object]], ...] = (
    ("r00_fp32_from_scratch", {}),
    ("r01_mask_on_the_fly", {"mask": Mask.ON_THE_FLY}),
    ("r02_tf32", {"tf32": True}),
    ("r03_fused_adamw", {"fused_optimizer": True}),
    ("r04_pinned_memory", {"pinned_memory": True}),
    ("r05_bf16", {"bf16": True}),
    ("r06_torch_layers", {"torch_layers": True}),
    ("r07_flash_attention", {"flash_attention": True}),
    ("r08_compile", {"compiled": True}),
    ("r09_padded_vocabulary", {"padded_vocabulary": True}),
    ("r10_largest_batch", {"largest_batch": True}),
)


def ladder() -> tuple[Rung, ...]:
    """The eleven rungs, each the one below plus one change."""
    rungs: list[Rung] = []
    choices: dict[str, object] = {}
    for name, change in _CHANGES:
        choices.update(change)
        rungs.append(Rung(name=name, **choices))  # type: ignore[arg-type]
    return tuple(rungs)


def rung_named(name: str) -> Rung:
    """The rung of that name; raises `ValueError` with the known ones."""
    for rung in ladder():
        if rung.name == name:
            return rung
    raise ValueError(f"unknown rung '{name}'; known: {', '.join(rung.name for rung in ladder())}")
