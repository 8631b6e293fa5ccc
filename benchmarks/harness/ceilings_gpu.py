"""Limits of this GPU under steady load: large products, a large copy, launches. A session's ceilings, its canary.

The product runs for three seconds, of which the first is dropped: a canary that is cold before a session and hot after
it would move by itself.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from benchmarks.harness.timing.events import LoadBudget, seconds_under_load

SIDE = 8192
COPY_BYTES = 1 << 30
LAUNCHES = 1000
KEPT = 200
"""Rounds of a reading that are kept: evenly over the time that was measured."""
OTHER_PRECISIONS = {"tf32": "high", "fp32": "highest"}
BRIEFLY = LoadBudget(dropped_s=0.2, measure_s=0.3, calls_per_wait=5)
"""For what follows a product under load: the device is warm."""


def measure_gpu_ceilings() -> dict[str, Any]:
    """Medians as ceilings, every round as canary; the buffers are given back before anything else is measured."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    gemm = _gemm_tflops(generator, torch.bfloat16, LoadBudget())
    copy, launch = _copy_gb_per_s(generator), _launch_us()
    ceilings = {"gemm_bf16_tflops": median(gemm), "hbm_copy_gb_per_s": median(copy), "launch_us": median(launch)}
    for precision, setting in OTHER_PRECISIONS.items():
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(setting)
        ceilings[f"gemm_{precision}_tflops"] = median(_gemm_tflops(generator, torch.float32, BRIEFLY))
        torch.set_float32_matmul_precision(before)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return {"ceilings": ceilings, "canary": {"gemm_bf16_tflops": gemm, "hbm_copy_gb_per_s": copy}}


def _gemm_tflops(generator: torch.Generator, dtype: torch.dtype, budget: LoadBudget) -> list[float]:
    how: dict[str, Any] = {"generator": generator, "device": "cuda", "dtype": dtype}
    left, right = torch.randn(SIDE, SIDE, **how), torch.randn(SIDE, SIDE, **how)
    seconds = thin(seconds_under_load([lambda: torch.mm(left, right)], budget=budget), KEPT)
    return [2 * SIDE**3 / s / 1e12 for s in seconds]


def thin(values: list[float], most: int) -> list[float]:
    """At most so many of them, evenly spread."""
    return values[:: -(-len(values) // most)] if values else values


def _copy_gb_per_s(generator: torch.Generator) -> list[float]:
    source = torch.randn(COPY_BYTES // 4, generator=generator, device="cuda")
    target = torch.empty_like(source)
    seconds = thin(seconds_under_load([lambda: target.copy_(source)], budget=BRIEFLY), KEPT)
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
