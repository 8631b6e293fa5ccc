"""Selections of cases that fit into a time on one GPU: `commit` for every commit, `nightly` for every night.

They are chosen by coverage, from the registry alone, so that a tier changes with the registry and never with what was
measured: its series continue from day to day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from benchmarks import expected, registry
from benchmarks.expected import Times
from benchmarks.registry import BY_ID, Selected
from benchmarks.spec import Preset

MACHINE = "NVIDIA H200"
"""The GPU for which the minutes of a tier are meant."""

HEADLINES = {
    "gpt.train/gpt2-124m-bf16": 3,
    "gpt.ladder/r10_largest_batch": 1,
    "llama.block/default-bf16": 1,
    "moe.layer/olmoe-16384-grouped_mm-64-8-uniform-bf16": 2,
    "attn.train/sdpa_flash-causal-4096-128": 2,
    "attn.decode/8-8192": 1,
    "ceiling.gemm/bf16-8192": 1,
    "compile.cold/default": 1,
}
"""Case -> processes: the most informative of every family. Both tiers have them, so that nights continue commits."""

OF_THE_NIGHT = {
    "attn.train/sdpa_cudnn-causal-8192-128": 1,
    "moe.layer/mixtral-16384-grouped_mm-8-2-uniform-bf16": 1,
}
"""Cases that published figures refer to, measured as well."""

TOO_DEAR = frozenset({("compile.cold", "mode", "max-autotune-no-cudagraphs")})
"""Minutes of tuning, too long for a night; the full preset has it."""

SIZES = frozenset({"length", "batch", "tokens", "side", "ranks", "experts", "top_k", "rows", "columns", "placement"})
"""Parts of a variant that are its size: one size represents the others."""

Feature = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Cases of the full preset, each with its number of processes."""

    name: str
    minutes: float
    covers: str
    picks: tuple[tuple[Selected, int], ...]

    def seconds(self, times: Times) -> float:
        """Expected seconds of the tier on its machine."""
        of = (n * expected.expected(one, Preset.FULL, times, MACHINE).seconds for one, n in self.picks)
        return sum(of)

    def learnt(self, times: Times) -> int:
        """How many cases have times known from runs."""
        return sum(expected.expected(one, Preset.FULL, times, MACHINE).learnt for one, _ in self.picks)

    def selection(self) -> tuple[Selected, ...]:
        """The cases, with the number of processes that the tier gives them."""
        return tuple(replace(one, case=replace(one.case, processes=n)) for one, n in self.picks)


def on_one_gpu() -> tuple[Selected, ...]:
    """Every case of the full preset that one GPU can run."""
    return tuple(
        Selected(benchmark, case)
        for benchmark in BY_ID.values()
        if not benchmark.distributed
        for case in benchmark.cases(Preset.FULL)
    )


def ways(one: Selected) -> set[Feature]:
    """Aspects a case covers besides its size: its benchmark with each kernel, precision, mask, mode … it has."""
    variant = one.case.variant
    of_variant: set[Feature] = {
        (one.benchmark.id, key, str(value)) for key, value in variant.items() if key not in SIZES
    }
    return (of_variant | {(one.benchmark.id,)}) - TOO_DEAR


def families(one: Selected) -> set[Feature]:
    """The family of a case, the only thing that a commit's tier must cover."""
    return {(one.benchmark.family,)}


def lacking(picks: Iterable[Selected], features: Mapping[str, set[Feature]]) -> set[Feature]:
    """Features of the cases for one GPU that none of these covers."""
    shown = {feature for one in picks for feature in features[one.name]}
    return {feature for of_case in features.values() for feature in of_case} - shown


def covering(kept: Mapping[str, int], features: Mapping[str, set[Feature]]) -> tuple[tuple[Selected, int], ...]:
    """The kept cases, followed by those that add the most for their time, one by one, until nothing is lacking."""
    known = {one.name: one for one in on_one_gpu()}
    picks = [(known[name], processes) for name, processes in kept.items()]
    while left := lacking((one for one, _ in picks), features):
        gain = {name: len(features[name] & left) / expected.estimate(one, Preset.FULL) for name, one in known.items()}
        picks.append((known[max(gain, key=lambda name: gain[name])], 1))
    order = list(known)
    return tuple(sorted(picks, key=lambda pick: order.index(pick[0].name)))


def _tiers() -> dict[str, Tier]:
    cases = on_one_gpu()
    of_commit, of_night = {one.name: families(one) for one in cases}, {one.name: ways(one) for one in cases}
    return {
        "commit": Tier(
            name="commit",
            minutes=10,
            covers="every family by its headline",
            picks=covering(HEADLINES, of_commit),
        ),
        "nightly": Tier(
            name="nightly",
            minutes=60,
            covers="every benchmark of one GPU by every kernel, precision, mask, load and mode, at one size each",
            picks=covering(HEADLINES | OF_THE_NIGHT, of_night),
        ),
    }


TIERS: Mapping[str, Tier] = _tiers()


def of_name(name: str, patterns: Iterable[str]) -> tuple[Selected, ...]:
    """The tier's cases that match the patterns, if there are any."""
    tier, wanted = TIERS[name].selection(), list(patterns)
    if not wanted:
        return tier
    chosen, unknown = registry.choose(wanted, Preset.FULL, {})
    if unknown:
        raise unknown[0]
    names = {one.name for one in chosen}
    return tuple(one for one in tier if one.name in names)
