"""The yardstick: a fixed training step that no commit can change, interleaved with the measured one on noisy machines.

It has the character of what it stands beside (matrix products, fused attention, normalisation, element-wise work, a
hundred small operations, autograd, an in-place update), so that a busy neighbour or a shared cache hits both alike
and cancels in the quotient. Its shapes matter: with half the context it slowed 2 % more than a training step whenever
the sibling core was busy; with these the two agree. Any change here is a new suite version.
"""

# B batch, T context, C width, H heads, F inner width, V vocabulary

from __future__ import annotations

import torch
import torch.nn.functional as F

BATCH, CONTEXT, WIDTH, HEADS, VOCABULARY = 1, 256, 128, 4, 512


class Yardstick:
    """One small transformer layer trained on fixed random tokens; single precision, one thread, about 8 ms."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(20260101)

        def weight(*shape: int, around: float = 0.0) -> torch.Tensor:
            return (torch.randn(*shape, generator=generator) * 0.02 + around).requires_grad_()

        self.tokens_BT = torch.randint(0, VOCABULARY, (BATCH, CONTEXT), generator=generator)
        self.targets = torch.randint(0, VOCABULARY, (BATCH * CONTEXT,), generator=generator)
        self.embedding_VC = weight(VOCABULARY, WIDTH)
        self.query_key_value = (weight(3 * WIDTH, WIDTH), weight(3 * WIDTH))
        self.projection = (weight(WIDTH, WIDTH), weight(WIDTH))
        self.inner = (weight(4 * WIDTH, WIDTH), weight(4 * WIDTH))
        self.outer = (weight(WIDTH, 4 * WIDTH), weight(WIDTH))
        self.norms = [(weight(WIDTH, around=1.0), weight(WIDTH)) for _ in range(3)]
        pairs = [self.query_key_value, self.projection, self.inner, self.outer, *self.norms]
        self.weights = [self.embedding_VC, *(tensor for pair in pairs for tensor in pair)]

    def step(self) -> None:
        """Forward, backward and an update too small to drift."""
        x_BTC = F.embedding(self.tokens_BT, self.embedding_VC)
        x_BTC = x_BTC + self._attend(self._norm(0, x_BTC))
        hidden_BTF = F.gelu(F.linear(self._norm(1, x_BTC), *self.inner), approximate="tanh")
        x_BTC = x_BTC + F.linear(hidden_BTF, *self.outer)
        logits = F.linear(self._norm(2, x_BTC), self.embedding_VC).view(-1, VOCABULARY)
        F.cross_entropy(logits, self.targets).backward()
        with torch.no_grad():
            for weight in self.weights:
                gradient = weight.grad
                assert gradient is not None
                gradient.mul_(0.999)
                weight.sub_(gradient, alpha=1e-9)
                weight.grad = None

    def _norm(self, which: int, x_BTC: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x_BTC, (WIDTH,), *self.norms[which])

    def _attend(self, x_BTC: torch.Tensor) -> torch.Tensor:
        parts = F.linear(x_BTC, *self.query_key_value).view(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y_BHTD = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y_BHTD.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH), *self.projection)
