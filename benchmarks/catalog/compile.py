"""Compile time, cold and warm."""

from __future__ import annotations

from typing import Any

from benchmarks.catalog.gpt import GPT2, TINY
from benchmarks.spec import Benchmark, Case, Preset, PublishedFigure


def _cases(preset: Preset) -> tuple[Case, ...]:
    cpu = preset is Preset.CPU
    sizes: dict[str, Any] = dict(TINY) if cpu else {**GPT2, "batch_size": 4}
    sizes |= {"dtype": "fp32", "device": "cpu" if cpu else "cuda"}
    modes = ("default",) if preset is not Preset.FULL else ("default", "reduce-overhead", "max-autotune-no-cudagraphs")
    return tuple(
        Case(
            variant={"mode": mode},
            config={**sizes, "compile": mode},
            backend="inductor",
            processes=1 if cpu else None,
            timeout_s=600,
        )
        for mode in modes
    )


BENCHMARKS = (
    Benchmark(
        id="compile.cold",
        title="Compile time, cold and warm cache",
        mode="compile",
        workload="benchmarks.workloads.gpt.compile_cold:CompileCold",
        cases=_cases,
        meaning="How long the first step of a compiled GPT takes, in a fresh process with an empty cache, and in "
        "the next process with a filled cache; into how many graphs it splits, and how often it breaks or recompiles. "
        "Needs a C++ compiler on a CPU.",
        formula="seconds from the call of the first compiled step to its loss; graph breaks and recompilations as "
        "torch counts them.",
        bound="The host's single-thread speed, and the compilers it calls.",
        references=(
            PublishedFigure(
                figure="30 minutes of untimed initialisation, compiling included (4 hours in the open division)",
                source="mlcommons/training_policies, training_rules.adoc",
            ),
            PublishedFigure(
                figure="what it buys: 250 → 135 ms an iteration of GPT-2 with torch.compile",
                source="karpathy/nanoGPT, README",
            ),
        ),
        builtin="torch.compile",
    ),
)
