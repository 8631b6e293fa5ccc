"""What the acceptance run measures, in which order. Each unit is a run of its own, so that a lease that ends loses one.

GPU time is short: what decides most stands first, and a unit that is done is never measured again in the same folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.spec import Preset


class Stage(StrEnum):
    """The parts of an acceptance, in their order."""

    SMOKE = "smoke"
    LADDER = "ladder"
    SESSIONS = "sessions"
    ATTENTION = "attention"
    MOE = "moe"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One call of `run`, or of `experiment`, whose answer is kept in a folder of the unit's name."""

    stage: Stage
    name: str
    arguments: tuple[str, ...]
    at_least_s: float = 20.0
    """Not begun when less time than this is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """How many interleaved sessions, on what, and how large the slow-down is that half of them must find."""

    benchmark: str = "gpt.train"
    count: int = 20
    injected: float = 0.02
    rounds: int = 1
    """Of ABBA: two processes a side each."""


RUNGS = (
    *("r00_fp32_from_scratch", "r10_largest_batch", "r01_mask_on_the_fly", "r02_tf32", "r03_fused_adamw"),
    *("r04_pinned_memory", "r05_bf16", "r06_torch_layers", "r07_flash_attention", "r08_compile"),
    "r09_padded_vocabulary",
)
"""The two ends first: their quotient is a target, the rungs between them explain it."""

STEADY = {
    "gpt.train": (),
    "attn.train": ("backend=sdpa_flash", "mask=causal", "length=4096", "head_dim=128"),
    "moe.layer": ("shape=olmoe", "impl=grouped_mm", "load=uniform"),
}
"""What must be steady from process to process, a variant each."""


def units(preset: Preset, *, quick: bool) -> tuple[Unit, ...]:
    """The plan for a GPU; at the cpu preset the same stages at sizes that any machine ends within minutes."""
    return _on_a_cpu(quick=quick) if preset is Preset.CPU else _on_a_gpu(quick=quick)


def _run(
    stage: Stage, name: str, what: str, preset: Preset, processes: int, *filters: str, least_s: float = 20.0
) -> Unit:
    chosen = tuple(part for text in filters for part in ("--variant", text))
    arguments = ("run", *what.split(), "--preset", preset, "--processes", str(processes), *chosen)
    return Unit(stage=stage, name=name, arguments=arguments, at_least_s=least_s)


def _on_a_gpu(*, quick: bool) -> tuple[Unit, ...]:
    full, smoke = Preset.FULL, Preset.SMOKE
    found = [_run(Stage.SMOKE, "smoke", "*", smoke, 1, least_s=90)]
    overhead = ("experiment", "overhead", "gpt.train", "--preset", "full", "--json")
    found.append(Unit(stage=Stage.SMOKE, name="overhead", arguments=overhead))
    found += [
        _run(Stage.LADDER, f"ladder-{rung[:3]}", "gpt.ladder", full, 1, f"rung={rung}", least_s=30)
        for rung in (RUNGS[:2] if quick else RUNGS)
    ]
    for name, filters in STEADY.items():
        found.append(_run(Stage.SESSIONS, f"steady-{name}", name, full, 2 if quick else 5, *filters, least_s=60))
    for length in (8192,) if quick else (8192, 512, 2048, 16384):
        variant = ("mask=causal", "head_dim=128", f"length={length}")
        found.append(_run(Stage.ATTENTION, f"attention-{length}", "attn.train", full, 1, *variant, least_s=60))
    found.append(_run(Stage.ATTENTION, "decode", "attn.decode", full, 1, "batch=8", "length=8192", least_s=45))
    for shape in ("olmoe",) if quick else ("olmoe", "mixtral", "deepseek_v3"):
        variant = (f"shape={shape}", "load=uniform", "tokens=16384")
        found.append(_run(Stage.MOE, f"moe-{shape}", "moe.layer", full, 1, *variant, least_s=60))
    found.append(_run(Stage.MOE, "moe-model", "moe.model", full, 1, least_s=120))
    rest = () if quick else ("ceiling.*", "gpt.train", "llama.block", "attn.decode", "compile.cold", "gpt.ddp coll.*")
    found += [_run(Stage.FULL, f"full-{n}", what, full, 2, least_s=120) for n, what in enumerate(rest)]
    return tuple(found)


def _on_a_cpu(*, quick: bool) -> tuple[Unit, ...]:
    cpu = Preset.CPU
    smoke = "ceiling.launch" if quick else "ceiling.* gpt.train coll.all_reduce"
    rungs = (RUNGS[0], RUNGS[1]) if quick else RUNGS
    overhead = ("experiment", "overhead", "gpt.train", "--json")
    found = [_run(Stage.SMOKE, "smoke", smoke, cpu, 1), Unit(stage=Stage.SMOKE, name="overhead", arguments=overhead)]
    found += [_run(Stage.LADDER, f"ladder-{rung[:3]}", "gpt.ladder", cpu, 1, f"rung={rung}") for rung in rungs]
    steady = ("gpt.train",) if quick else tuple(STEADY)
    kinds = {"attn.train": ("backend=sdpa_flash",), "moe.layer": ("impl=grouped_mm", "load=uniform")}
    found += [_run(Stage.SESSIONS, f"steady-{name}", name, cpu, 2, *kinds.get(name, ())) for name in steady]
    found.append(_run(Stage.ATTENTION, "attention", "attn.train", cpu, 1, *(("backend=best",) if quick else ())))
    impls = "impl=loop,grouped_mm" if quick else "impl=*"
    found.append(_run(Stage.MOE, "moe", "moe.layer", cpu, 1, "load=uniform", impls))
    return tuple(found)


def sessions(preset: Preset, *, quick: bool) -> Sessions:
    """Twenty of each kind, as the target says; a cpu preset only exercises them, with a slow-down it can see."""
    if preset is Preset.CPU:
        return Sessions(count=2 if quick else 4, injected=0.5)
    return Sessions(count=4 if quick else 20)
