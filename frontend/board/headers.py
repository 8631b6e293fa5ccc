"""The headers of the board's columns: suite, benchmark, and below them what distinguishes a variant from its siblings.

A variant's name is never truncated. A name is horizontal if the columns it spans leave room for it, and otherwise
moves into the vertical label of each of its columns.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backend.services.reports.columns import Column
from frontend.board.layout import ColumnGroup, Layout

MOST_LEVELS = 2
LEVEL_PX, SUITE_PX, UPRIGHT_PX = 6.4, 8.4, 6.8  # of a letter in each size of type, as wide as usual fonts have them
PADDING_PX = 10
LEAST_CELL_PX = {"many": 32, "mid": 48, "few": 140}
NOT_YET = "not measured yet"
ONE_LINE, LEAST_LETTERS = 20, 6  # an upright name of more letters than a line has takes two


@dataclass(frozen=True, slots=True)
class HeaderSpan:
    """A name over neighbouring columns."""

    columns: tuple[int, ...]
    name: str
    told: bool = True  # False: too narrow for the name, which its columns carry themselves


@dataclass(frozen=True, slots=True)
class ColumnHeaders:
    """The headers of a layout: benchmarks by group, the spans of each level, and the vertical name of each column."""

    benchmarks: Mapping[str, tuple[HeaderSpan, ...]]
    levels: tuple[tuple[HeaderSpan, ...], ...]
    names: Mapping[int, str]
    height: int
    """Of the vertical names, in pixels."""


def headers_of(columns: Sequence[Column], layout: Layout, metrics: Mapping[int, str]) -> ColumnHeaders:
    """The names of the shown columns. `metrics`: what a column measures, if known."""
    cell = LEAST_CELL_PX[layout.size]
    level, benchmarks, names = layout.size != "few", dict[str, tuple[HeaderSpan, ...]](), dict[int, str]()
    levels: list[list[HeaderSpan]] = [[] for _ in range(MOST_LEVELS)]
    for group in layout.groups:
        if group.folded:
            names[group.columns[0]] = f"{group.name} · {len(group.columns)}"
            for row in levels:
                row.append(HeaderSpan((group.columns[0],), "", told=False))
            continue
        suite_fits = _fits(group.name, len(group.columns), cell, SUITE_PX)
        found = [_named(span, group, cell) for span in _by_benchmark(columns, group.columns)]
        benchmarks[group.name] = tuple(found)
        for span in found:
            lifted = _lifted(columns, span.columns, cell) if level else []
            for number, row in enumerate(levels):
                row.extend(lifted[number] if number < len(lifted) else [HeaderSpan(span.columns, "", told=False)])
            for index in span.columns:
                rest = " ".join(part for part in columns[index].parts[len(lifted) :] if part)
                above = [group.name if not suite_fits else "", span.name if not span.told else ""]
                own = rest or _measures(columns[index], metrics.get(index)) or span.name or NOT_YET
                names[index] = " ".join(dict.fromkeys(part for part in (*above, own) if part))
    used = [tuple(spans) for spans in levels if any(span.told for span in spans)]
    return ColumnHeaders(benchmarks, tuple(used), names, _height(names.values()))


def _by_benchmark(columns: Sequence[Column], indices: Sequence[int]) -> list[HeaderSpan]:
    found: list[HeaderSpan] = []
    for index in indices:
        name = columns[index].benchmark
        if found and found[-1].name == name:
            found[-1] = HeaderSpan((*found[-1].columns, index), name)
        else:
            found.append(HeaderSpan((index,), name))
    return found


def _named(span: HeaderSpan, group: ColumnGroup, cell: int) -> HeaderSpan:
    short = span.name.removeprefix(f"{group.suite}.")
    return HeaderSpan(span.columns, short, told=_fits(short, len(span.columns), cell, LEVEL_PX))


def _lifted(columns: Sequence[Column], indices: Sequence[int], cell: int) -> list[list[HeaderSpan]]:
    """The first keys of neighbouring variants as levels, as long as every value has room and a key is left below."""
    parts = [columns[index].parts for index in indices]
    found: list[list[HeaderSpan]] = []
    while len(found) < min(MOST_LEVELS, max(map(len, parts)) - 1):
        depth = len(found) + 1
        spans: list[HeaderSpan] = []
        before: tuple[str, ...] | None = None
        for index, mine in zip(indices, parts, strict=True):
            if mine[:depth] == before:
                spans[-1] = HeaderSpan((*spans[-1].columns, index), spans[-1].name)
            else:
                spans.append(HeaderSpan((index,), mine[depth - 1]))
            before = mine[:depth]
        if not all(_fits(span.name, len(span.columns), cell, LEVEL_PX) for span in spans):
            break
        found.append(spans)
    return found


def _fits(name: str, columns: int, cell: int, letter_px: float) -> bool:
    return len(name) * letter_px + PADDING_PX <= columns * cell


def _measures(column: Column, metric: str | None) -> str:
    """What a lone variant is called by: its metric says more than its benchmark's name again. Where a cell is the worst
    of several, no one of them may stand for all."""
    if metric is None:
        return ""
    return metric if len(column.series) < 2 else "worst gate metric"


def _height(names: Iterable[str]) -> int:
    longest = max(map(len, names), default=0)
    letters = longest if longest <= ONE_LINE else max(ONE_LINE, math.ceil(longest / 2) + 2)
    return round(max(letters, LEAST_LETTERS) * UPRIGHT_PX) + PADDING_PX
