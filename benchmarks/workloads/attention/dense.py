"""Attention: training shapes with each backend forced, and decoding from a key-value cache."""

# B batch, H query heads, G key-value heads, S sequence, D head width

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.check import Correctness, relative_limit, worst_error
from benchmarks.harness.counters import count_operations
from benchmarks.harness.differentiable import DTYPES, Differentiable, Scene, Tensors, with_learned
from benchmarks.harness.plugin import load_plugin
from benchmarks.harness.timing.device import CudaDevice, Device
from benchmarks.harness.timing.marks import Marks
from benchmarks.harness.workload import Job, NotApplicable, Work
from benchmarks.pins import clearly_quickest

CHECK_LENGTHS = {"cpu": 96, "cuda": 512}
"""Of a check at most. FlexAttention takes another kernel below 128 queries, and another again where a length is no
multiple of 128: on a GPU a check must run the kernel that is timed."""
TRIES = 10

KERNELS = {
    "sdpa_flash": (
        "FLASH_ATTENTION",
        ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    ),
    "sdpa_efficient": ("EFFICIENT_ATTENTION", ("_scaled_dot_product_efficient_attention",)),
    "sdpa_cudnn": ("CUDNN_ATTENTION", ("_scaled_dot_product_cudnn_attention",)),
    "sdpa_math": ("MATH", ()),
}
"""Backend -> the name torch forces it by, and the operations that prove that it ran (math: that no other did)."""

FUSED = frozenset(name for _, names in KERNELS.values() for name in names)

BEST = "best"
CANDIDATES = {"cuda": ("sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "flex"), "cpu": ("sdpa_flash", "sdpa_math")}
"""The backends that `best` measures and chooses from; math would only win where nothing else runs at all."""

MaskFunction = Callable[[Any, Any, Any, Any], Any]


def forced(backend: str) -> contextlib.AbstractContextManager[Any]:
    """Lets torch use this kernel and no other: where it cannot, the call raises."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([getattr(SDPBackend, KERNELS[backend][0])])


class FlexAttention:
    """FlexAttention with its block masks kept: compiled on an accelerator; on a CPU as torch spells it out."""

    def __init__(self, device: str, *, gqa: bool) -> None:
        self.device, self.gqa = device, gqa
        self._blocks: dict[tuple[Any, ...], Any] = {}
        self._function: Callable[..., Any] | None = None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, key: tuple[Any, ...], seen: Callable[[], MaskFunction | None]
    ) -> Tensor:
        """`key` names the mask, whose first part is the batch where sequences differ; the same key, the same mask.

        `seen` makes the mask: asked once a key, because making one may wait for the device.
        """
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        if self._function is None:
            self._function = torch.compile(flex_attention) if self.device == "cuda" else flex_attention
        if key not in self._blocks:
            mask, sizes = seen(), (key[0], None, q.shape[-2], k.shape[-2])
            self._blocks[key] = None if mask is None else create_block_mask(mask, *sizes, device=self.device)
        out: Tensor = self._function(q, k, v, block_mask=self._blocks[key], enable_gqa=self.gqa)
        return out


def _tried(attention: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: Tensors, device: str) -> float | None:
    """Milliseconds of one forward and backward pass; None where the backend refuses the shape."""
    q, k, v = inputs.learned.values()
    began = time.perf_counter()
    try:
        with torch.enable_grad():
            attention(q, k, v).sum().backward()
    except RuntimeError:
        return None
    if device == "cuda":
        torch.cuda.synchronize()
    inputs.clear()
    return 1000 * (time.perf_counter() - began)


def keys_seen(mask: str, length: int, window: int, documents: Sequence[int]) -> float:
    """Mean number of keys that a query sees, element-exact: what the FLOP count goes by."""
    if mask == "full":
        return float(length)
    if mask == "causal":
        return (length + 1) / 2
    if mask == "window":
        return sum(min(i + 1, window) for i in range(length)) / length
    return sum(part * (part + 1) / 2 for part in documents) / length


def document_lengths(length: int) -> list[int]:
    """Documents of unequal lengths that fill a sequence, as packed data has: an eighth, three eighths, a half."""
    first, second = length // 8, 3 * length // 8
    return [first, second, length - first - second]


def document_numbers(length: int, device: str) -> Tensor:
    """Which document each position belongs to."""
    return torch.repeat_interleave(torch.tensor(document_lengths(length), device=device), output_size=length)


def allowed_SS(mask: str, length: int, window: int, device: str) -> Tensor | None:
    """The mask as booleans, for the reference; None where everything is seen."""
    if mask == "full":
        return None
    query, key = torch.arange(length, device=device)[:, None], torch.arange(length, device=device)[None, :]
    causal = key <= query
    if mask == "causal":
        return causal
    if mask == "window":
        return causal & (query - key < window)
    number = document_numbers(length, device)
    return causal & (number[query] == number[key])


def plain_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """Attention spelled out; key-value heads are shared by groups of query heads."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.softmax(scores, -1) @ v


class AttentionTraining(Differentiable):
    """`attn.train`: forward and backward of one attention shape, its backend forced and proved."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        config = job.config
        self.B, self.H, self.G, self.S, self.D = (
            int(config[key]) for key in ("batch_size", "heads", "kv_heads", "length", "head_dim")
        )
        self.mask, self.window, self.backend = str(config["mask"]), int(config.get("window", 0)), str(config["backend"])
        self.plugin = load_plugin(job.implementation, from_checkout=True) if job.implementation else None
        self._flex = FlexAttention(self.device, gqa=self.H != self.G)
        self.chosen = self.backend
        self.milliseconds: dict[str, float | None] = {}
        seen = keys_seen(self.mask, self.S, self.window, document_lengths(self.S))
        forward = 2 * self.B * self.H * self.S * seen * (2 * self.D)
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        one_pass = width * self.B * self.S * self.D * (2 * self.H + 2 * self.G)
        self.work = Work(
            flop=3.5 * forward,
            bytes=float(one_pass + 2 * one_pass),
            units=3.5 * forward / 1e12,
            unit_metric="tflops",
            unit_unit="TFLOP/s",
            formula="2·B·H·S·K·(2·D) forward, K mean keys seen, element-exact; backward 2.5 times that",
            precision=self.dtype,
            phase_flop={"forward": forward, "backward": 2.5 * forward},
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        B, S = (min(self.B, 2), min(self.S, CHECK_LENGTHS[self.device])) if reduced else (self.B, self.S)

        shapes = {"q": self.H, "k": self.G, "v": self.G}
        return Tensors({name: self.normal(B, heads, S, self.D) for name, heads in shapes.items()}, {})

    def function(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        if self.plugin is not None:
            out: Tensor = self.plugin.function(q, k, v, causal=self.mask == "causal")
            return out
        return self._by(self._fastest() if self.backend == BEST else self.backend, q, k, v)

    def _by(self, backend: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if backend == "flex":
            return self._flex(q, k, v, (None, q.shape[-2]), lambda: self._seen(q.shape[-2]))
        with forced(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.mask == "causal", enable_gqa=self.H != self.G)

    @property
    def compiles(self) -> bool:  # type: ignore[override]
        """FlexAttention is a kernel only where it is compiled."""
        return self.chosen == "flex" and self.device == "cuda" and self.plugin is None

    def _seen(self, length: int) -> MaskFunction | None:
        """The mask as FlexAttention takes it: arithmetic on positions, so that the kernel reads no mask from memory."""
        window, number = self.window, document_numbers(length, self.device)
        masks: dict[str, MaskFunction] = {
            "causal": lambda b, h, q, k: q >= k,
            "window": lambda b, h, q, k: (q >= k) & (q - k < window),
            "document": lambda b, h, q, k: (q >= k) & (number[q] == number[k]),
        }
        return masks.get(self.mask)

    def _fastest(self) -> str:
        """The backend of the run's first process, the pinned one, or the quickest: see `pins`."""
        if self.chosen == BEST:
            self.chosen = self.job.extra.get("chosen_backend") or self._chosen_of_all()
        return self.chosen

    def _chosen_of_all(self) -> str:
        """The pinned backend where it runs; else the one with the quickest forward and backward pass.

        All are tried at the timed shape, so that each run can say whether another is quicker.
        """
        inputs = self.inputs(reduced=False).to(DTYPES[self.dtype], self.device)
        candidates = CANDIDATES[self.device]
        ways = {name: partial(self._by, name) for name in candidates}
        rounds = [{name: _tried(way, inputs, self.device) for name, way in ways.items()} for _ in range(TRIES)]
        # The least of several rounds: a neighbour's moment must not choose.
        self.milliseconds = {
            name: min((ms for one in rounds if (ms := one[name]) is not None), default=None) for name in candidates
        }
        ran = {name: ms for name, ms in self.milliseconds.items() if ms is not None}
        if not ran:
            raise NotApplicable(f"none of {', '.join(candidates)} runs at this shape on this device")
        return self._pinned if self._pinned in ran else min(ran, key=lambda name: ran[name])

    @property
    def _pinned(self) -> str | None:
        pins: dict[str, str] = self.job.extra.get("pins", {})
        return pins.get(torch.cuda.get_device_name(0)) if pins and self.device == "cuda" else None

    def notes(self) -> dict[str, Any]:
        """Which backend ran, what each candidate took (None where it cannot run), and what is odd about the choice."""
        if self.backend != BEST or self.plugin is not None:
            return {}
        chosen = self._fastest()
        found: dict[str, Any] = {"chosen_backend": chosen}
        if not self.milliseconds:
            return found
        found |= {"pinned_backend": self._pinned, "candidates_ms": self.milliseconds}
        if self._pinned not in (None, chosen):
            return found | {"remark": f"{self._pinned} is pinned and does not run at this shape; {chosen} was taken"}
        quicker = clearly_quickest(chosen, self.milliseconds)
        return found | (
            {} if quicker == chosen else {"remark": f"{quicker} is clearly quicker than the pinned {chosen}"}
        )

    def reference(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        return plain_attention(q, k, v, allowed_SS(self.mask, q.shape[-2], self.window, str(q.device)))

    def scenes(self) -> Sequence[Scene]:
        """Normal inputs, with the backend proved and masked keys perturbed; then scores that overflow a soft-max."""
        normal = self.inputs(reduced=True)
        large = with_learned(normal, q=normal.learned["q"] * 30, k=normal.learned["k"])
        return [
            Scene(name="seeded normal inputs", inputs=normal, also=self._mask_and_backend),
            Scene(name="queries scaled by 30", inputs=large),
        ]

    def _mask_and_backend(self, result: Correctness, output: Tensor, tensors: Tensors) -> None:
        with torch.no_grad():
            if self.mask != "full":
                # Both without gradients: a backend may take another kernel with them, and round differently.
                unmoved = self.function(tensors)
                changed = {name: tensor.detach().clone() for name, tensor in tensors.learned.items()}
                changed["k"][:, :, -1] += 3.0
                changed["v"][:, :, -1] -= 3.0
                moved = self.function(Tensors(changed, tensors.constant))
                leak = float((moved[:, :, :-1] - unmoved[:, :, :-1]).abs().max())
                result.require("masked_key_leak", leak, 0.0, "a changed last key and value")
            backend = self._fastest() if self.backend == BEST else self.backend
            if self.plugin is None and backend in KERNELS:
                ran = count_operations(lambda: self.function(tensors)).by_name
                proof = KERNELS[backend][1]
                fell_back = not any(name in ran for name in proof) if proof else any(name in ran for name in FUSED)
                result.require("silent_fallback", float(fell_back), 0.0, f"backend {backend}; ran {', '.join(ran)}")


class AttentionDecoding(Differentiable):
    """`attn.decode`: one new query per sequence against its cache of keys and values; only memory traffic counts."""

    forward_only = flushes = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        config = job.config
        self.B, self.H, self.G, self.S, self.D = (
            int(config[key]) for key in ("batch_size", "heads", "kv_heads", "length", "head_dim")
        )
        self.backend, self.launch = str(config["backend"]), str(config.get("launch", "calls"))
        self._flex = FlexAttention(self.device, gqa=self.H != self.G)
        self.plugin = load_plugin(job.implementation, from_checkout=True) if job.implementation else None
        self.compiles = self.backend == "flex" and self.device == "cuda" and self.plugin is None
        self.captures = self.launch == "graph" and self.plugin is None
        self.queue: Device = CudaDevice()
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[self.dtype]
        cache = 2 * self.B * self.S * self.G * self.D * width
        self.work = Work(
            flop=4.0 * self.B * self.H * self.S * self.D,
            bytes=float(cache),
            units=cache / 1e9,
            unit_metric="cache_gb_per_s",
            unit_unit="GB/s",
            formula="2·B·S·G·D·width bytes of cache, read once; 4·B·H·S·D FLOP",
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        B, S = (2, min(self.S, CHECK_LENGTHS[self.device])) if reduced else (self.B, self.S)
        shapes = {"q": (B, self.H, 1, self.D), "k": (B, self.G, S, self.D), "v": (B, self.G, S, self.D)}
        drawn = {name: self.normal(*shape) for name, shape in shapes.items()}
        # A ragged batch, as serving has: the first sequence is full, the others shorter.
        lengths = torch.tensor([S - (S // 3) * (b % 3) // 2 for b in range(B)], device=self.device)
        allowed = torch.arange(S, device=self.device)[None, :] < lengths[:, None]
        return Tensors(drawn, {"allowed": allowed[:, None, None, :], "lengths": lengths})

    def prepare(self) -> None:
        super().prepare()
        self.replay = self._captured(self.tensors) if self.captures else None

    def _captured(self, tensors: Tensors) -> Callable[[], None]:
        """The call as a CUDA graph, whose every replay writes the same output."""

        def call() -> None:
            self.output = self.function(tensors)

        with torch.no_grad():
            return self.queue.graph([call])

    def step(self, marks: Marks) -> None:
        if self.replay is None:
            super().step(marks)
            return
        marks.enter("forward")
        self.replay()

    def function(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        if self.plugin is not None:
            out: Tensor = self.plugin.function(q, k, v, tensors.constant["lengths"])
            return out
        if self.backend == "flex":
            lengths = tensors.constant["lengths"]
            return self._flex(q, k, v, (q.shape[0], k.shape[-2]), lambda: lambda b, h, _, key: key < lengths[b])
        allowed = tensors.constant["allowed"]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=self.H != self.G)

    def notes(self) -> dict[str, Any]:
        """Which fused kernel torch chose for `sdpa`, which forces none; empty where only plain products ran."""
        if self.plugin is not None or self.backend != "sdpa":
            return {}
        with torch.no_grad():
            ran = count_operations(lambda: self.function(self.tensors)).by_name
        return {"fused_kernels": sorted(name for name in ran if name in FUSED)}

    def reference(self, tensors: Tensors) -> Tensor:
        q, k, v = tensors.learned.values()
        return plain_attention(q, k, v, tensors.constant["allowed"])

    def scenes(self) -> Sequence[Scene]:
        """Normal inputs; what lies past a sequence's end must not be read."""
        return [
            Scene(
                name="seeded normal inputs, ragged lengths", inputs=self.inputs(reduced=True), also=self._past_the_end
            )
        ]

    def _past_the_end(self, result: Correctness, output: Tensor, tensors: Tensors) -> None:
        past = ~tensors.constant["allowed"].squeeze(1).squeeze(1)
        changed = {name: tensor.detach().clone() for name, tensor in tensors.learned.items()}
        for name in ("k", "v"):
            changed[name] = torch.where(past[:, None, :, None], torch.full_like(changed[name], 9.0), changed[name])
        with torch.no_grad():
            unmoved, moved = self.function(tensors), self.function(Tensors(changed, tensors.constant))
        result.require("past_the_end_leak", float((moved - unmoved).abs().max()), 0.0, "changed keys past each length")
        if self.captures:
            self._replays(result, tensors)

    def _replays(self, result: Correctness, tensors: Tensors) -> None:
        """A replay must compute anew: it is held to the call itself, on numbers that came after capture."""
        with torch.no_grad():
            held = Tensors(
                {name: tensor.detach().clone() for name, tensor in tensors.learned.items()}, tensors.constant
            )
            self.function(held)
            replay = self._captured(held)
            for tensor in held.learned.values():
                tensor.mul_(-0.5).add_(0.25)
            replay()
            wanted = self.function(held)
            off, limit = worst_error(self.output, wanted), relative_limit(0.0, self.dtype)
            result.require("replayed_graph_error", off, limit, "queries, keys and values changed after the capture")
