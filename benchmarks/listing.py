"""The commands `list` and `describe`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import SUITE_VERSION, expected, registry
from benchmarks.spec import Benchmark, Preset
from benchmarks.tiers import MACHINE, TIERS, Tier


def list_all(options: argparse.Namespace) -> int:
    """`list`: every benchmark, and the tiers; one tier with its cases; or the cases that patterns name."""
    times = expected.load(options.times)
    if options.json:
        listed = {
            "suite_version": SUITE_VERSION,
            "benchmarks": [_as_json(b, times) for b in registry.BY_ID.values()],
            "tiers": [_tier_as_json(tier, times) for tier in TIERS.values()],
        }
        print(json.dumps(listed, indent=2))
    elif options.tier:
        print("\n".join(_lines_of(TIERS[options.tier], times)))
    elif options.patterns:
        print("\n".join(_lines_of_cases(options.patterns, Preset(options.preset), times)))
    else:
        print("\n".join(_lines(times)))
    return 0


def _lines(times: expected.Times) -> Iterator[str]:
    width = max(len(name) for name in registry.BY_ID)
    for benchmark in registry.BY_ID.values():
        counts = " ".join(f"{preset}:{len(benchmark.cases(preset))}" for preset in Preset)
        each = [
            expected.expected(one, Preset.FULL, times, MACHINE) for one in registry.cases_of(benchmark, Preset.FULL)
        ]
        learnt = sum(one.learnt for one in each)
        takes = f"full {sum(one.seconds for one in each) / 60:.0f} min, {learnt} of {len(each)} learnt"
        plug = "  plug-in point" if benchmark.signature else ""
        yield f"{benchmark.id:{width}}  {benchmark.title}  [{counts}; {takes}]{plug}"
    yield ""
    yield f"Minutes are of one process of each case on one {MACHINE}; what no run has shown is estimated."
    yield ""
    for tier in TIERS.values():
        yield from _lines_of(tier, times)[:2]


def _lines_of_cases(patterns: Sequence[str], preset: Preset, times: expected.Times) -> Iterator[str]:
    """Each case by its name, with the seconds of one process."""
    chosen, unknown = registry.choose(patterns, preset, {})
    if unknown:
        raise unknown[0]
    for one in chosen:
        each = expected.expected(one, preset, times, _machine_of(preset))
        how = "not applicable" if one.case.not_applicable else "learnt" if each.learnt else "estimated"
        yield f"{one.name:60} {each.seconds:6.1f} s  {how}"


def _machine_of(preset: Preset) -> str:
    return expected.CPU if preset is Preset.CPU else MACHINE


def _lines_of(tier: Tier, times: expected.Times) -> list[str]:
    processes, minutes = sum(n for _, n in tier.picks), tier.seconds(times) / 60
    learnt = f"{tier.learnt(times)} of {len(tier.picks)} times learnt from runs, the others estimated"
    takes = f"{minutes:.0f} of {tier.minutes:g} min on one {MACHINE}"
    head = [
        f"tier {tier.name}: {tier.covers}",
        f"  {len(tier.picks)} cases, {processes} processes, {takes}; {learnt}",
    ]
    for one, n in tier.picks:
        each = expected.expected(one, Preset.FULL, times, MACHINE)
        head.append(f"  {one.name:60} {n} × {each.seconds:5.1f} s  {'learnt' if each.learnt else 'estimated'}")
    return head


def _tier_as_json(tier: Tier, times: expected.Times) -> dict[str, Any]:
    return {
        "name": tier.name,
        "minutes": tier.minutes,
        "machine": MACHINE,
        "covers": tier.covers,
        "expected_seconds": tier.seconds(times),
        "cases": [
            {"case": one.name, "processes": n, **asdict(expected.expected(one, Preset.FULL, times, MACHINE))}
            for one, n in tier.picks
        ],
    }


def _as_json(benchmark: Benchmark, times: expected.Times) -> dict[str, Any]:
    return {
        "id": benchmark.id,
        "title": benchmark.title,
        "mode": benchmark.mode,
        "meaning": benchmark.meaning,
        "formula": benchmark.formula,
        "bound": benchmark.bound,
        "references": [{"figure": r.figure, "source": r.source} for r in benchmark.references],
        "signature": benchmark.signature,
        "builtin": benchmark.builtin,
        "presets": {
            str(preset): [
                {
                    "variant": dict(one.case.variant),
                    "config": dict(one.case.config),
                    "not_applicable": one.case.not_applicable,
                    "expected": asdict(expected.expected(one, preset, times, _machine_of(preset))),
                }
                for one in registry.cases_of(benchmark, preset)
            ]
            for preset in Preset
        },
    }


def describe_one(options: argparse.Namespace) -> int:
    """`describe`: a page on each benchmark that the id names."""
    found = registry.find(options.id)
    for number, benchmark in enumerate(found):
        print(("\n" if number else "") + describe(benchmark))
    return 0


def describe(benchmark: Benchmark) -> str:
    """A page on one benchmark that a reader could argue with."""
    parts = [
        f"{benchmark.id}: {benchmark.title}",
        "",
        benchmark.meaning,
        "",
        "Formula: " + benchmark.formula,
        "",
        "Bound: " + benchmark.bound,
    ]
    if benchmark.references:
        parts += ["", "Published figures:"] + [f"  {r.figure}\n    source: {r.source}" for r in benchmark.references]
    if benchmark.signature:
        parts += ["", "Plug-in point (--implementation module:attribute):", benchmark.signature]
    parts += ["", f"Built-in: {benchmark.builtin or 'measures the machine'}", "", "Variants:"]
    for preset in Preset:
        shown = [
            " ".join(f"{k}={v}" for k, v in c.variant.items()) + (" (not applicable)" if c.not_applicable else "")
            for c in benchmark.cases(preset)
        ]
        parts.append(f"  {preset}: " + ("; ".join(shown) or "none"))
    return "\n".join(parts)
