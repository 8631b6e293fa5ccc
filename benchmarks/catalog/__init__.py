"""The register: one module per family, facts only. No torch here; the measured code is named, not imported."""

from benchmarks.catalog import attention, ceilings, collectives, compile, gpt, kernels, llama, moe
from benchmarks.spec import Benchmark

ALL: tuple[Benchmark, ...] = (
    *gpt.BENCHMARKS,
    *llama.BENCHMARKS,
    *moe.BENCHMARKS,
    *attention.BENCHMARKS,
    *kernels.BENCHMARKS,
    *collectives.BENCHMARKS,
    *ceilings.BENCHMARKS,
    *compile.BENCHMARKS,
)
