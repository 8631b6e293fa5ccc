"""Two commits compared: for each metric the change with its interval, or how many more runs are needed."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backend.regression.cost import log_costs, typical
from backend.regression.detector.student import quantile
from backend.regression.policy import Policy
from backend.regression.series.exact import exact_change
from backend.regression.terms import Direction, Role, Verdict

CONFIDENCE = 0.99
PRIOR_WEIGHT = 4.0
"""How many values a spread assumed from the policy is worth, if a series' history is not known."""
PAST_WEIGHT = 20.0
"""How many values a spread learned from history is worth."""
MOST_RUNS = 1000


class CompareReason(enum.StrEnum):
    CLEARLY_WORSE = "clearly_worse"
    CLEARLY_BETTER = "clearly_better"
    NO_CHANGE_THAT_MATTERS = "no_change_that_matters"
    CANNOT_TELL_YET = "cannot_tell_yet"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric of one result of a run. `key` identifies it across runs: benchmark, variant and metric."""

    key: str
    metric: str
    unit: str
    direction: Direction
    role: Role
    exact: bool
    values: tuple[float, ...]
    status: str = "ok"
    benchmark: str = ""


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of both sides. Changes are fractions of cost; `insufficient` says how many more runs are needed."""

    key: str
    metric: str
    unit: str
    role: Role
    base: float
    head: float
    change: float
    low: float
    high: float
    verdict: Verdict
    reason: CompareReason
    needed_runs: int = 0
    """More process values needed per side."""
    traded_for: tuple[str, ...] = ()
    """For an improvement: keys of the same benchmark that got worse by more than the threshold."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A metric that one side or both could not measure."""

    key: str
    base_status: str
    head_status: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything two commits have in common, and what they do not."""

    rows: tuple[MetricComparison, ...]
    geometric_mean: float | None
    """Cost change over the gate metrics that both sides measured; None if there are none."""
    covered: int
    """Gate metrics in the geometric mean."""
    gates: int
    """Gate metrics that either side has."""
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]
    failed: tuple[Failure, ...]

    @property
    def regressions(self) -> tuple[MetricComparison, ...]:
        """Gate metrics that clearly got worse, by more than the policy allows."""
        return tuple(r for r in self.rows if r.verdict is Verdict.REGRESSION and r.role is Role.GATE)

    @property
    def undecided(self) -> tuple[MetricComparison, ...]:
        """Gate metrics for which more runs are needed."""
        return tuple(r for r in self.rows if r.verdict is Verdict.INSUFFICIENT and r.role is Role.GATE)


def compare(
    base: Sequence[ComparedMetric],
    head: Sequence[ComparedMetric],
    policy: Policy | Mapping[str, Policy],
    spread: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare two runs; `spread` is the relative standard deviation of one process by key, learned from history.

    `policy` may be one for all or a mapping by key.
    """
    left, right = {m.key: m for m in base}, {m.key: m for m in head}
    known = spread or {}
    rows, failed = [], []
    for key in (k for k in left if k in right):
        a, b = left[key], right[key]
        if a.status != "ok" or b.status != "ok" or not _usable(a) or not _usable(b):
            failed.append(Failure(key, _status(a), _status(b)))
            continue
        rule = policy if isinstance(policy, Policy) else policy[key]
        rows.append(_exact_row(a, b, rule) if a.exact and b.exact else _row(a, b, rule, known.get(key)))
    rows = _with_trades(rows, right)
    gates = {k for k, m in {**left, **right}.items() if m.role is Role.GATE}
    shared = [r for r in rows if r.role is Role.GATE and not (left[r.key].exact or r.change <= -1)]
    mean = math.expm1(statistics.fmean(math.log1p(r.change) for r in shared)) if shared else None
    return Comparison(
        tuple(rows),
        mean,
        len(shared),
        len(gates),
        tuple(k for k in left if k not in right),
        tuple(k for k in right if k not in left),
        tuple(failed),
    )


def _usable(m: ComparedMetric) -> bool:
    return bool(m.values) and all(map(math.isfinite, m.values)) and (m.exact or min(m.values) > 0)


def _status(m: ComparedMetric) -> str:
    return m.status if m.status != "ok" or _usable(m) else "no usable value"


def _exact_row(a: ComparedMetric, b: ComparedMetric, policy: Policy) -> MetricComparison:
    base, head = statistics.median_low(a.values), statistics.median_low(b.values)
    change = exact_change(base, head, a.direction)
    verdict = Verdict.UNCHANGED
    if change > policy.exact_min_change:
        verdict = Verdict.REGRESSION
    elif change < -policy.exact_min_change:
        verdict = Verdict.IMPROVEMENT
    return MetricComparison(
        a.key, a.metric, a.unit, a.role, base, head, change, change, change, verdict, CompareReason.EXACT
    )


def _row(a: ComparedMetric, b: ComparedMetric, policy: Policy, past: float | None) -> MetricComparison:
    """Two conditions: the interval must exclude no change, and the estimate must be past the policy."""
    x, y = (log_costs(m.values, m.direction) for m in (a, b))
    difference = typical(y) - typical(x)
    error, freedom = _error(x, y, past, policy)
    wide = _quantile(freedom) * error
    threshold = math.log1p(policy.min_change)
    low, high = difference - wide, difference + wide
    needed = 0
    if low > 0 and difference >= threshold:
        verdict, reason = Verdict.REGRESSION, CompareReason.CLEARLY_WORSE
    elif high < 0 and -difference >= threshold:
        verdict, reason = Verdict.IMPROVEMENT, CompareReason.CLEARLY_BETTER
    elif -threshold < low and high < threshold:
        verdict, reason = Verdict.UNCHANGED, CompareReason.NO_CHANGE_THAT_MATTERS
    else:
        needed = _needed(len(x), len(y), difference, error, threshold)
        verdict, reason = Verdict.INSUFFICIENT, CompareReason.CANNOT_TELL_YET
    base, head = statistics.median(a.values), statistics.median(b.values)
    ends = (math.expm1(difference), math.expm1(low), math.expm1(high))
    return MetricComparison(a.key, a.metric, a.unit, a.role, base, head, *ends, verdict, reason, needed)


def _quantile(freedom: float) -> float:
    """How many standard errors the interval reaches to either side."""
    return quantile(freedom, 0.5 + CONFIDENCE / 2)


def _error(x: list[float], y: list[float], past: float | None, policy: Policy) -> tuple[float, float]:
    """Standard error of the difference and its degrees of freedom: these values' spread pooled with what is known."""
    own = sum(_squares(v) for v in (x, y))
    freedom = sum(len(v) - 1 for v in (x, y))
    known, weight = (past, PAST_WEIGHT) if past is not None else (policy.prior_noise, PRIOR_WEIGHT)
    variance = (own + weight * known**2) / (freedom + weight)
    return math.sqrt(variance * (1 / len(x) + 1 / len(y))), freedom + weight


def _squares(values: list[float]) -> float:
    """Sum of squared deviations. (`statistics.variance` computes in fractions: a hundred times slower.)"""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _needed(n: int, m: int, difference: float, error: float, threshold: float) -> int:
    """More values a side until the interval would be narrow enough, whichever way it then falls."""
    per_value = error / math.sqrt(1 / n + 1 / m)
    away = max(min(abs(abs(difference) - threshold), threshold), 0.25 * threshold)
    wanted = 2 * (2.6 * per_value / away) ** 2
    return min(MOST_RUNS, max(1, math.ceil(wanted) - min(n, m)))


def _with_trades(rows: list[MetricComparison], head: Mapping[str, ComparedMetric]) -> list[MetricComparison]:
    """Faster at twice the memory is no improvement without saying so: name what was paid."""
    worse: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict is Verdict.REGRESSION and row.role is Role.GATE:
            worse.setdefault(head[row.key].benchmark, []).append(row.key)
    return [
        _paid(row, worse.get(head[row.key].benchmark, [])) if row.verdict is Verdict.IMPROVEMENT else row
        for row in rows
    ]


def _paid(row: MetricComparison, keys: list[str]) -> MetricComparison:
    return replace(row, traded_for=tuple(keys))
