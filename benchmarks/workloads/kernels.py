"""Single kernels: norms, soft-max, the loss over a vocabulary, and products of few rows with a large matrix."""

# R rows, C width, V vocabulary or columns, K inner, N columns of a product

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness.check import Correctness, relative_limit, worst_error
from benchmarks.harness.differentiable import DTYPES, Differentiable, Scene, Tensors
from benchmarks.harness.workload import Job, NotApplicable, Work
from benchmarks.workloads import fp8

EPSILON = 1e-5
CHECK_ROWS, CHECK_VOCABULARY = 64, 4096
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2}


class _Kernel(Differentiable):
    """One function, by torch's kernel or by the compiler's; rated by the bytes that it must move."""

    flushes = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.how = str(job.config["how"])
        self.compiles = self.how == "compiled"
        self.width = WIDTHS[self.dtype]
        self._compiled: Callable[..., Tensor] | None = None

    @abstractmethod
    def plain(self, *tensors: Tensor) -> Tensor:
        """The function as torch has it, which is also what is compiled."""

    def function(self, tensors: Tensors) -> Tensor:
        if not self.compiles:
            return self.plain(*tensors.learned.values(), *tensors.constant.values())
        if self._compiled is None:
            self._compiled = torch.compile(self.plain)
        return self._compiled(*tensors.learned.values(), *tensors.constant.values())

    def moved(self, amount: float, flop: float, formula: str) -> Work:
        """The work of a kernel that is bound by memory."""
        return Work(
            flop=flop,
            bytes=amount,
            units=amount / 1e9,
            unit_metric="gb_per_s",
            unit_unit="GB/s",
            formula=formula,
            precision=self.dtype,
        )


class Norm(_Kernel):
    """`kernel.norm`: RMSNorm or LayerNorm over the last dimension."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.kind, self.R, self.C = str(job.config["kind"]), int(job.config["rows"]), int(job.config["width"])
        elements = float(self.R * self.C)
        self.work = self.moved(5 * elements * self.width, 12 * elements, "5·R·C·width bytes, 12·R·C FLOP")

    def inputs(self, *, reduced: bool) -> Tensors:
        x = self.normal(min(self.R, CHECK_ROWS) if reduced else self.R, self.C)
        learned = {"x": 2 * x + 0.5, "weight": 1 + 0.1 * self.normal(self.C)}
        return Tensors(learned | ({"bias": self.normal(self.C)} if self.kind == "layer" else {}), {})

    def plain(self, *tensors: Tensor) -> Tensor:
        x, weight, *bias = tensors
        if self.kind == "rms":
            return F.rms_norm(x, (self.C,), weight, EPSILON)
        return F.layer_norm(x, (self.C,), weight, bias[0], EPSILON)

    def reference(self, tensors: Tensors) -> Tensor:
        x, weight, *bias = tensors.learned.values()
        centred = x if self.kind == "rms" else x - x.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPSILON) * weight
        return scaled + bias[0] if bias else scaled


class Softmax(_Kernel):
    """`kernel.softmax`: over the last dimension."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.R, self.V = int(job.config["rows"]), int(job.config["columns"])
        elements = float(self.R * self.V)
        self.work = self.moved(5 * elements * self.width, 9 * elements, "5·R·V·width bytes, 9·R·V FLOP")

    def inputs(self, *, reduced: bool) -> Tensors:
        return Tensors({"x": 3 * self.normal(min(self.R, CHECK_ROWS) if reduced else self.R, self.V)}, {})

    def scenes(self) -> list[Scene]:
        """Normal numbers; then all of them 200 more, so that exponentials overflow unless the largest is taken off."""
        drawn = self.inputs(reduced=True)
        large = Tensors({"x": drawn.learned["x"] + 200}, {})
        return [Scene(name="seeded normal inputs", inputs=drawn), Scene(name="200 more than normal", inputs=large)]

    def plain(self, *tensors: Tensor) -> Tensor:
        return torch.softmax(tensors[0], -1)

    def reference(self, tensors: Tensors) -> Tensor:
        (x,) = tensors.learned.values()
        powers = torch.exp(x - x.amax(-1, keepdim=True))
        return powers / powers.sum(-1, keepdim=True)


class _Chunked(torch.autograd.Function):
    """Mean loss from hidden states (R, C) and weights (V, C), a chunk of logits at a time, gradients with it."""

    @staticmethod
    def forward(ctx: Any, x_RC: Tensor, w_VC: Tensor, target_R: Tensor, chunk: int) -> Tensor:
        loss = torch.zeros((), dtype=torch.promote_types(x_RC.dtype, torch.float32), device=x_RC.device)
        dx_RC, dw_VC = torch.empty_like(x_RC), torch.zeros_like(w_VC, dtype=loss.dtype)
        for start in range(0, x_RC.shape[0], chunk):
            x, target = x_RC[start : start + chunk], target_R[start : start + chunk, None]
            logits = (x @ w_VC.t()).to(loss.dtype)
            log_of_sum = logits.logsumexp(-1, keepdim=True)
            loss += (log_of_sum - logits.gather(1, target)).sum()
            gradient = (logits - log_of_sum).exp_()
            gradient.scatter_add_(1, target, torch.full_like(log_of_sum, -1.0))
            small = gradient.to(x.dtype)
            dx_RC[start : start + chunk] = small @ w_VC
            dw_VC += small.t() @ x
        ctx.save_for_backward(dx_RC, dw_VC.to(w_VC.dtype))
        return loss / x_RC.shape[0]

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        dx_RC, dw_VC = ctx.saved_tensors
        scale = upstream[0] / dx_RC.shape[0]
        return dx_RC * scale.to(dx_RC.dtype), dw_VC * scale.to(dw_VC.dtype), None, None


class LinearCrossEntropy(_Kernel):
    """`kernel.linear_cross_entropy`: the mean loss of next tokens, from hidden states."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.R, self.C, self.V, self.chunk = (int(job.config[key]) for key in ("rows", "width", "vocabulary", "chunk"))
        self.work = Work(
            flop=6.0 * self.R * self.C * self.V,
            bytes=float(self.width * 3 * (self.R * self.C + self.V * self.C)),
            units=float(self.R),
            unit_metric="tokens_per_s",
            formula="6·R·C·V",
            precision=self.dtype,
        )

    def inputs(self, *, reduced: bool) -> Tensors:
        rows, words = (min(self.R, CHECK_ROWS), min(self.V, CHECK_VOCABULARY)) if reduced else (self.R, self.V)
        target = torch.randint(0, words, (rows,), generator=self.generator, device=self.device)
        learned = {"x": self.normal(rows, self.C), "weight": self.normal(words, self.C) / self.C**0.5}
        return Tensors(learned, {"target": target})

    def plain(self, *tensors: Tensor) -> Tensor:
        x, weight, target = tensors
        logits = x @ weight.t()
        return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), target)

    def function(self, tensors: Tensors) -> Tensor:
        if self.how != "chunked":
            return super().function(tensors)
        x, weight = tensors.learned.values()
        # A check has few rows: at least two chunks of them show that the pieces are put together.
        chunk = min(self.chunk, max(1, x.shape[0] // 2))
        out: Tensor = _Chunked.apply(x, weight, tensors.constant["target"], chunk)  # type: ignore[no-untyped-call]
        return out

    def reference(self, tensors: Tensors) -> Tensor:
        x, weight = tensors.learned.values()
        return self.plain(x, weight, tensors.constant["target"])


class SkinnyGemm(_Kernel):
    """`kernel.skinny_gemm`: few rows times a large matrix, in bf16 or in eight bits."""

    forward_only = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.R, self.K, self.N = (int(job.config[key]) for key in ("rows", "inner", "columns"))
        self.eight_bits = self.how.startswith("fp8")
        if self.device == "cuda" and self.eight_bits and torch.cuda.get_device_capability() < fp8.LEAST_CAPABILITY:
            raise NotApplicable(f"fp8 products need compute capability 8.9; this GPU has less: {self.how}")
        operand = 1 if self.eight_bits else self.width
        amount = operand * (self.K * self.N + self.R * self.K) + self.width * self.R * self.N
        self.work = self.moved(
            float(amount), 2.0 * self.R * self.K * self.N, "(K·N + R·K)·width + 2·R·N bytes, 2·R·K·N FLOP"
        )
        self._rounded: tuple[Tensor, Tensor, Tensor] | None = None

    def inputs(self, *, reduced: bool) -> Tensors:
        columns = min(self.N, CHECK_VOCABULARY) if reduced else self.N
        return Tensors({"x": self.normal(self.R, self.K), "weight": self.normal(self.K, columns) / self.K**0.5}, {})

    def plain(self, *tensors: Tensor) -> Tensor:
        return tensors[0] @ tensors[1]

    def function(self, tensors: Tensors) -> Tensor:
        x, weight = tensors.learned.values()
        if not self.eight_bits:
            return self.plain(x.detach(), weight.detach())
        x8, x_scale = fp8.rounded_to(x.detach(), fp8.FORWARD)
        w8, w_scale = self._weights(weight)
        out: Tensor = torch._scaled_mm(
            x8, w8, x_scale, w_scale, out_dtype=torch.bfloat16, use_fast_accum=self.how == "fp8_fast"
        )
        return out

    def _weights(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """In eight bits and by columns, made once as serving does; only the rows are new at every call."""
        if self._rounded is None or self._rounded[0] is not weight:
            eight, scale = fp8.rounded_to(weight.detach(), fp8.FORWARD)
            self._rounded = weight, eight.t().contiguous().t(), scale
        return self._rounded[1:]

    def reference(self, tensors: Tensors) -> Tensor:
        x, weight = (tensor.detach() for tensor in tensors.learned.values())
        if self.eight_bits:
            x, weight = (
                eight.to(x.dtype) * scale.to(x.dtype)
                for eight, scale in (fp8.rounded_to(t, fp8.FORWARD) for t in (x, weight))
            )
        return x @ weight

    def check(self) -> Correctness:
        """As every function; fast accumulation is held to the bits that it keeps."""
        if self.how != "fp8_fast":
            return super().check()
        result = Correctness(reference="fp64, operands rounded to eight bits")
        drawn = self.inputs(reduced=True).to(DTYPES[self.dtype], self.device)
        wanted = self.reference(drawn.to(torch.float64, self.device))
        limit = max(fp8.FAST_ACCUMULATION_ERROR, relative_limit(0.0, self.dtype))
        result.require(
            "output_relative_error", worst_error(self.function(drawn), wanted), limit, "seeded normal inputs"
        )
        return result


__all__ = ["LinearCrossEntropy", "Norm", "SkinnyGemm", "Softmax"]
