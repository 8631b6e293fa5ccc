"""The columns of a board: one for each variant of a benchmark, in natural order, with short names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from backend.store.board.board import BoardResultRow, BoardSeriesRow
from backend.store.reports.trends import TrendSeries

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A variant of a benchmark. `series` are its gate metrics; none: only failed or waiting results so far.

    `parts` distinguish it from its siblings: one for each key in which they vary, empty if it lacks the key.
    """

    key: str
    suite: str
    benchmark: str
    variant: Mapping[str, Any]
    label: str
    preset: str
    series: tuple[int, ...]
    parts: tuple[str, ...] = ()


class VariantKey(NamedTuple):
    """The key of a column: the same variant in another suite version is the same column."""

    suite: str
    benchmark: str
    variant_key: str
    preset: str

    @property
    def text(self) -> str:
        return "/".join((self.suite, self.benchmark, self.variant_key, self.preset))


def key_of(row: BoardSeriesRow | BoardResultRow | TrendSeries) -> VariantKey:
    return VariantKey(row.suite, row.benchmark, row.variant_key, row.preset)


@lru_cache(maxsize=20_000)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sorting key in which `r2` comes before `r10`."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(text) if part)


@lru_cache(maxsize=64)
def columns_of(
    series: tuple[BoardSeriesRow, ...],
    results: tuple[BoardResultRow, ...],
    waiting: tuple[str, ...],
    *,
    among: tuple[BoardSeriesRow, ...],
) -> tuple[Column, ...]:
    """Columns of these series and results, and one for each suite that waits for its very first result.

    The answer is cached: a project's pages have the same columns until something new is measured.
    Sorted by suite, benchmark and variant; numbers within names numerically. Labels distinguish a variant from all
    those it is `among`, so that they stay the same under any filter.
    """
    members: dict[VariantKey, list[int]] = {}
    variants: dict[VariantKey, Mapping[str, Any]] = {}
    for row in series:
        key = key_of(row)
        members.setdefault(key, []).append(row.id)
        variants[key] = orjson.loads(row.variant)
    for result in results:
        members.setdefault(key_of(result), [])
        variants.setdefault(key_of(result), orjson.loads(result.variant))
    known = {key.suite for key in members}
    for suite in waiting:
        if suite not in known:
            members[VariantKey(suite, "", "", "")] = []
            variants[VariantKey(suite, "", "", "")] = {}
    parts = _parts({key_of(row): orjson.loads(row.variant) for row in among} | variants)
    return tuple(
        Column(
            key=key.text,
            suite=key.suite,
            benchmark=key.benchmark,
            variant=variants[key],
            label=_label(key, parts[key]),
            preset=key.preset,
            series=tuple(members[key]),
            parts=parts[key],
        )
        for key in sorted(members, key=lambda key: _place(key, parts[key]))
    )


def matches(row: BoardSeriesRow | BoardResultRow, words: Sequence[str], metric: str = "") -> bool:
    """True when every word is somewhere in the variant's names."""
    names = f"{row.suite} {row.benchmark} {row.variant_key} {metric}".lower()
    return all(word in names for word in words)


def _place(key: VariantKey, parts: Sequence[str]) -> tuple[Any, ...]:
    """Where a column stands: by suite and benchmark, then part by part of its name."""
    return natural(key.suite), natural(key.benchmark), [natural(part) for part in parts], natural(key.preset)


def _label(key: VariantKey, parts: Sequence[str]) -> str:
    return " ".join(part for part in parts if part) or key.benchmark.rpartition(".")[2] or key.suite


def _parts(variants: Mapping[VariantKey, Mapping[str, Any]]) -> dict[VariantKey, tuple[str, ...]]:
    """Of each variant what tells it from its siblings: a part for each key in which they vary, and the preset."""
    siblings: dict[tuple[str, str], list[VariantKey]] = {}
    for key in variants:
        siblings.setdefault((key.suite, key.benchmark), []).append(key)
    found: dict[VariantKey, tuple[str, ...]] = {}
    for keys in siblings.values():
        seen: dict[str, set[str]] = {}
        for key in keys:
            for name, value in variants[key].items():
                seen.setdefault(name, set()).add(str(value))
        varying = [
            name for name, values in seen.items() if len(values) > 1 or not all(name in variants[key] for key in keys)
        ]
        varying.sort(key=lambda name: (len(seen[name]), name))  # the coarsest first: its values stand side by side
        several_presets = len({key.preset for key in keys}) > 1
        for key in keys:
            mine = variants[key]
            parts = [_part(name, mine[name]) if name in mine else "" for name in varying]
            found[key] = (*parts, key.preset) if several_presets else tuple(parts)
    return found


def _part(name: str, value: object) -> str:
    """`bf16` speaks for itself, `8` does not."""
    return value if isinstance(value, str) and not value.replace(".", "").isdecimal() else f"{name}={written(value)}"


def written(value: object) -> str:
    """A variant's value as people write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
