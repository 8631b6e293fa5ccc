"""Suites: where every benchmark is now relative to its baseline, per testbed, and the sweeps among its variants.

A sweep is a parameter of the variants over which a metric makes a curve: a number (ranks, length), the rungs of a
ladder (r00_scratch, r01_…), or else whatever names distinguish the variants. Collectives sweep inside a result: their
times by size are metrics, `time_us_1_mib`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from backend.services.base.errors import NotFound
from backend.services.base.scope import find_project, storable
from backend.services.reports.columns import natural
from backend.store.reports import suites as store
from backend.store.reports.suites import SeriesStatus

MAX_SERIES = 20_000
TIME_AT_SIZE = re.compile(r"time_us_([0-9.]+)_(b|kib|mib|gib)\Z")
SIZES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}
RUNG = re.compile(r"[a-z]\d\d(?:_|\Z)")
# What the curve of a benchmark shows where it was measured: the figure that people quote, before its cost.
QUOTED = (
    "scaling_efficiency",
    "tflops",
    "cache_gb_per_s",
    "busbw_gb_per_s",
    "tokens_per_s",
)
# Bus bandwidth is time turned into what a link carries, whatever the number of ranks n: bytes / time × factor.
BUS_FACTOR: Mapping[str, Callable[[float], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A point on a curve. `baseline`: the earlier value of the same variant, None while there is no baseline."""

    x: float | str
    value: float
    baseline: float | None
    series_id: int
    sha: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A curve over the sweep: one testbed, one choice of the other parameters."""

    testbed: str
    name: str
    points: tuple[SweepPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A metric over a parameter of the variants; `named` where its values are names and not numbers."""

    benchmark: str
    parameter: str
    metric: str
    unit: str
    direction: str
    named: bool
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Measured limits of a testbed, from the suite's newest run."""

    testbed: str
    accelerator: str
    ceilings: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteView:
    project: str
    suite: str
    benchmark: str | None
    benchmarks: tuple[str, ...]
    testbeds: tuple[str, ...]
    standings: tuple[SeriesStatus, ...]  # benchmark by benchmark; of a variant the gates first
    sweeps: tuple[Sweep, ...]
    machines: tuple[Machine, ...]


def load_suite(c: Connection, project: str, suite: str, benchmark: str | None = None) -> SuiteView:
    """One suite, or one benchmark of it; empty where nothing of it is judged on the default branch."""
    found = find_project(c, project)
    rows = store.standing(c, found.id, storable(suite), None, MAX_SERIES)
    if not rows and suite not in (known := store.names(c, found.id)):
        raise NotFound.of("suite", suite, known)
    benchmarks = sorted({row.benchmark for row in rows}, key=natural)
    if benchmark is not None and benchmark not in benchmarks:
        raise NotFound.of("benchmark", benchmark, benchmarks)
    standings = [row for row in rows if benchmark is None or row.benchmark == benchmark]
    standings.sort(key=_in_order)
    return SuiteView(
        project=project,
        suite=suite,
        benchmark=benchmark,
        benchmarks=tuple(benchmarks),
        testbeds=tuple(sorted({each.testbed for each in standings}, key=natural)),
        standings=tuple(standings),
        sweeps=tuple(sweeps_of(standings)),
        machines=tuple(
            _machine(name, ceilings, environment)
            for name, (ceilings, environment) in store.machines(c, found.id, storable(suite)).items()
        ),
    )


ROLES = ("gate", "watch", "derived")


def _in_order(each: SeriesStatus) -> tuple[Any, ...]:
    role = ROLES.index(each.role) if each.role in ROLES else len(ROLES)
    return natural(each.benchmark), natural(each.variant_key), each.preset, role, each.series_id, each.testbed


def _machine(testbed: str, ceilings: Mapping[str, Any], environment: Mapping[str, Any]) -> Machine:
    limits = {name: float(value) for name, value in ceilings.items() if isinstance(value, int | float) and value > 0}
    return Machine(testbed=testbed, accelerator=str(environment.get("accelerator") or ""), ceilings=limits)


# --- sweeps ----------------------------------------------------------------------------------------------------------


def sweeps_of(standings: Iterable[SeriesStatus]) -> list[Sweep]:
    """The curves of each benchmark, where its variants make any."""
    by_benchmark: dict[str, list[SeriesStatus]] = {}
    for each in standings:
        by_benchmark.setdefault(each.benchmark, []).append(each)
    found = []
    for benchmark, mine in by_benchmark.items():
        sweep = _over_sizes(benchmark, mine) or _over_parameter(benchmark, mine)
        if sweep is not None:
            found.append(sweep)
    return found


def _over_sizes(benchmark: str, standings: Sequence[SeriesStatus]) -> Sweep | None:
    """Bus bandwidth over message size, of a collective that times several sizes."""
    factor = BUS_FACTOR.get(benchmark.rpartition(".")[2])
    if factor is None:
        return None
    same = in_common(standings)
    curves: dict[tuple[str, str], list[SweepPoint]] = {}
    for each in standings:
        size = TIME_AT_SIZE.match(each.metric)
        ranks = each.variant.get("ranks")
        if size is None or not isinstance(ranks, int | float) or ranks < 2:
            continue
        count = float(size[1]) * SIZES[size[2]]
        speed = count * factor(ranks) / 1e3  # bytes a microsecond are MB/s; over 1000, GB/s
        curves.setdefault((each.testbed, _named(each, same, "placement")), []).append(
            SweepPoint(
                x=count,
                value=speed / each.value,
                baseline=None if each.baseline is None else speed / each.baseline,
                series_id=each.series_id,
                sha=each.sha,
                verdict=each.verdict,
            )
        )
    if not curves:
        return None
    return Sweep(
        benchmark=benchmark,
        parameter="size_bytes",
        metric="busbw_gb_per_s",
        unit="GB/s",
        direction="higher",
        named=False,
        curves=_sorted_curves(curves),
    )


def _over_parameter(benchmark: str, standings: Sequence[SeriesStatus]) -> Sweep | None:
    metric = _quoted(standings)
    mine = [each for each in standings if each.metric == metric]
    swept = _swept(mine)
    if swept is None:
        return None
    parameter, named = swept
    same = in_common(mine)
    curves: dict[tuple[str, str], list[SweepPoint]] = {}
    for each in mine:
        if parameter not in each.variant:
            continue
        value = each.variant[parameter]
        curves.setdefault((each.testbed, _named(each, same, parameter)), []).append(
            SweepPoint(
                x=str(value) if named else float(value),
                value=each.value,
                baseline=each.baseline,
                series_id=each.series_id,
                sha=each.sha,
                verdict=each.verdict,
            )
        )
    first = mine[0]
    return Sweep(
        benchmark=benchmark,
        parameter=parameter,
        metric=first.metric,
        unit=first.unit,
        direction=first.direction,
        named=named,
        curves=_sorted_curves(curves),
    )


def _quoted(standings: Sequence[SeriesStatus]) -> str:
    """The metric that people quote of a benchmark; else its first gate."""
    there = {each.metric for each in standings}
    known = next((metric for metric in QUOTED if metric in there), None)
    return known or min(standings, key=lambda each: (each.role != "gate", each.exact, each.series_id)).metric


def _swept(standings: Sequence[SeriesStatus]) -> tuple[str, bool] | None:
    """The parameter with the most values: of those that are numbers or rungs, else of the others; (parameter, is it
    a name)."""
    values: dict[str, set[Any]] = {}
    for each in standings:
        for name, value in each.variant.items():
            values.setdefault(name, set()).add(value)
    numeric = [(len(found), name, False) for name, found in values.items() if all(map(_is_number, found))]
    rungs = [(len(found), name, True) for name, found in values.items() if all(map(is_rung, found))]
    words = [(len(found), name, True) for name, found in values.items() if not all(map(_is_number, found))]
    for candidates in (numeric + rungs, words):
        several = [each for each in candidates if each[0] > 1]
        if several:
            _, name, named = max(several, key=lambda each: (each[0], each[1]))
            return name, named
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_rung(value: Any) -> bool:
    return isinstance(value, str) and RUNG.match(value) is not None


def _named(each: SeriesStatus, same: Mapping[str, Any], without: str) -> str:
    """The parameters that tell this curve from its neighbours."""
    parts = [f"{name}={value}" for name, value in each.variant.items() if name != without and name not in same]
    return ", ".join([*parts, *([each.preset] if PRESET not in same else [])])


PRESET = "preset"


def in_common(standings: Iterable[SeriesStatus]) -> dict[str, Any]:
    """Parameters that all these variants share, their preset included."""
    every = [{**each.variant, PRESET: each.preset} for each in standings]
    if not every:
        return {}
    return {name: value for name, value in every[0].items() if all(each.get(name) == value for each in every)}


def _sorted_curves(curves: Mapping[tuple[str, str], Sequence[SweepPoint]]) -> tuple[Curve, ...]:
    def place(point: SweepPoint) -> Any:
        return natural(point.x) if isinstance(point.x, str) else point.x

    return tuple(
        Curve(testbed=testbed, name=name, points=tuple(sorted(points, key=place)))
        for (testbed, name), points in sorted(curves.items())
    )
