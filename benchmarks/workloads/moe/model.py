"""A small mixture-of-experts model: the dense GPT with its MLPs replaced by MoE layers, trained one step."""

# B batch, T context, C width, E experts, K experts a token goes to

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness.plugin import Plugin, load_plugin
from benchmarks.harness.timing.marks import NoMarks
from benchmarks.harness.workload import Job, Work
from benchmarks.workloads.gpt import model as gpt_model
from benchmarks.workloads.gpt.config import GptConfig
from benchmarks.workloads.gpt.training import GptWorkload, Loss, cross_entropy_of, gradients_by_name, load_by_name
from benchmarks.workloads.moe.layer import IMPLEMENTATIONS, MoeConfig, MoeWeights, draw_weights, load_bias


class MoeMlp(nn.Module):
    """The experts of one block, under GPT-2's place for the MLP."""

    def __init__(self, config: MoeConfig, how: str, plugin: Plugin | None, seed: int) -> None:
        super().__init__()
        self.config, self.how, self.plugin = config, how, plugin
        for name, drawn in draw_weights(config, torch.Generator(config.device).manual_seed(seed)).items():
            self.register_parameter(name, nn.Parameter(drawn))
        self.bias: Tensor
        self.register_buffer("bias", torch.zeros(config.tokens, config.experts), persistent=False)
        self.seed = seed

    def set_load(self, load: str) -> None:
        """Fixes which experts each position prefers."""
        generator = torch.Generator(self.config.device).manual_seed(self.seed + 7)
        self.bias.copy_(load_bias(load, self.config.tokens, self.config.experts, generator))

    def forward(self, x_BTC: Tensor) -> Tensor:
        x_TC = x_BTC.reshape(-1, x_BTC.shape[-1])
        tensors: list[Any] = [x_TC, self.router, self.gate, self.up, self.down]
        kind = x_BTC.device.type
        if torch.is_autocast_enabled(kind):
            # Grouped products are not among the operations that autocast knows.
            tensors = [tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors]
        x_TC, weights = tensors[0], MoeWeights(*tensors[1:])
        bias = self.bias[: x_TC.shape[0]]
        if self.plugin is not None:
            y_TC = self.plugin.function(x_TC, bias, weights, self.config)
        else:
            y_TC = IMPLEMENTATIONS[self.how](x_TC, bias, weights, self.config, NoMarks())
        return y_TC.to(x_BTC.dtype).view_as(x_BTC)


class Captured(nn.Module):
    """Forward and backward passes of a model as CUDA graphs, captured at its first batch and replayed for all others.

    Nothing of the host remains in them but two launches; optimizer and loss stay outside.
    """

    def __init__(self, model: nn.Module, dtype: str) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        self.replayed: Any = None

    def forward(self, tokens_BT: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            # Graphs are made for training; without gradients the model itself answers.
            return self.model(tokens_BT)  # type: ignore[no-any-return]
        if self.replayed is None:
            # Capturing forbids autocast to keep casted weights from one call for the next.
            enabled = self.dtype == "bf16"
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=enabled, cache_enabled=False):
                self.replayed = torch.cuda.make_graphed_callables(_Function(self.model), (tokens_BT,))
        with torch.autocast("cuda", enabled=False):
            return self.replayed(tokens_BT)  # type: ignore[no-any-return]


class _Function(nn.Module):
    """The model under a name of its own: capturing replaces a module's `forward`, and the model must keep its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.model(tokens_BT)  # type: ignore[no-any-return]


class MoeModel(GptWorkload):
    """`moe.model`: attention, experts, head and optimizer together, eager or compiled."""

    def __init__(self, job: Job) -> None:
        sizes = dict(job.config)
        self.moe = {key: sizes.pop(key) for key in ("expert_width", "experts", "top_k")}
        self.how, self.compile_mode = str(sizes.pop("impl")), str(sizes.pop("compile"))
        self.compiles = self.compile_mode not in ("eager", "cuda_graph")
        config = GptConfig(**sizes)
        self.plugin = load_plugin(job.implementation, from_checkout=True) if job.implementation else None
        super().__init__(job, config, config.vocab_size)
        dense, routed = 8 * config.n_embd**2, 3 * self.moe["top_k"] * config.n_embd * self.moe["expert_width"]
        active = config.n_layer * (routed + config.n_embd * self.moe["experts"] - dense) + config.matmul_parameters
        attention = 12 * config.n_layer * config.n_embd * config.block_size
        all_experts = config.n_layer * 3 * self.moe["experts"] * config.n_embd * self.moe["expert_width"]
        self.work = Work(
            flop=float(config.tokens_per_step * (6 * active + attention)),
            bytes=float(36 * (active + all_experts)),
            units=float(config.tokens_per_step),
            unit_metric="tokens_per_s",
            formula="6·N_active+12·L·C·T, active parameters",
            precision=config.dtype,
        )

    def _model(self, config: GptConfig, rung: Any, how: str, plugin: Plugin | None) -> nn.Module:
        model = gpt_model.Gpt(config, rung)
        sizes = MoeConfig(
            width=config.n_embd, tokens=config.tokens_per_step, dtype=config.dtype, device=config.device, **self.moe
        )
        for number, block in enumerate(model.h):
            block.mlp = MoeMlp(sizes, how, plugin, seed=100 + number)
            block.mlp.set_load("uniform")
        return model

    def make_model(self, config: GptConfig) -> nn.Module:
        return self._model(config, gpt_model.BEST_EAGER, self.how, self.plugin)

    def reference_model(self, config: GptConfig) -> nn.Module:
        return self._model(config, gpt_model.NAIVE, "loop", None)

    def seeded_weights(self, config: GptConfig) -> dict[str, Tensor]:
        weights = {name: w for name, w in gpt_model.seeded_weights(config).items() if ".mlp." not in name}
        experts = {name: p.detach() for name, p in self.reference_model(config).named_parameters() if ".mlp." in name}
        return weights | experts

    def make_optimizer(self, model: nn.Module, config: GptConfig) -> Any:
        return gpt_model.adamw(model.parameters(), config, fused=True)

    def load(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        load_by_name(model, weights)

    def gradients(self, model: nn.Module) -> dict[str, Tensor]:
        return gradients_by_name(model)

    def finish(self, model: nn.Module) -> nn.Module:
        if self.compile_mode == "eager":
            return model
        if self.compile_mode == "cuda_graph":
            return Captured(model, self.dtype)
        return self._compiled(model)  # type: ignore[no-any-return]

    def loss_of(self, model: nn.Module) -> Loss:
        return self._compiled(cross_entropy_of(model)) if self.compiles else super().loss_of(model)  # type: ignore[no-any-return]

    def _compiled(self, function: Any) -> Any:
        return torch.compile(function, mode=None if self.compile_mode == "default" else self.compile_mode)
