"""The dense GPT training step: `gpt.train` with its plug-in point, and the eleven rungs of `gpt.ladder`."""

# B batch, T context, C width, V vocabulary

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness.check import Correctness, norm_error, relative_limit, worst_error
from benchmarks.harness.counters import count_activation_bytes, count_operations, host_syncs
from benchmarks.harness.plugin import PluginError, load_plugin
from benchmarks.harness.timing.marks import Marks, NoMarks
from benchmarks.harness.workload import Job, NotApplicable, StepCounter, Work, fact
from benchmarks.workloads.attention.dense import FUSED
from benchmarks.workloads.gpt import model as gpt_model
from benchmarks.workloads.gpt.config import GptConfig, Rung, rung_named

CHECK_BATCH, CHECK_CONTEXT, CHECK_STEPS = 2, 64, 3
LOSS_BAND = {"fp32": 1e-4, "bf16": 2e-2}
"""How far a loss after three steps may be from the double-precision one, as a fraction."""

Autocast = Callable[[], contextlib.AbstractContextManager[Any]]
Loss = Callable[[Tensor, Tensor], Tensor]
"""Of token ids and their targets, both (B, T)."""


def cross_entropy_of(network: Callable[[Tensor], Tensor]) -> Loss:
    """The loss of a network that gives logits."""

    def loss(inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        logits_BTV = network(inputs_BT)
        return F.cross_entropy(logits_BTV.view(-1, logits_BTV.shape[-1]), targets_BT.reshape(-1))

    return loss


class TokenStream:
    """Seeded token ids with the skew of real text (frequency ∝ 1/rank), served as batches of inputs and shifted
    targets.
    """

    def __init__(self, config: GptConfig, vocabulary: int, *, pinned: bool, seed: int) -> None:
        self.config, self.pinned = config, pinned
        generator = torch.Generator().manual_seed(seed)
        frequency = 1.0 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
        length = max(8, 2) * config.tokens_per_step + config.block_size + 1
        self.tokens = torch.multinomial(frequency, length, replacement=True, generator=generator)
        self.generator = generator

    def next(self) -> tuple[Tensor, Tensor]:
        """The next (inputs, targets), each (B, T), on the host."""
        B, T = self.config.batch_size, self.config.block_size
        starts = torch.randint(0, len(self.tokens) - T - 1, (B,), generator=self.generator).tolist()
        inputs = torch.stack([self.tokens[s : s + T] for s in starts])
        targets = torch.stack([self.tokens[s + 1 : s + T + 1] for s in starts])
        if self.pinned:
            return inputs.pin_memory(), targets.pin_memory()
        return inputs, targets


class GptStep:
    """One training step around any model and optimizer, in the phases the contract names."""

    def __init__(
        self, model: nn.Module, loss: Loss, optimizer: Any, stream: TokenStream, config: GptConfig, autocast: Autocast
    ) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.stream, self.config, self.autocast = stream, config, autocast
        self.losses: list[Tensor] = []

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """The loss of one batch."""
        with self.autocast():
            return self.loss(inputs_BT, targets_BT)

    def batch(self, marks: Marks) -> tuple[Tensor, Tensor]:
        """The next batch, on the device."""
        marks.enter("data_wait")
        inputs_BT, targets_BT = self.stream.next()
        if self.config.device != "cpu":
            marks.enter("host_to_device")
            inputs_BT = inputs_BT.to(self.config.device, non_blocking=self.stream.pinned)
            targets_BT = targets_BT.to(self.config.device, non_blocking=self.stream.pinned)
        return inputs_BT, targets_BT

    def run(self, marks: Marks) -> None:
        """Batch, forward, backward, optimizer."""
        inputs_BT, targets_BT = self.batch(marks)
        marks.enter("forward")
        loss = self.forward(inputs_BT, targets_BT)
        marks.enter("backward")
        loss.backward()
        marks.enter("optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad()
        # A copy: a replayed graph writes the next loss to the same place.
        self.losses.append(loss.detach().clone())


class GptWorkload(ABC):
    """The common base of `gpt.train` and `gpt.ladder`; they differ in where model and optimizer come from."""

    dtype: str
    pinned = False
    compiles = False
    fused_kernels: Sequence[str] = ()
    """Of the counted step."""

    def __init__(self, job: Job, config: GptConfig, vocabulary: int) -> None:
        self.job, self.config, self.vocabulary = job, config, vocabulary
        self.dtype = config.dtype
        if config.device == "cuda" and not torch.cuda.is_available():
            raise NotApplicable(f"preset {job.preset} needs a GPU and torch sees none; --preset cpu runs anywhere")
        self.work = Work(
            flop=float(config.tokens_per_step * config.flop_per_token()),
            bytes=float(28 * self._parameters() + 2 * 4 * self._parameters()),
            units=float(config.tokens_per_step),
            unit_metric="tokens_per_s",
            formula="palm:6N+12LCT",
            precision=config.dtype,
        )

    def _parameters(self) -> int:
        return (
            12 * self.config.n_layer * self.config.n_embd**2
            + (self.config.vocab_size + self.config.block_size) * self.config.n_embd
        )

    # what the two differ in
    @abstractmethod
    def make_model(self, config: GptConfig) -> nn.Module:
        """The model to measure, with any weights."""

    @abstractmethod
    def make_optimizer(self, model: nn.Module, config: GptConfig) -> Any:
        """Its optimizer."""

    @abstractmethod
    def load(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        """Copies the seeded weights in, by name."""

    @abstractmethod
    def gradients(self, model: nn.Module) -> dict[str, Tensor]:
        """Gradients under GPT-2's names."""

    def finish(self, model: nn.Module) -> nn.Module:
        """The model as called for its logits: as it is, compiled or captured."""
        return model

    def loss_of(self, model: nn.Module) -> Loss:
        """The function that a step calls; where the model is compiled, its loss lies within the compiled region."""
        return cross_entropy_of(self.finish(model))

    def seeded_weights(self, config: GptConfig) -> dict[str, Tensor]:
        """One seeded set of weights, by name."""
        return gpt_model.seeded_weights(config)

    def reference_model(self, config: GptConfig) -> nn.Module:
        """The plain model that says what is right."""
        return gpt_model.Gpt(config, gpt_model.NAIVE, self.vocabulary)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.dtype != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.config.device, dtype=torch.bfloat16)

    def prepare(self) -> None:
        torch.manual_seed(self.job.seed)
        model = self._loaded(self.config)
        optimizer = self.make_optimizer(model, self.config)
        stream = TokenStream(self.config, self.vocabulary, pinned=self.pinned, seed=self.job.seed)
        self.training = GptStep(model, self.loss_of(model), optimizer, stream, self.config, self.autocast)

    def _loaded(self, config: GptConfig) -> nn.Module:
        # Its first weights are made where they are used, and then replaced by the seeded ones.
        with torch.device(config.device):
            model = self.make_model(config)
        if not isinstance(model, nn.Module):
            raise PluginError(f"build(config) returned {type(model).__name__}; it must return a torch.nn.Module")
        model = model.to(config.device)
        self.load(model, self.seeded_weights(config))
        return model.train()

    def step(self, marks: Marks) -> None:
        self.training.run(marks)

    def after(self) -> str | None:
        losses = torch.stack(self.training.losses).float()
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            return f"the loss became {losses[bad[0, 0]].item()} at step {int(bad[0, 0]) + 1} of {len(losses)}"
        return None

    def counters(self) -> list[StepCounter]:
        operations = count_operations(lambda: self.training.run(NoMarks()))
        self.fused_kernels = sorted(name for name in operations.by_name if name in FUSED)
        inputs_BT, targets_BT = self.training.batch(NoMarks())
        kept = count_activation_bytes(
            lambda: self.training.forward(inputs_BT, targets_BT), self.training.model.parameters()
        )
        tokens = self.config.tokens_per_step
        return [
            StepCounter(metric="ops_per_step", value=operations.total),
            host_syncs(operations, self.config.device, lambda: self.training.run(NoMarks())),
            StepCounter(metric="activation_bytes", value=kept, unit="B", role="gate"),
            fact("flop_per_step", self.work.flop, "FLOP", self.work.formula),
            fact("flop_per_step_causal", float(tokens * self.config.flop_per_token(causal=True)), "FLOP", "6N+6LCT"),
        ]

    def notes(self) -> dict[str, Any]:
        """Which fused attention torch chose, which on recent GPUs need not be FlashAttention."""
        return {"fused_kernels": self.fused_kernels} if self.fused_kernels else {}

    # correctness

    def check(self) -> Correctness:
        """Logits, gradients and the loss after three steps against double precision.

        No look into the future; large values stay finite.
        """
        small = dataclasses.replace(
            self.config, batch_size=CHECK_BATCH, block_size=min(CHECK_CONTEXT, self.config.block_size)
        )
        weights = self.seeded_weights(small)
        stream = TokenStream(small, self.vocabulary, pinned=False, seed=self.job.seed + 1)
        batches = [tuple(part.to(small.device) for part in stream.next()) for _ in range(CHECK_STEPS)]
        exact = _Reference(small, self.reference_model(small).double(), weights)
        naive = _Reference(small, self.reference_model(small), weights, self.autocast)
        model = self._loaded(small)
        network = self.finish(model)
        result = Correctness(reference=f"fp64 from scratch, B{small.batch_size} T{small.block_size}")
        inputs_BT = batches[0][0]
        described = f"token ids of shape {tuple(inputs_BT.shape)}"

        with self.autocast():
            logits_BTV = network(inputs_BT)
        shape, wanted = tuple(logits_BTV.shape), (*inputs_BT.shape, small.vocab_size)
        if shape != wanted:
            raise PluginError(
                f"the model returned logits of shape {shape} for {described}; expected {wanted} (B, T, V)"
            )
        text = slice(0, self.vocabulary)
        reference_BTV, naive_BTV = exact.logits(inputs_BT)[..., text], naive.logits(inputs_BT)[..., text]
        limit = relative_limit(worst_error(naive_BTV, reference_BTV), self.dtype)
        result.require("output_relative_error", worst_error(logits_BTV[..., text], reference_BTV), limit, described)
        if self.vocabulary < small.vocab_size:
            padded = torch.softmax(logits_BTV.float(), -1)[..., self.vocabulary :].max().item()
            result.require("padded_probability", padded, 0.0, "logits past the text's vocabulary")
        result.require("future_leak", self._leak(network, inputs_BT), 0.0, "a changed last token")
        self._check_training(result, model, batches, exact, naive)
        result.require(
            "large_values_not_finite", self._overflow(small, weights, inputs_BT), 0.0, "attention weights scaled by 30"
        )
        return result

    def _leak(self, network: nn.Module, inputs_BT: Tensor) -> float:
        """Largest change of any earlier position's logits when only the last token changes."""
        changed = inputs_BT.clone()
        changed[:, -1] = (changed[:, -1] + 1) % self.vocabulary
        with torch.no_grad(), self.autocast():
            # A replayed graph writes every answer to the same place: the first must be copied before the second.
            before = network(inputs_BT)[:, :-1].clone()
            return float((before - network(changed)[:, :-1]).abs().max())

    def _check_training(
        self,
        result: Correctness,
        model: nn.Module,
        batches: list[Any],
        exact: _Reference,
        naive: _Reference,
    ) -> None:
        """Trains `model` by the loss that will be timed: compiled where that is."""
        optimizer, loss_of = self.make_optimizer(model, exact.config), self.loss_of(model)
        losses: dict[str, list[float]] = {"ours": [], "exact": [], "naive": []}
        for number, (inputs_BT, targets_BT) in enumerate(batches):
            with self.autocast():
                loss = loss_of(inputs_BT, targets_BT)
            loss.backward()
            losses["ours"].append(loss.item())
            losses["exact"].append(exact.backward(inputs_BT, targets_BT))
            losses["naive"].append(naive.backward(inputs_BT, targets_BT))
            if number == 0:
                names = list(exact.gradients())
                ours = self.gradients(model)
                missing = [name for name in names if name not in ours]
                if missing:
                    named = ", ".join(missing[:4])
                    raise PluginError(
                        f"no gradient for {named} after backward; every weight must take part in training"
                    )
                reference = [exact.gradients()[name] for name in names]
                limit = relative_limit(norm_error([naive.gradients()[name] for name in names], reference), self.dtype)
                result.require(
                    "gradient_relative_error",
                    norm_error([ours[name] for name in names], reference),
                    limit,
                    "the first batch",
                )
            optimizer.step()
            optimizer.zero_grad()
            exact.update()
            naive.update()
        last = {name: values[-1] for name, values in losses.items()}
        level = max(abs(last["exact"]), 1e-300)
        drift = abs(last["ours"] - last["exact"]) / level
        band = max(LOSS_BAND[self.dtype], 2 * abs(last["naive"] - last["exact"]) / level)
        result.require(
            f"loss_at_step_{CHECK_STEPS}", drift, band, f"{CHECK_STEPS} optimizer steps from the seeded weights"
        )

    def _overflow(self, small: GptConfig, weights: dict[str, Tensor], inputs_BT: Tensor) -> float:
        model = self.make_model(small).to(small.device)
        self.load(model, {name: value * 30 if "c_attn.weight" in name else value for name, value in weights.items()})
        network = self.finish(model)
        with torch.no_grad(), self.autocast():
            return float((~torch.isfinite(network(inputs_BT)[..., : self.vocabulary])).sum())


class _Reference:
    """The plain model in the precision it was given in, with the textbook AdamW."""

    def __init__(
        self, config: GptConfig, model: nn.Module, weights: dict[str, Tensor], autocast: Autocast | None = None
    ) -> None:
        self.config = config
        self.autocast: Autocast = autocast or contextlib.nullcontext
        self.model = model.to(config.device)
        load_by_name(self.model, weights)
        self.optimizer = gpt_model.adamw(self.model.parameters(), config, fused=False)

    def logits(self, inputs_BT: Tensor) -> Tensor:
        with torch.no_grad(), self.autocast():
            return self.model(inputs_BT)

    def backward(self, inputs_BT: Tensor, targets_BT: Tensor) -> float:
        with self.autocast():
            loss = cross_entropy_of(self.model)(inputs_BT, targets_BT)
        loss.backward()
        return loss.item()

    def gradients(self) -> dict[str, Tensor]:
        return gradients_by_name(self.model)

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def _plain(name: str) -> str:
    return name.removeprefix("_orig_mod.").removeprefix("transformer.")


def load_by_name(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copies the seeded weights in by GPT-2's names; what does not fit is said with its name and shape."""
    seen: set[str] = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters(remove_duplicate=False):
            plain = "wte.weight" if _plain(name) == "lm_head.weight" else _plain(name)
            if plain not in weights:
                known = ", ".join(list(weights)[:6])
                raise PluginError(
                    f"the model has a parameter '{name}' that GPT-2 has not; "
                    f"expected names: {known}, … (describe gpt.train)"
                )
            if parameter.shape != weights[plain].shape:
                ours, theirs = tuple(parameter.shape), tuple(weights[plain].shape)
                raise PluginError(f"parameter '{name}' has shape {ours}; GPT-2 with this config has {theirs}")
            parameter.copy_(weights[plain])
            seen.add(plain)
    missing = [name for name in weights if name not in seen]
    if missing:
        raise PluginError(
            f"the model lacks the parameters {', '.join(missing[:6])} (describe gpt.train says the names)"
        )


def gradients_by_name(model: nn.Module) -> dict[str, Tensor]:
    return {_plain(name): parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


class GptTraining(GptWorkload):
    """`gpt.train`: the project's model and optimizer where plugged in, else the built-in ones."""

    def __init__(self, job: Job) -> None:
        config = GptConfig(**job.config)
        super().__init__(job, config, config.vocab_size)
        entry = job.implementation or job.builtin
        assert entry is not None
        self.plugin = load_plugin(entry, from_checkout=job.implementation is not None)

    def make_model(self, config: GptConfig) -> nn.Module:
        model: nn.Module = self.plugin.function(config)
        return model

    def make_optimizer(self, model: nn.Module, config: GptConfig) -> Any:
        optimizer = (self.plugin.companion("optimizer") or gpt_model.optimizer)(model, config)
        lacking = [name for name in ("step", "zero_grad") if not callable(getattr(optimizer, name, None))]
        if lacking:
            raise PluginError(
                f"optimizer(model, config) returned {type(optimizer).__name__} without {' and '.join(lacking)}()"
            )
        return optimizer

    def load(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        (self.plugin.companion("load_weights") or load_by_name)(model, weights)

    def gradients(self, model: nn.Module) -> dict[str, Tensor]:
        gradients: dict[str, Tensor] = (self.plugin.companion("named_gradients") or gradients_by_name)(model)
        return gradients


class GptLadder(GptWorkload):
    """`gpt.ladder`: the built-in model at one rung."""

    def __init__(self, job: Job) -> None:
        sizes = dict(job.config)
        self.rung: Rung = rung_named(sizes.pop("rung"))
        vocabulary = sizes.pop("text_vocabulary")
        config = GptConfig(**sizes)
        if self.rung.largest_batch:
            config = dataclasses.replace(config, batch_size=largest_batch(config))
        super().__init__(job, config, vocabulary)
        self.pinned = self.rung.pinned_memory and config.device == "cuda"
        self.compiles = self.rung.compiled and config.device == "cuda"
        if self.rung.tf32 and config.device == "cuda":
            torch.set_float32_matmul_precision("high")
            if config.dtype == "fp32":
                self.work = dataclasses.replace(self.work, precision="tf32")

    def make_model(self, config: GptConfig) -> nn.Module:
        return gpt_model.Gpt(config, self.rung, self.vocabulary)

    def make_optimizer(self, model: nn.Module, config: GptConfig) -> Any:
        return gpt_model.adamw(model.parameters(), config, fused=self.rung.fused_optimizer)

    def load(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        load_by_name(model, weights)

    def gradients(self, model: nn.Module) -> dict[str, Tensor]:
        return gradients_by_name(model)

    def finish(self, model: nn.Module) -> nn.Module:
        if self.compiles:
            return torch.compile(model)  # type: ignore[return-value]
        return model

    def loss_of(self, model: nn.Module) -> Loss:
        return torch.compile(cross_entropy_of(model)) if self.compiles else cross_entropy_of(model)


MOST_SEQUENCES = 128


def largest_batch(config: GptConfig) -> int:
    """The tenth rung's batch: on a CPU twice the ladder's (its caches, not its memory, are the limit); on a GPU what
    fits in nine tenths of its memory, used or not, so that a device always gets the same one.
    """
    if config.device == "cpu":
        return 2 * config.batch_size
    return sequences_that_fit(torch.cuda.get_device_properties(0).total_memory, config)


def sequences_that_fit(memory_bytes: float, config: GptConfig) -> int:
    """Multiples of eight, `MOST_SEQUENCES` at most: beyond that a larger batch is no faster.

    A token keeps 18 activations a layer in two bytes, and at the peak, in the backward pass of a loss that was not
    compiled, 12.1 bytes a word of the vocabulary: logits, their soft-max and both gradients. 13 leaves room. The
    weights take 16 bytes with gradients and moments, and 2 as cast.
    """
    weights = 18 * (config.matmul_parameters + config.block_size * config.n_embd)
    per_token = 13 * config.vocab_size + 2 * 18 * config.n_layer * config.n_embd
    sequences = int((0.9 * memory_bytes - weights) / (per_token * config.block_size))
    return max(config.batch_size, min(sequences, MOST_SEQUENCES) // 8 * 8)
