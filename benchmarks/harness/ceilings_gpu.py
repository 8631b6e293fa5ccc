"""What this GPU can do, in a second: large product, large copy, launches. The ceilings of a session, and its canary."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from benchmarks.harness.events import kernel_seconds

SIDE = 8192
COPY_BYTES = 1 << 30
LAUNCHES = 1000
ROUNDS = 25


def measure_gpu_ceilings() -> dict[str, Any]:
    """Medians as ceilings, every round as canary; the buffers are given back before anything else is measured."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    gemm, copy, launch = _gemm_tflops(generator), _copy_gb_per_s(generator), _launch_us()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return {
        "ceilings": {"gemm_bf16_tflops": median(gemm), "hbm_copy_gb_per_s": median(copy), "launch_us": median(launch)},
        "canary": {"gemm_bf16_tflops": gemm, "hbm_copy_gb_per_s": copy},
    }


def _gemm_tflops(generator: torch.Generator) -> list[float]:
    how: dict[str, Any] = {"generator": generator, "device": "cuda", "dtype": torch.bfloat16}
    left, right = torch.randn(SIDE, SIDE, **how), torch.randn(SIDE, SIDE, **how)
    seconds = kernel_seconds([lambda: torch.mm(left, right)], flush=False, samples=ROUNDS)
    return [2 * SIDE**3 / s / 1e12 for s in seconds]


def _copy_gb_per_s(generator: torch.Generator) -> list[float]:
    source = torch.randn(COPY_BYTES // 4, generator=generator, device="cuda")
    target = torch.empty_like(source)
    seconds = kernel_seconds([lambda: target.copy_(source)], flush=False, samples=ROUNDS)
    return [2 * COPY_BYTES / s / 1e9 for s in seconds]


def _launch_us() -> list[float]:
    one = torch.zeros(1, device="cuda")
    found = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            one.add_(1.0)
        found.append(1e6 * (time.perf_counter() - began) / LAUNCHES)
        torch.cuda.synchronize()
    return found
