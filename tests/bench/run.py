"""`make bench`: every budget as a ratio to its yardstick of the same minute, and which of them miss.

`python -m tests.bench.run [--only WORD …] [--measurements N] [--small N] [--projects N] [--keep DIR] [--json FILE]`;
exit 1: one is missed. Reads are measured in a store of 100,000 measurements and in one of 10 million; what they grow
by is a budget too. Filling the large one takes some minutes and 12 GB: `--measurements 1000000` is for a first look,
`--keep` for a second.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from tests.bench import analysis, cold, detection, pages, reads, rejudge, size, writes  # noqa: F401 -- they register their rows
from tests.bench.dataset import ALONE, BUSY
from tests.bench.registry import REGISTRY, Figure, Row
from tests.bench.stage import MOST_DELAY_MS, set_stage

DEFAULT_MEASUREMENTS = 10_000_000
SMALL_MEASUREMENTS = 100_000
QUIET_LOAD = 0.25
"""Of each core, before anything is measured."""
NOT_QUIET = """\
THIS MACHINE WAS NOT QUIET: up to {:.1f} processes ran or waited on {} cores. Ratios to a yardstick of the same minute
say something all the same; milliseconds and what is near its budget do not.
"""
LEAST_COMMITS = 500
"""Of a project whose pages are read: as many as a chart shows."""
LOOPS = 20_000_000
MODEL = """\
A MODEL, not a measurement: PostgreSQL held up every flush of its log for {:g} ms, that of an INSERT and that of a PUT
alike, as if the disk were slower than it is. What these ratios would be on a machine with such a disk can be guessed
from them; what they are on this machine is measured without --commit-delay-ms.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    rows = [row for row in REGISTRY.rows if not options.only or any(word in row.name for word in options.only)]
    if not rows:
        print(f"no budget is called {' or '.join(options.only)}; known: {', '.join(r.name for r in REGISTRY.rows)}")
        return 2
    small = options.small if options.small < options.measurements else None
    if too_small := _too_small_for(rows, options.measurements, small, options.projects):
        print(too_small)
        return 2
    quiet = _is_quiet()
    began = datetime.now(UTC)
    figures = measured(
        rows, options.measurements, small=small, keep=options.keep, processes=options.processes,
        projects=options.projects, commit_delay_ms=options.commit_delay_ms,
    )  # fmt: skip
    if options.commit_delay_ms:
        print(MODEL.format(options.commit_delay_ms))
    if not quiet:
        print(NOT_QUIET.format(max(figure.load for figure in figures), os.cpu_count()))
    here = machine()
    print(here)
    shared = "one project" if options.projects == 1 else f"{options.projects} busy projects"
    print(f"a store of {options.measurements:,} judged measurements of {shared}")
    print(table(figures))
    missed = [figure.what for figure in figures if figure.holds is False]
    print(f"\n{len(missed)} missed: {'; '.join(missed)}" if missed else "\nevery budget holds")
    if options.json:
        said = {
            "at": began.isoformat(timespec="minutes"), "command": "make bench", "machine": here, "quiet": quiet,
            "measurements": options.measurements, "small": small, "projects": options.projects,
            "processes": options.processes, "modelled_commit_delay_ms": options.commit_delay_ms,
            "figures": [
                {"what": f.what, "ratio": f.ratio, "budget": f.budget, "value_ms": f.value_ms, "growth": f.growth,
                 "yardstick": f.yardstick, "yardstick_ms": f.yardstick_ms, "holds": f.holds, "note": f.note,
                 "load": f.load} for f in figures
            ],
        }  # fmt: skip
        options.json.write_bytes(orjson.dumps(said, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return 1 if missed else 0


def _too_small_for(rows: Sequence[Row], measurements: int, small: int | None, projects: int) -> str | None:
    """Why these rows cannot be measured in stores of this size; None: they can."""
    base = ALONE if projects == 1 else BUSY
    if not any(row.is_read for row in rows):
        return None
    for option, total, share in (("--measurements", measurements, projects), ("--small", small or measurements, 1)):
        least = LEAST_COMMITS * base.measurements_of_a_commit * share
        if total < least:
            return f"{option} {total} is too small: {LEAST_COMMITS} commits are read of a project, which takes {least}"
    return None


def measured(
    rows: Sequence[Row],
    measurements: int,
    *,
    small: int | None = None,
    keep: Path | None = None,
    processes: int = 1,
    projects: int = 1,
    commit_delay_ms: float = 0.0,
) -> list[Figure]:
    """Every figure in a store of so many measurements; of reads also by how much they grew from a small one."""
    figures: list[Figure] = []
    with set_stage(
        measurements, _say, processes=processes, projects=projects, commit_delay_ms=commit_delay_ms, keep=keep
    ) as stage:
        little = None if small is None else stage.beside(small)
        # Reads before the deliveries, whose hundred projects stand in the menu of every page ever after.
        for row in sorted(rows, key=lambda row: (not row.in_process, not row.is_read)):
            load = os.getloadavg()[0]
            _say(f"measuring {row.name} …")
            _ = stage.filled
            stage.settle_changes()
            before = {} if little is None or not row.is_read else {each.what: each for each in row.measure(little)}
            for each in row.measure(stage):
                known = before.get(each.what)
                growth = each.ratio / known.ratio if known is not None and known.yardstick == "bare" else None
                figures.append(replace(each, growth=growth, load=load))
    return figures


def table(figures: Sequence[Figure]) -> str:
    """One line a figure: what, its ratio, what is allowed, the milliseconds behind it."""
    head = ("what", "ratio", "budget", "growth", "", "ms", "yardstick", "ms", "")
    lines = [head] + [
        (
            figure.what,
            f"{figure.ratio:.2f}×",
            figure.budget,
            "" if figure.growth is None else f"{figure.growth:.2f}×",
            {True: "holds", False: "MISSED", None: ""}[figure.holds],
            f"{figure.value_ms:.2f}",
            figure.yardstick,
            f"{figure.yardstick_ms:.2f}",
            figure.note,
        )
        for figure in figures
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    cells = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in cells)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="only budgets with this word")
    parser.add_argument("--measurements", type=_positive, default=DEFAULT_MEASUREMENTS, help="how many the store holds")
    parser.add_argument(
        "--small",
        type=_positive,
        default=SMALL_MEASUREMENTS,
        help="how many the one holds that growth is counted from",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the filled stores here, and use those that are there already"
    )
    parser.add_argument(
        "--projects",
        type=_positive,
        default=1,
        help="so many busy projects share the measurements: 200 commits a day, one of four metrics is a gate",
    )
    parser.add_argument("--processes", type=_positive, default=1, help="processes of the API, as in `serve --workers`")
    parser.add_argument(
        "--commit-delay-ms",
        type=_delay,
        default=0.0,
        metavar="MS",
        help="a model of a slower disk: PostgreSQL waits so long before each flush of its log",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    return parser.parse_args(arguments)


def _is_quiet() -> bool:
    return os.getloadavg()[0] <= QUIET_LOAD * (os.cpu_count() or 1)


def machine() -> str:
    """What it is, and how fast: budgets in seconds are easier to keep on one machine than on another."""
    began = time.process_time()
    for _ in range(LOOPS):
        pass
    loop_ns = 1e9 * (time.process_time() - began) / LOOPS
    what = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    return f"{what}, {loop_ns:.1f} ns for a turn of an empty loop"


def _positive(said: str) -> int:
    number = int(said)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{said} is not at least 1")
    return number


def _delay(said: str) -> float:
    delay_ms = float(said)
    if not 0 <= delay_ms <= MOST_DELAY_MS:
        raise argparse.ArgumentTypeError(f"{said} is not from 0 to {MOST_DELAY_MS} ms, which is what PostgreSQL takes")
    return delay_ms


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
