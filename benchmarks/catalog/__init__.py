"""The register: one module per family, facts only. No torch here; the measured code is named, not imported."""

from benchmarks.catalog import gpt
from benchmarks.spec import Benchmark

ALL: tuple[Benchmark, ...] = (*gpt.BENCHMARKS,)
