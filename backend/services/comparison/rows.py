"""The rows of a comparison, in which order they stand, and the mean of each suite."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backend.regression.terms import Role, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """A metric of both sides. Changes are fractions of cost; `needed_runs`: more process values needed per side."""

    suite: str
    benchmark: str
    variant_key: str
    preset: str
    metric: str
    unit: str
    direction: str
    role: str
    base: float
    head: float
    change: float
    low: float
    high: float
    verdict: str
    reason: str
    needed_runs: int
    traded_for: tuple[str, ...]
    series_id: int  # of the head

    @property
    def judged(self) -> bool:
        """Whether it is a gate metric; every other one is shown, but its change alone says nothing about code."""
        return self.role == Role.GATE.value

    @property
    def moved(self) -> bool:
        """Whether it is a gate metric that got worse or better."""
        return self.judged and self.verdict in (Verdict.REGRESSION.value, Verdict.IMPROVEMENT.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteMean:
    """Geometric mean of the cost changes of a suite's gate metrics, over `compared` of `gates`; None: none compared."""

    suite: str | None  # None: all suites together
    change: float | None
    low: float | None
    high: float | None
    compared: int
    gates: int
    slower: int
    faster: int
    undecided: int
    unchanged: int
    left_out: int  # variants that one side lacks


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """A variant that one side could not measure, or never ran; not part of any mean."""

    suite: str
    benchmark: str
    variant_key: str
    preset: str
    base_status: str
    head_status: str
    error: str | None
    run_id: str | None


_ORDER = {
    verdict.value: number
    for number, verdict in enumerate(
        (Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.SUSPECT, Verdict.INSUFFICIENT, Verdict.UNCHANGED)
    )
}


def worst_first(row: ComparisonRow) -> tuple[bool, int, bool, float]:
    """Gates that moved or are in doubt; then verdicts before doubts before silence, larger changes first."""
    speaks = row.judged and row.verdict != Verdict.UNCHANGED.value
    return not speaks, _ORDER[row.verdict], not row.judged, -abs(row.change)


def suite_means(
    rows: Sequence[ComparisonRow], gates: Mapping[str, str], missing: Sequence[NotCompared]
) -> tuple[SuiteMean, ...]:
    """The mean of each suite that has a gate, or a variant that could not be compared."""
    of_gates, of_missing = Counter(gates.values()), Counter(item.suite for item in missing)
    return tuple(
        mean_of(suite, [row for row in rows if row.suite == suite], of_gates[suite], of_missing[suite])
        for suite in sorted({*of_gates, *of_missing})
    )


def mean_of(suite: str | None, rows: Iterable[ComparisonRow], gates_of_either: int, left_out: int) -> SuiteMean:
    """Over gates with noise only: an exact counter has no place in a mean of times."""
    gates = [row for row in rows if row.role == Role.GATE.value]
    timed = [row for row in gates if row.low < row.high and row.low > -1]
    verdicts = Counter(row.verdict for row in gates)
    mean = low = high = None
    if timed:
        logs = [math.log1p(row.change) for row in timed]
        spreads = [(math.log1p(row.high) - math.log1p(row.low)) / 2 for row in timed]
        middle, half = math.fsum(logs) / len(logs), math.sqrt(math.fsum(s * s for s in spreads)) / len(spreads)
        mean, low, high = math.expm1(middle), math.expm1(middle - half), math.expm1(middle + half)
    return SuiteMean(
        suite=suite,
        change=mean,
        low=low,
        high=high,
        compared=len(gates),
        gates=gates_of_either,
        slower=verdicts[Verdict.REGRESSION.value],
        faster=verdicts[Verdict.IMPROVEMENT.value],
        undecided=verdicts[Verdict.INSUFFICIENT.value],
        unchanged=verdicts[Verdict.UNCHANGED.value],
        left_out=left_out,
    )
