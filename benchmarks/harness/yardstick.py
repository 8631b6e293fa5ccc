"""The yardstick: a fixed training step that no commit can change, interleaved with the measured one on noisy machines.

It has the character of what it stands beside (matrix products, soft-max, element-wise work, many small operations,
autograd, an in-place update), so that a busy neighbour, a slow clock or a shared cache hits both alike and cancels in
the quotient. Any change here is a new suite version.
"""

# B batch, T context, C width, H heads, D head width, F inner width, V vocabulary

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

BATCH, CONTEXT, WIDTH, HEADS, VOCABULARY = 2, 128, 128, 4, 512


class Yardstick:
    """One small transformer layer trained on fixed random tokens; single precision, one thread, about 7 ms."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(20260101)

        def weight(*shape: int) -> torch.Tensor:
            return (torch.randn(*shape, generator=generator) * 0.02).requires_grad_()

        self.tokens_BT = torch.randint(0, VOCABULARY, (BATCH, CONTEXT), generator=generator)
        self.targets = torch.randint(0, VOCABULARY, (BATCH * CONTEXT,), generator=generator)
        self.embedding_VC = weight(VOCABULARY, WIDTH)
        self.query_key_value = weight(WIDTH, 3 * WIDTH)
        self.projection = weight(WIDTH, WIDTH)
        self.inner_CF = weight(WIDTH, 4 * WIDTH)
        self.outer_FC = weight(4 * WIDTH, WIDTH)
        self.mask_TT = torch.triu(torch.full((CONTEXT, CONTEXT), float("-inf")), 1)
        self.weights = [self.embedding_VC, self.query_key_value, self.projection, self.inner_CF, self.outer_FC]

    def step(self) -> None:
        """Forward, backward and an update too small to drift."""
        x_BTC = self.embedding_VC[self.tokens_BT]
        x_BTC = x_BTC + self._attend(_norm(x_BTC))
        x_BTC = x_BTC + F.gelu(_norm(x_BTC) @ self.inner_CF) @ self.outer_FC
        logits = (_norm(x_BTC) @ self.embedding_VC.t()).view(-1, VOCABULARY)
        F.cross_entropy(logits, self.targets).backward()
        with torch.no_grad():
            for weight in self.weights:
                gradient = weight.grad
                assert gradient is not None
                gradient.mul_(0.999)
                weight.sub_(gradient, alpha=1e-9)
                weight.grad = None

    def _attend(self, x_BTC: torch.Tensor) -> torch.Tensor:
        head = WIDTH // HEADS
        q, k, v = (x_BTC @ self.query_key_value).view(BATCH, CONTEXT, 3, HEADS, head).permute(2, 0, 3, 1, 4)
        weights_BHTT = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(head) + self.mask_TT, -1)
        return (weights_BHTT @ v).transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH) @ self.projection


def _norm(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
