"""Mixture of experts: a layer with its routing, dispatch, expert products and combination."""

# T tokens, C model width, F expert width, E experts, K experts a token goes to, R = T·K rows

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.check import Correctness
from benchmarks.harness.differentiable import Differentiable, Scene, Tensors, with_constant
from benchmarks.harness.plugin import load_plugin
from benchmarks.harness.timing.clock import HostClock
from benchmarks.harness.timing.device import CudaDevice, Device
from benchmarks.harness.timing.marks import EventMarks, HostMarks, Marks, NoMarks
from benchmarks.harness.workload import Job, StepCounter, Work, fact

CAPACITY_FACTOR = 1.25
CHECK_TOKENS = 96
CHECK_WEIGHTS = 1_500_000_000
"""Expert weights of a check at most: in double precision, with gradients, 24 GB."""
ZIPF_EXPONENT = 0.8
BIAS_SCALE = 2000.0
PARTS = ("router", "dispatch", "gemm", "combine")
PART_ROUNDS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeConfig:
    """The configuration passed to a plugged-in `layer(x, bias, weights, config)`."""

    width: int
    expert_width: int
    experts: int
    top_k: int
    tokens: int
    dtype: str = "fp32"
    device: str = "cpu"
    capacity_factor: float = CAPACITY_FACTOR
    shared: int = 0
    """Experts that every token visits besides the chosen ones; as one expert of `shared` times the width."""


@dataclass(frozen=True, slots=True)
class MoeWeights:
    """router (C, E); gate and up (E, C, F); down (E, F, C). All take gradients.

    With S shared experts: shared_gate and shared_up (C, S·F), shared_down (S·F, C); None without.
    """

    router_CE: Tensor
    gate_ECF: Tensor
    up_ECF: Tensor
    down_EFC: Tensor
    shared_gate_CF: Tensor | None = None
    shared_up_CF: Tensor | None = None
    shared_down_FC: Tensor | None = None


def route(x_TC: Tensor, bias_TE: Tensor, router_CE: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Each token's experts and their weights: chosen by score plus bias, weighted by soft-max of the chosen scores."""
    scores_TE = x_TC @ router_CE
    chosen_TK = (scores_TE + bias_TE).topk(top_k, dim=-1).indices
    return chosen_TK, torch.softmax(scores_TE.gather(1, chosen_TK), -1)


def expert(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """SwiGLU."""
    return (F.silu(x @ gate) * (x @ up)) @ down


def with_shared(y_TC: Tensor, x_TC: Tensor, weights: MoeWeights, marks: Marks) -> Tensor:
    """Adds what the shared experts say of every token, where there are any."""
    gate, up, down = weights.shared_gate_CF, weights.shared_up_CF, weights.shared_down_FC
    if gate is None or up is None or down is None:
        return y_TC
    marks.enter("shared")
    return y_TC + expert(x_TC, gate, up, down)


def loop_over_experts(x_TC: Tensor, bias_TE: Tensor, weights: MoeWeights, config: MoeConfig, marks: Marks) -> Tensor:
    """The honest baseline: one small product per expert, and on an accelerator a stop of the host for each."""
    return _loop(x_TC, bias_TE, weights, config, marks, None)


def _loop(
    x_TC: Tensor, bias_TE: Tensor, weights: MoeWeights, config: MoeConfig, marks: Marks, keep_TK: Tensor | None
) -> Tensor:
    marks.enter("router")
    chosen_TK, share_TK = route(x_TC, bias_TE, weights.router_CE, config.top_k)
    y_TC = torch.zeros_like(x_TC)
    # Unbound once: an expert taken by its index has a gradient as large as all experts together, zero but for its own.
    experts = zip(weights.gate_ECF.unbind(), weights.up_ECF.unbind(), weights.down_EFC.unbind(), strict=True)
    for number, (gate_CF, up_CF, down_FC) in enumerate(experts):
        marks.enter("dispatch")
        hit_TK = chosen_TK == number if keep_TK is None else (chosen_TK == number) & keep_TK
        token, slot = hit_TK.nonzero(as_tuple=True)
        marks.enter("gemm")
        out = expert(x_TC[token], gate_CF, up_CF, down_FC)
        marks.enter("combine")
        y_TC.index_add_(0, token, out * share_TK[token, slot, None])
    return y_TC


def capacity_of(config: MoeConfig, tokens: int) -> int:
    """Rows each expert has room for."""
    return math.ceil(config.capacity_factor * tokens * config.top_k / config.experts)


def place_in_expert(chosen_TK: Tensor, experts: int) -> Tensor:
    """The how-many-th row of its expert each (token, choice) is, first choices of earlier tokens first."""
    one_hot_RE = F.one_hot(chosen_TK.flatten(), experts)
    return ((one_hot_RE.cumsum(0) - 1) * one_hot_RE).sum(-1).view_as(chosen_TK)


def capacity_bmm(x_TC: Tensor, bias_TE: Tensor, weights: MoeWeights, config: MoeConfig, marks: Marks) -> Tensor:
    """Fixed room per expert and one batched product; rows over the room are dropped."""
    marks.enter("router")
    chosen_TK, share_TK = route(x_TC, bias_TE, weights.router_CE, config.top_k)
    marks.enter("dispatch")
    room = capacity_of(config, x_TC.shape[0])
    place_TK = place_in_expert(chosen_TK, config.experts)
    kept_TK = place_TK < room
    # Dropped rows go to a spare row past each expert's room, which is cut off.
    row_R = (chosen_TK * (room + 1) + place_TK.clamp(max=room)).flatten()
    token_R = torch.arange(x_TC.shape[0], device=x_TC.device).repeat_interleave(config.top_k)
    spaces = x_TC.new_zeros(config.experts * (room + 1), x_TC.shape[1])
    filled = spaces.index_copy(0, row_R, x_TC.index_select(0, token_R)).view(config.experts, room + 1, -1)[:, :room]
    marks.enter("gemm")
    hidden = F.silu(torch.bmm(filled, weights.gate_ECF)) * torch.bmm(filled, weights.up_ECF)
    out = torch.bmm(hidden, weights.down_EFC)
    marks.enter("combine")
    padded = F.pad(out, (0, 0, 0, 1)).reshape(config.experts * (room + 1), -1)
    share_RC = (share_TK * kept_TK).flatten()[:, None]
    return torch.zeros_like(x_TC).index_add(0, token_R, padded.index_select(0, row_R) * share_RC)


def grouped(x_TC: Tensor, bias_TE: Tensor, weights: MoeWeights, config: MoeConfig, marks: Marks) -> Tensor:
    """Dropless: rows sorted by expert, one grouped product over jagged groups; no size ever comes back to the host."""
    marks.enter("router")
    chosen_TK, share_TK = route(x_TC, bias_TE, weights.router_CE, config.top_k)
    marks.enter("dispatch")
    order_R = chosen_TK.flatten().argsort(stable=True)
    token_R = order_R // config.top_k
    counts_E = torch.zeros(config.experts, dtype=torch.int32, device=x_TC.device).index_add(
        0, chosen_TK.flatten(), torch.ones_like(chosen_TK.flatten(), dtype=torch.int32)
    )
    ends_E = counts_E.cumsum(0, dtype=torch.int32)
    # Its backward pass adds rows as they come; that of x_TC[token_R] sorts them first.
    rows_RC = x_TC.index_select(0, token_R)
    marks.enter("gemm")
    hidden = F.silu(F.grouped_mm(rows_RC, weights.gate_ECF, offs=ends_E)) * F.grouped_mm(
        rows_RC, weights.up_ECF, offs=ends_E
    )
    out_RC = F.grouped_mm(hidden, weights.down_EFC, offs=ends_E)
    marks.enter("combine")
    return torch.zeros_like(x_TC).index_add(0, token_R, out_RC * share_TK.flatten()[order_R, None])


Implementation = Callable[[Tensor, Tensor, MoeWeights, MoeConfig, Marks], Tensor]
IMPLEMENTATIONS: dict[str, Implementation] = {
    "loop": loop_over_experts,
    "capacity": capacity_bmm,
    "grouped_mm": grouped,
}


def load_bias(load: str, tokens: int, experts: int, generator: torch.Generator) -> Tensor:
    """A bias per token and expert that makes the choice follow a load: `uniform`, `zipf` (1/rank^0.8) or one `hot`.

    Gumbel noise on the logarithm of a distribution draws from it without replacement: a token's K choices differ.
    """
    rank = torch.arange(1, experts + 1, dtype=torch.float64, device=generator.device)
    if load == "uniform":
        wanted = torch.ones_like(rank)
    elif load == "zipf":
        wanted = rank**-ZIPF_EXPONENT
    elif load == "hot":
        wanted = torch.where(rank == 1, 1000.0 * experts, 1.0).double()
    else:
        raise ValueError(f"unknown load '{load}'; known: uniform, zipf, hot")
    how: dict[str, Any] = {"dtype": torch.float64, "generator": generator, "device": generator.device}
    uniform = torch.rand(tokens, experts, **how).clamp_min(1e-12)
    gumbel = -torch.log(-torch.log(uniform))
    # So large that neither the router's own scores, of order one, nor their rounding turns a choice round.
    return (BIAS_SCALE * (torch.log(wanted) + gumbel)).float()


def moe_flop(config: MoeConfig, tokens: int) -> float:
    """Forward, per token: 2·C·E for the router, 6·K·C·F for the routed SwiGLU experts and 6·S·C·F for the shared ones;
    active parameters only.
    """
    visited = config.top_k + config.shared
    per_token = 2 * config.width * config.experts + 6 * visited * config.width * config.expert_width
    return float(tokens * per_token)


def draw_weights(config: MoeConfig, generator: torch.Generator) -> dict[str, Tensor]:
    """Seeded weights, scaled so that every stage has unit variance."""
    C, width, E = config.width, config.expert_width, config.experts

    def normal(*shape: int, fan_in: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=generator.device) / math.sqrt(fan_in)

    drawn = {
        "router": normal(C, E, fan_in=C),
        "gate": normal(E, C, width, fan_in=C),
        "up": normal(E, C, width, fan_in=C),
        "down": normal(E, width, C, fan_in=width),
    }
    if config.shared:
        both = config.shared * width
        drawn |= {"shared_gate": normal(C, both, fan_in=C), "shared_up": normal(C, both, fan_in=C)}
        drawn["shared_down"] = normal(both, C, fan_in=both)
    return drawn


class MoeLayer(Differentiable):
    """`moe.layer`: one layer, forward and backward, under a chosen load."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        sizes = {key: job.config[key] for key in ("width", "expert_width", "experts", "top_k", "tokens")}
        shared = int(job.config.get("shared", 0))
        self.config = MoeConfig(**sizes, dtype=self.dtype, device=self.device, shared=shared)
        self.load, self.how = str(job.config["load"]), str(job.config["impl"])
        self.plugin = load_plugin(job.implementation, from_checkout=True) if job.implementation else None
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        c = self.config
        weights = 3 * (c.experts + c.shared) * c.width * c.expert_width * width
        rows = 2 * 2 * c.tokens * c.top_k * c.width * width
        forward = moe_flop(c, c.tokens)
        self.work = Work(
            flop=3 * forward,
            bytes=float(3 * weights + 3 * rows),
            units=float(c.tokens),
            unit_metric="tokens_per_s",
            formula="3·T·(2·C·E + 6·K·C·F + 6·S·C·F), active parameters",
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        config = self._fit_for_double_precision() if reduced else self.config
        tokens = min(config.tokens, CHECK_TOKENS) if reduced else config.tokens
        x = self.normal(tokens, config.width)
        bias = load_bias(self.load, tokens, config.experts, self.generator)
        return Tensors({"x": x, **draw_weights(config, self.generator)}, {"bias": bias})

    def _fit_for_double_precision(self) -> MoeConfig:
        """Fewer experts where all of them, with gradients in double precision, would fill any device."""
        each = 3 * self.config.width * self.config.expert_width
        return replace(self.config, experts=min(self.config.experts, max(CHECK_WEIGHTS // each, 2 * self.config.top_k)))

    def _config_of(self, tensors: Tensors) -> MoeConfig:
        experts = int(tensors.learned["router"].shape[1])
        return self.config if experts == self.config.experts else replace(self.config, experts=experts)

    def function(self, tensors: Tensors, marks: Marks | None = None) -> Tensor:
        x, *learned = tensors.learned.values()
        weights, bias, config = MoeWeights(*learned), tensors.constant["bias"], self._config_of(tensors)
        if self.plugin is not None:
            out: Tensor = self.plugin.function(x, bias, weights, config)
            return out
        marks = marks or NoMarks()
        return with_shared(IMPLEMENTATIONS[self.how](x, bias, weights, config, marks), x, weights, marks)

    def reference(self, tensors: Tensors) -> Tensor:
        x, *learned = tensors.learned.values()
        weights, config = MoeWeights(*learned), self._config_of(tensors)
        keep_TK = None
        if self.how == "capacity" and self.plugin is None:
            chosen_TK, _ = route(x.detach(), tensors.constant["bias"], weights.router_CE.detach(), config.top_k)
            keep_TK = place_in_expert(chosen_TK, config.experts) < capacity_of(config, x.shape[0])
        y = _loop(x, tensors.constant["bias"], weights, config, NoMarks(), keep_TK)
        return with_shared(y, x, weights, NoMarks())

    def scenes(self) -> Sequence[Scene]:
        """The load as drawn, with the router's gradient required; then an expert that gets no token at all."""
        drawn = self.inputs(reduced=True)
        starved = drawn.constant["bias"].clone()
        starved[:, -1] = -1e9
        return [
            Scene(name=f"{self.load} load", inputs=drawn),
            Scene(
                name="an expert without tokens", inputs=with_constant(drawn, bias=starved), also=self._rows_and_finite
            ),
        ]

    def _rows_and_finite(self, result: Correctness, output: Tensor, tensors: Tensors) -> None:
        result.require("empty_expert_not_finite", float((~torch.isfinite(output.detach())).sum()), 0.0)
        chosen_TK, share_TK = route(
            tensors.learned["x"].detach(),
            tensors.constant["bias"],
            tensors.learned["router"].detach(),
            self.config.top_k,
        )
        result.require("rows_missing", float(abs(chosen_TK.numel() - output.shape[0] * self.config.top_k)), 0.0)
        result.require("weights_off_one", float((share_TK.double().sum(-1) - 1).abs().max()), 1e-2)

    def further_counters(self, inputs: Tensors) -> list[StepCounter]:
        """Imbalance, padding and drops of this load; where the built-in runs, also how the forward pass divides."""
        config, x = self.config, inputs.learned["x"].detach()
        with torch.no_grad():
            chosen_TK, _ = route(x, inputs.constant["bias"], inputs.learned["router"], config.top_k)
        rows_E = torch.bincount(chosen_TK.flatten(), minlength=config.experts).double()
        total, room = float(rows_E.sum()), capacity_of(config, config.tokens)
        fixed_room = self.how == "capacity" and self.plugin is None
        kept = float(rows_E.clamp(max=room).sum()) if fixed_room else total
        found = [
            fact("imbalance", float(rows_E.max() / rows_E.mean()), "ratio", "busiest expert's rows over the mean"),
            fact("drop_rate", 1 - kept / total, "ratio", "rows over an expert's room, of all rows"),
            fact(
                "padding_waste",
                1 - kept / (room * config.experts) if fixed_room else 0.0,
                "ratio",
                "empty room, of all room",
            ),
        ]
        return found + (self._parts(inputs) if self.plugin is None else [])

    def _parts(self, inputs: Tensors) -> list[StepCounter]:
        """Milliseconds of router, dispatch, expert products and combination, in forward passes of their own."""
        once = self._parts_by_clock(inputs) if self.device == "cpu" else self._parts_by_events(inputs, CudaDevice())
        rounds = [once() for _ in range(PART_ROUNDS)]
        typical = sorted(rounds, key=lambda parts: sum(parts.values()))[PART_ROUNDS // 2]
        return [
            StepCounter(
                metric=f"forward_{part}_ms", value=1000 * typical.get(part, 0.0), unit="ms", role="derived", exact=False
            )
            for part in (*PARTS, *(["shared"] if self.config.shared else []))
        ]

    def _parts_by_clock(self, inputs: Tensors) -> Callable[[], dict[str, float]]:
        clock = HostClock()

        def once() -> dict[str, float]:
            marks = HostMarks(clock)
            marks.start()
            with torch.no_grad():
                self.function(inputs, marks)
            return marks.stop()

        return once

    def _parts_by_events(self, inputs: Tensors, device: Device) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            marks = EventMarks(device)
            with torch.no_grad():
                self.function(inputs, marks)
            end = device.record()
            device.synchronize()
            return marks.seconds(end)

        return once


__all__ = ["MoeConfig", "MoeLayer", "MoeWeights"]
