"""Limits of this CPU with one thread, in a quarter of a second; the same figures are the canary of a session."""

from __future__ import annotations

import gc
from statistics import median
from typing import Any

import torch

from benchmarks.harness.timing.clock import HostClock
from benchmarks.harness.timing.yardstick import Yardstick

SIDE = 256
COPY_ELEMENTS = 4 * 1024 * 1024
LAUNCHES = 400
ROUNDS = 12


def measure_cpu_ceilings(clock: HostClock) -> dict[str, Any]:
    """GEMM, copy and dispatch by the host clock, medians of a dozen rounds.

    The canary is a product of matrices over the yardstick: two fixed workloads, whose quotient no load should move.
    """
    generator = torch.Generator().manual_seed(7)
    left, right = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    source, small = torch.randn(COPY_ELEMENTS, generator=generator), torch.ones(1)
    target = torch.empty_like(source)
    yardstick = Yardstick()

    def gemm() -> None:
        for _ in range(4):
            torch.mm(left, right)

    def copy() -> None:
        target.copy_(source)

    def launch() -> None:
        for _ in range(LAUNCHES):
            small.add_(1.0)

    def timed(work: object) -> float:
        before = clock.now()
        work()  # type: ignore[operator]
        return before.until(clock.now())

    for work in (gemm, copy, launch, yardstick.step, yardstick.step):
        work()
    gc.disable()
    try:
        rounds = [(timed(gemm), timed(yardstick.step), timed(copy), timed(launch)) for _ in range(ROUNDS)]
    finally:
        gc.enable()
    gemm_s, _, copy_s, launch_s = (median(column) for column in zip(*rounds, strict=True))
    return {
        "ceilings": {
            "gemm_fp32_tflops": 4 * 2 * SIDE**3 / gemm_s / 1e12,
            "copy_gb_per_s": 2 * 4 * COPY_ELEMENTS / copy_s / 1e9,
            "launch_us": launch_s / LAUNCHES * 1e6,
        },
        "canary": {"gemm_over_yardstick": [g / y for g, y, _, _ in rounds]},
    }
