"""The units of an acceptance, in order. One unit is one process of one case, so a call that is ended loses only one.

GPU time is scarce: the most decisive units come first, and a finished unit is never measured again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from benchmarks import expected, registry
from benchmarks.registry import Selected
from benchmarks.spec import Preset
from benchmarks.tiers import MACHINE


class AcceptancePart(StrEnum):
    """The parts of an acceptance, in order; each is designed for one call of nine minutes."""

    FIRST = "first"
    """The ladder's first and last rungs, then one case of every family: a failure of any of them ends the call."""
    RUNGS = "rungs"
    """The other rungs, and the cases that must be steady from process to process."""
    SESSIONS = "sessions"
    """Interleaved sessions with half of their processes slowed down."""
    SHAPES = "shapes"
    """Attention, experts and decoding at the shapes of the targets, the harness's overhead, every other benchmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One process of one case, or one experiment, stored under its name."""

    part: AcceptancePart
    name: str
    arguments: tuple[str, ...]
    expected_s: float
    may_lack: bool = False
    """Whether the machine may lack what the case needs: links between GPUs."""

    @property
    def is_run(self) -> bool:
        """Whether it writes a run.json; an experiment prints its result."""
        return self.arguments[0] == "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """How many interleaved sessions of four processes, on which case, and the slowdown that they must find."""

    case: str
    preset: Preset
    count: int
    injected: float
    expected_s: float = 60.0
    """For the first session of a call; later ones are expected to take as long as the longest so far."""


LADDER = ("r00_fp32_from_scratch", "r10_largest_batch", "r09_padded_vocabulary", "r08_compile", "r07_flash_attention")
"""The first and last rung, before the others: their ratio is a target."""
RUNGS = (
    *("r01_mask_on_the_fly", "r02_tf32", "r03_fused_adamw", "r04_pinned_memory", "r05_bf16"),
    "r06_torch_layers",
)
STEADY = ("attn.train/sdpa_flash-causal-4096-128", "moe.layer/olmoe-16384-grouped_mm-64-8-uniform-bf16")
"""Cases that must be steady from process to process, besides those of the sessions."""
STEADY_PROCESSES = 4
SHAPES = (
    *(f"attn.train/{way}-causal-{length}-128" for length in (512, 8192) for way in ("sdpa_flash", "sdpa_cudnn")),
    *(f"attn.train/{way}-causal-{length}-128" for length in (512, 8192) for way in ("flex", "best")),
    *(f"moe.layer/olmoe-16384-{how}-64-8-uniform-bf16" for how in ("loop", "capacity")),
    *(f"moe.layer/mixtral-16384-{how}-8-2-uniform-bf16" for how in ("grouped_mm", "loop", "capacity")),
    *("attn.decode/8-8192", "attn.decode/8-8192-flex"),
)
"""Besides grouped products at OLMoE's shape, which are among the cases that must be steady."""
PROCESSES_OF_A_SESSION = 5
"""Four processes, and the time to slow them down: the step is timed first, to know by how much."""
LACKING_S = 6.0
"""Time to find that the machine has no second GPU."""
OF_EACH = {"moe.layer": "*-grouped_mm-*"}
"""Which case represents a benchmark, if not the first one."""


def units(preset: Preset) -> tuple[Unit, ...]:
    """The plan for a GPU; with the cpu preset the same parts, at sizes that any machine finishes within a minute."""
    return tuple(_on_a_cpu() if preset is Preset.CPU else _on_a_gpu())


def sessions(preset: Preset) -> Sessions:
    """Ten on a GPU, with forty processes, at a small batch: a full one reaches the power limit, and a pause cools it.

    Two with the cpu preset, slowed down so much that any machine can see it.
    """
    if preset is Preset.CPU:
        wanted = Sessions(case="gpt.train/tiny-fp32", preset=Preset.CPU, count=2, injected=0.5)
    else:
        wanted = Sessions(case="gpt.train/gpt2-124m-bf16", preset=Preset.SMOKE, count=10, injected=0.02)
    (one,), _ = registry.choose([wanted.case], wanted.preset, {})
    return replace(wanted, expected_s=PROCESSES_OF_A_SESSION * _seconds(one, wanted.preset))


def _on_a_gpu() -> Iterator[Unit]:
    smoke = _one_of_each_benchmark()
    of_family = {one.benchmark.family: one for one in reversed(smoke)}
    first = [one for one in smoke if one is of_family[one.benchmark.family]]
    yield from (_unit(AcceptancePart.FIRST, f"gpt.ladder/{rung}", Preset.FULL) for rung in LADDER)
    yield from (_of(AcceptancePart.FIRST, one, Preset.SMOKE) for one in first)
    yield from (_unit(AcceptancePart.RUNGS, f"gpt.ladder/{rung}", Preset.FULL) for rung in RUNGS)
    yield from (_unit(AcceptancePart.RUNGS, case, Preset.FULL, n) for n in range(STEADY_PROCESSES) for case in STEADY)
    yield from (_unit(AcceptancePart.SHAPES, case, Preset.FULL) for case in SHAPES)
    yield _overhead("--preset", "smoke")
    yield from (_of(AcceptancePart.SHAPES, one, Preset.SMOKE) for one in smoke if one not in first)


def _one_of_each_benchmark() -> list[Selected]:
    """The smoke preset's case of every benchmark; of the collectives, which are one code, of the first alone."""
    found: list[Selected] = []
    for benchmark in registry.BY_ID.values():
        seen = any(one.benchmark.family == benchmark.family for one in found)
        if benchmark.id == "gpt.ladder" or (benchmark.mode == "collective" and seen):
            continue
        found.append(registry.choose([f"{benchmark.id}/{OF_EACH.get(benchmark.id, '*')}"], Preset.SMOKE, {})[0][0])
    return found


def _on_a_cpu() -> Iterator[Unit]:
    """Each part by its cheapest cases: what is shown is that the command goes through all of them."""
    first = ("gpt.ladder/r00_fp32_from_scratch", "ceiling.launch/add_one")
    yield from (_unit(AcceptancePart.FIRST, case, Preset.CPU) for case in first)
    yield from (_unit(AcceptancePart.RUNGS, "moe.layer/grouped_mm-8-2-uniform-fp32", Preset.CPU, n) for n in range(2))
    yield _unit(AcceptancePart.SHAPES, "attn.train/sdpa_flash-causal-512-64", Preset.CPU)
    yield _overhead()


def _unit(part: AcceptancePart, case: str, preset: Preset, process: int = 0) -> Unit:
    chosen, _ = registry.choose([case], preset, {})
    if len(chosen) != 1:
        raise LookupError(f"{case} names {len(chosen)} cases of the {preset} preset, and a unit is one")
    return _of(part, chosen[0], preset, process)


def _of(part: AcceptancePart, one: Selected, preset: Preset, process: int = 0) -> Unit:
    seconds = _seconds(one, preset)
    name = f"{one.name.replace('/', '.')}.{preset}.{process}"
    arguments = ("run", one.name, "--preset", preset, "--processes", "1", "--seed", str(1234 + process))
    return Unit(
        part=part,
        name=name,
        arguments=arguments,
        expected_s=LACKING_S if one.benchmark.distributed and preset is not Preset.CPU else seconds,
        may_lack=one.benchmark.distributed,
    )


def _seconds(one: Selected, preset: Preset) -> float:
    """Of one process, learnt or estimated."""
    return expected.expected(one, preset, expected.load(), expected.CPU if preset is Preset.CPU else MACHINE).seconds


def _overhead(*options: str) -> Unit:
    arguments = ("experiment", "overhead", "gpt.train", *options, "--json")
    return Unit(part=AcceptancePart.SHAPES, name="overhead", arguments=arguments, expected_s=30.0)


def case_of(unit_name: str) -> str:
    """The case and preset of a unit, without the number of its process."""
    return unit_name.rpartition(".")[0] or unit_name


def of_part(all_units: Sequence[Unit], part: AcceptancePart) -> list[Unit]:
    """The units of one part."""
    return [unit for unit in all_units if unit.part is part]
