"""The commands `list` and `describe`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks import SUITE_VERSION, expected, registry
from benchmarks.spec import Benchmark, Preset
from benchmarks.tiers import MACHINE, TIERS, Tier


def list_all(options: argparse.Namespace) -> int:
    """`list`: every benchmark, and the tiers; or one tier with its cases."""
    times = expected.load()
    if options.json:
        listed = {
            "suite_version": SUITE_VERSION,
            "benchmarks": [_as_json(b) for b in registry.BY_ID.values()],
            "tiers": [_tier_as_json(tier, times) for tier in TIERS.values()],
        }
        print(json.dumps(listed, indent=2))
    elif options.tier:
        print("\n".join(_lines_of(TIERS[options.tier], times)))
    else:
        print("\n".join(_lines(times)))
    return 0


def _lines(times: expected.Times) -> Iterator[str]:
    width = max(len(name) for name in registry.BY_ID)
    for benchmark in registry.BY_ID.values():
        counts = " ".join(f"{preset}:{len(benchmark.cases(preset))}" for preset in Preset)
        plug = "  plug-in point" if benchmark.signature else ""
        yield f"{benchmark.id:{width}}  {benchmark.title}  [{counts}]{plug}"
    yield ""
    for tier in TIERS.values():
        yield from _lines_of(tier, times)[:2]


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


def _as_json(benchmark: Benchmark) -> dict[str, Any]:
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
                {"variant": dict(c.variant), "config": dict(c.config), "not_applicable": c.not_applicable}
                for c in benchmark.cases(preset)
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
