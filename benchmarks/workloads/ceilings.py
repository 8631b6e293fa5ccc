"""Measure the limits of this machine: matrix products, memory traffic, transfers to the device, launching nothing."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from benchmarks.harness.check import Correctness, relative_limit, worst_error
from benchmarks.harness.differentiable import DTYPES
from benchmarks.harness.timing import events
from benchmarks.harness.timing.clock import HostClock
from benchmarks.harness.timing.yardstick import Yardstick
from benchmarks.harness.values import Value
from benchmarks.harness.workload import Job, NotApplicable, StepCounter, Work
from benchmarks.workloads import fp8

CPU_SECONDS = 0.8
LAUNCHES = 400


class _Ceiling(ABC):
    """A workload that measures the machine: its value is a rate, beside the quotient that survives a noisy CPU."""

    work = Work(flop=0.0)

    def __init__(self, job: Job) -> None:
        self.job, self.config = job, job.config
        self.device = str(job.config.get("device", "cpu"))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise NotApplicable(f"preset {job.preset} needs a GPU and torch sees none; --preset cpu runs anywhere")
        self.generator = torch.Generator(self.device).manual_seed(job.seed)

    def check(self) -> Correctness:
        return Correctness(reference="none: nothing is computed")

    def prepare(self) -> None:  # noqa: B027 -- not to be filled in: everything is drawn at the start
        """Nothing to build."""

    def counters(self) -> list[StepCounter]:
        return []

    def after(self) -> str | None:
        return None

    def timed(self, work: Callable[[], object]) -> tuple[list[float], list[float]]:
        """Seconds of each call, and on a CPU of the yardstick beside it."""
        if self.device == "cuda":
            return events.seconds_under_load(self.rotated(work)), []
        clock, yardstick, rng = HostClock(), Yardstick(), random.Random(self.job.seed + self.job.process)

        def once(call: Callable[[], object]) -> float:
            before = clock.now()
            call()
            return before.until(clock.now())

        for _ in range(3):
            work()
            yardstick.step()
        pairs: list[tuple[float, float]] = []
        deadline = time.perf_counter() + CPU_SECONDS
        while time.perf_counter() < deadline or len(pairs) < 9:
            if rng.random() < 0.5:
                first = once(work)
                pairs.append((first, once(yardstick.step)))
            else:
                yard = once(yardstick.step)
                pairs.append((once(work), yard))
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def rotated(self, work: Callable[[], object]) -> list[Callable[[], object]]:
        """The work on as many sets of buffers as it takes for none to be found in the cache."""
        return [work]

    def rated(self, metric: str, unit: str, amount: float, work: Callable[[], object]) -> list[Value]:
        """The rate `amount / second`, gated as a quotient on a CPU and as itself on an accelerator."""
        seconds, yardsticks = self.timed(work)
        rate = [amount / s for s in seconds]
        role = "watch" if yardsticks else "gate"
        found = [Value(metric=metric, unit=unit, value=median(rate), samples=rate, direction="higher", role=role)]
        if yardsticks:
            ratios = [s / y for s, y in zip(seconds, yardsticks, strict=True)]
            found.insert(
                0, Value(metric="time_over_yardstick", unit="ratio", value=median(ratios), samples=ratios, role="gate")
            )
        return found

    @abstractmethod
    def measure(self) -> list[Value]:
        """The figures of this process."""

    def normal(self, *shape: int) -> torch.Tensor:
        """Seeded normal numbers in single precision, on the device."""
        return torch.randn(*shape, generator=self.generator, device=self.device)


class Gemm(_Ceiling):
    """`ceiling.gemm`: one matrix product of normal random numbers; zeros would flatter the machine by a seventh."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.side, self.dtype = int(self.config["side"]), str(self.config["dtype"])
        if self.dtype == "tf32":
            torch.set_float32_matmul_precision("high")
        self.eight_bits = self.dtype.startswith("fp8")
        storage = DTYPES["fp32" if self.dtype == "tf32" else "bf16" if self.eight_bits else self.dtype]
        draw = [self.normal(self.side, self.side) for _ in range(2)]
        self.left, self.right = (matrix.to(storage) for matrix in draw)
        if self.eight_bits:
            self._to_fp8()

    def _to_fp8(self) -> None:
        if torch.cuda.get_device_capability() < (8, 9):
            raise NotApplicable(
                f"fp8 products need compute capability 8.9; this GPU has {torch.cuda.get_device_capability()}"
            )
        self.left = self.left.to(torch.float8_e4m3fn)
        self.right = self.right.to(torch.float8_e4m3fn).t().contiguous().t()
        self.scale = torch.ones((), device=self.device)

    def product(self) -> torch.Tensor:
        return self.product_of(self.left, self.right)

    def product_of(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """The measured product."""
        if self.eight_bits:
            fast = self.dtype == "fp8_fast"
            out: torch.Tensor = torch._scaled_mm(
                left, right, self.scale, self.scale, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
            return out
        return torch.mm(left, right)

    def rotated(self, work: Callable[[], object]) -> list[Callable[[], object]]:
        """Copies of both matrices; clones keep the strides that fp8 products insist on."""
        copies = events.rotations(2 * self.left.nbytes)
        pairs = [(self.left.clone(), self.right.clone()) for _ in range(copies - 1)]
        return [work, *(partial(self.product_of, left, right) for left, right in pairs)]

    def check(self) -> Correctness:
        """A band of rows against double precision; the limit is what rounding and one accumulation may cost."""
        result = Correctness(reference="fp64, 16 rows")
        wanted = self.left[:16].double() @ self.right.double()
        precision = "bf16" if self.eight_bits else self.dtype
        naive = (self.left[:16].float() @ self.right.float()).to(DTYPES["fp32" if precision == "tf32" else precision])
        limit = relative_limit(worst_error(naive, wanted), precision)
        limit = max(limit, fp8.FAST_ACCUMULATION_ERROR if self.dtype == "fp8_fast" else 0.0)
        result.require("output_relative_error", worst_error(self.product()[:16], wanted), limit, f"{self.side} square")
        return result

    def measure(self) -> list[Value]:
        return self.rated("tflops", "TFLOP/s", 2 * self.side**3 / 1e12, self.product)


class MemoryTraffic(_Ceiling):
    """`ceiling.memory`: bytes moved by a copy (read, write), a triad (two reads, one write), or a transfer."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.how, self.bytes = str(self.config["kind"]), int(self.config["bytes"])
        if self.how in ("host_to_device", "device_to_host") and self.device == "cpu":
            raise NotApplicable("a CPU has no device to copy to")
        elements = self.bytes // 4
        self.source = self.normal(elements)
        self.target = torch.empty_like(self.source)
        self.second = self.normal(elements) if self.how == "triad" else None
        if self.how.endswith(("device", "host")):
            pinned = torch.empty(elements, pin_memory=True)
            self.source, self.target = (pinned, self.target) if self.how == "host_to_device" else (self.source, pinned)

    def move(self) -> torch.Tensor:
        if self.second is not None:
            return torch.add(self.source, self.second, alpha=2.5, out=self.target)
        return self.target.copy_(self.source, non_blocking=True)

    def check(self) -> Correctness:
        """Every element arrives: the target is poisoned first."""
        result = Correctness(reference="the source itself")
        self.target.fill_(float("nan"))
        self.move()
        if self.device == "cuda":
            torch.cuda.synchronize()
        if self.second is not None:
            # Whether multiply and add round once or twice is the kernel's choice.
            wanted = self.source.double() + 2.5 * self.second.double()
            limit = relative_limit(0.0, "fp32")
            result.require("output_relative_error", worst_error(self.target, wanted), limit, f"{self.bytes} bytes")
            return result
        wrong = (self.target.cpu() != self.source.cpu()).sum()
        result.require("wrong_elements", float(wrong), 0.0, f"{self.bytes} bytes")
        return result

    def measure(self) -> list[Value]:
        moved = self.bytes * {"copy": 2, "triad": 3}.get(self.how, 1)
        return self.rated("gb_per_s", "GB/s", moved / 1e9, self.move)


class Launch(_Ceiling):
    """`ceiling.launch`: what it costs to ask for nothing: a one-element addition, on an accelerator a null kernel."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.one = torch.zeros(1, device=self.device)

    def many(self) -> None:
        for _ in range(LAUNCHES):
            self.one.add_(1.0)

    def check(self) -> Correctness:
        """As many additions as requested."""
        result = Correctness(reference="counting")
        self.one.zero_()
        self.many()
        result.require("lost_launches", abs(float(self.one) - LAUNCHES), 0.0)
        return result

    def measure(self) -> list[Value]:
        if self.device == "cuda":
            return self._on_device()
        seconds, yardsticks = self.timed(self.many)
        ratios = [s / y for s, y in zip(seconds, yardsticks, strict=True)]
        each = [1e6 * s / LAUNCHES for s in seconds]
        return [
            Value(metric="time_over_yardstick", unit="ratio", value=median(ratios), samples=ratios, role="gate"),
            Value(metric="launch_us", unit="us", value=median(each), samples=each, role="watch"),
        ]

    def _on_device(self) -> list[Value]:
        samples = []
        for _ in range(60):
            torch.cuda.synchronize()
            began = time.perf_counter()
            self.many()
            samples.append(1e6 * (time.perf_counter() - began) / LAUNCHES)
        return [Value(metric="launch_us", unit="us", value=median(samples), samples=samples, role="gate")]


__all__ = ["Gemm", "Launch", "MemoryTraffic"]
