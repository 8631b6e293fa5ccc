"""The register: one module per family, facts only. No torch here; the measured code is named, not imported."""

from benchmarks.catalog import (
    attention,
    attention_further,
    ceilings,
    collectives,
    compile,
    gpt,
    kernels,
    llama,
    moe,
    parallel,
)
from benchmarks.spec import Benchmark

ALL: tuple[Benchmark, ...] = (
    *gpt.BENCHMARKS,
    *llama.BENCHMARKS,
    *moe.BENCHMARKS,
    *attention.BENCHMARKS,
    *attention_further.BENCHMARKS,
    *kernels.BENCHMARKS,
    *parallel.BENCHMARKS,
    *collectives.BENCHMARKS,
    *ceilings.BENCHMARKS,
    *compile.BENCHMARKS,
)
