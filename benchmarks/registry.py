"""Finds registered benchmarks and their cases by id, glob and variant filter."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.catalog import ALL
from benchmarks.spec import Benchmark, Case, Preset, slug_of


class UnknownBenchmark(ValueError):
    """An id or glob that matches nothing."""


class UnknownVariant(ValueError):
    """A variant filter that matches nothing."""


@dataclass(frozen=True, slots=True)
class Selected:
    """One case to run, with the benchmark it belongs to."""

    benchmark: Benchmark
    case: Case

    @property
    def name(self) -> str:
        """`ID/CASE`, what `run` takes to measure this case alone: `gpt.ladder/r07_flash_attention`."""
        return f"{self.benchmark.id}/{slug_of(self.case.variant)}"


BY_ID: Mapping[str, Benchmark] = {benchmark.id: benchmark for benchmark in ALL}


def find(pattern: str) -> tuple[Benchmark, ...]:
    """The benchmarks an id or glob names; raises `UnknownBenchmark` with the known ones."""
    found = tuple(b for b in ALL if fnmatch.fnmatchcase(b.id, pattern))
    if found:
        return found
    close = difflib.get_close_matches(pattern, BY_ID, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UnknownBenchmark(
        f"unknown benchmark '{pattern}'{hint} known: {', '.join(BY_ID)}".replace("? known", "? known")
    )


def choose(
    patterns: Sequence[str], preset: Preset, filters: Mapping[str, set[str]], *, plugged_in: bool = False
) -> tuple[tuple[Selected, ...], tuple[UnknownBenchmark, ...]]:
    """The cases that `ID`, `ID/CASE` and globs of either name, once each and in registry order, and what names nothing.

    With an implementation `plugged_in`, cases that differ only in what is built in are one.

    Raises `UnknownVariant` where an `ID/CASE` fits no case of its benchmark, or the filters fit none at all.
    """
    wanted: set[str] = set()
    unknown: list[UnknownBenchmark] = []
    for pattern in patterns:
        try:
            wanted |= _named(pattern, preset, plugged_in)
        except UnknownBenchmark as error:
            unknown.append(error)
    benchmarks = [b for b in ALL if any(name.startswith(f"{b.id}/") for name in wanted)]
    chosen = select(benchmarks, preset, filters, plugged_in=plugged_in)
    return tuple(one for one in chosen if one.name in wanted), tuple(unknown)


def cases_of(benchmark: Benchmark, preset: Preset, *, plugged_in: bool = False) -> tuple[Selected, ...]:
    """The cases of a benchmark; those that an implementation replaces, without the keys it makes meaningless, once.

    A case that an implementation cannot provide is not applicable to it.
    """
    cases = [Selected(benchmark, case) for case in benchmark.cases(preset)]
    if not plugged_in:
        return tuple(cases)
    own: dict[str, Selected] = {}
    for one in sorted(cases, key=lambda one: one.case.not_applicable is not None):
        variant = {key: value for key, value in one.case.variant.items() if key not in benchmark.chooses}
        reason = one.case.built_in_only or one.case.not_applicable
        case = Selected(benchmark, replace(one.case, variant=variant, not_applicable=reason))
        own.setdefault(case.name, case)
    return tuple(own.values())


def _named(pattern: str, preset: Preset, plugged_in: bool) -> set[str]:
    """Names of the cases that one pattern means."""
    benchmark, _, case = pattern.partition("/")
    known = [one.name for b in find(benchmark) for one in cases_of(b, preset, plugged_in=plugged_in)]
    fit = {name for name in known if fnmatch.fnmatchcase(name.partition("/")[2], case or "*")}
    if not fit:
        raise UnknownVariant(f"no case '{case}' of {benchmark} with preset {preset}; known: {', '.join(known)}")
    return fit


def parse_filters(texts: Sequence[str]) -> dict[str, set[str]]:
    """`rung=r07,r08` texts as key -> accepted values; several of one key add up."""
    filters: dict[str, set[str]] = {}
    for text in texts:
        key, separator, values = text.partition("=")
        if not separator or not key or not values:
            raise UnknownVariant(f"variant filter '{text}' is not key=value, e.g. rung=r07_flash_attention")
        filters.setdefault(key.strip(), set()).update(v.strip() for v in values.split(","))
    return filters


def select(
    benchmarks: Iterable[Benchmark], preset: Preset, filters: Mapping[str, set[str]], *, plugged_in: bool = False
) -> tuple[Selected, ...]:
    """The cases of these benchmarks that pass the variant filters; raises where a filter fits none of them."""
    everything = [one for b in benchmarks for one in cases_of(b, preset, plugged_in=plugged_in)]
    chosen = tuple(s for s in everything if _passes(s.case, filters))
    if filters and not chosen:
        known = sorted({f"{key}={value}" for s in everything for key, value in s.case.variant.items()})
        asked = ", ".join(f"{key}={value}" for key, values in filters.items() for value in sorted(values))
        raise UnknownVariant(f"no variant matches {asked}; known with preset {preset}: {', '.join(known)}")
    return chosen


def _passes(case: Case, filters: Mapping[str, set[str]]) -> bool:
    return all(
        any(fnmatch.fnmatchcase(str(case.variant.get(key, "")), value) for value in values)
        for key, values in filters.items()
    )


ONE_RANK = "torchrun started one rank; on one rank nothing crosses a link, so there is nothing to state"
ONE_PROCESS = "torchrun started {} ranks and this is measured in one process; run it without torchrun"


def for_ranks(selection: Sequence[Selected], ranks: int) -> tuple[Selected, ...]:
    """The cases of a distributed benchmark at torchrun's number of ranks, once each; others are not applicable."""
    found: dict[tuple[str, str], Selected] = {}
    for selected in selection:
        case = _at(selected.case, ranks) if selected.benchmark.distributed else _alone(selected.case, ranks)
        key = selected.benchmark.id, str(sorted(case.variant.items()))
        found.setdefault(key, Selected(selected.benchmark, case))
    return tuple(found.values())


def _at(case: Case, ranks: int) -> Case:
    if case.config.get("strategy") == "none":
        return case if ranks == 1 else _alone(case, ranks)
    return replace(
        case,
        variant={**case.variant, "ranks": ranks},
        config={**case.config, "ranks": ranks},
        world_size=ranks,
        not_applicable=ONE_RANK if ranks < 2 else case.not_applicable,
    )


def _alone(case: Case, ranks: int) -> Case:
    return replace(case, not_applicable=case.not_applicable or ONE_PROCESS.format(ranks))
