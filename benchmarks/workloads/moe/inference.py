"""A mixture-of-experts layer that generates: few tokens, so that reading the experts' weights is all there is to do."""

# T tokens, C model width, F expert width, E experts, K chosen of them

from __future__ import annotations

from benchmarks.harness.differentiable import Tensors
from benchmarks.harness.workload import Job, StepCounter, Work, fact
from benchmarks.workloads.moe.layer import MoeConfig, MoeLayer, moe_flop


def experts_touched(config: MoeConfig, tokens: int) -> float:
    """How many experts get a token at all, on average, where each token chooses K of E alike: E·(1 − (1 − K/E)^T)."""
    return config.experts * (1 - (1 - config.top_k / config.experts) ** tokens)


class MoeInference(MoeLayer):
    """`moe.infer`: the layer without gradients; its bytes are the weights of the experts that are touched."""

    forward_only = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        c, width = self.config, {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        touched = experts_touched(c, c.tokens) + c.shared
        self.work = Work(
            flop=moe_flop(c, c.tokens),
            bytes=width * (3 * touched * c.width * c.expert_width + c.width * c.experts + 2 * c.tokens * c.width),
            units=float(c.tokens),
            unit_metric="tokens_per_s",
            formula="T·(2·C·E + 6·K·C·F) FLOP; 3·C·F·width bytes of each expert that is touched, E·(1 − (1 − K/E)^T)",
            precision=self.dtype,
        )

    def further_counters(self, inputs: Tensors) -> list[StepCounter]:
        """Beside what the layer counts, how many experts are touched on average."""
        touched = experts_touched(self.config, self.config.tokens)
        return [*super().further_counters(inputs), fact("experts_touched", touched, "1", "E·(1 − (1 − K/E)^T)")]


__all__ = ["MoeInference"]
