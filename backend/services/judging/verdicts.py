"""The verdict of a point, for its reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.regression.series.explain import explain
from backend.regression.terms import Judgement
from backend.store.judging.judgements import JudgementRow
from backend.store.judging.series import SeriesRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesVerdict:
    """What is said of one measurement of a run."""

    series_id: int
    benchmark: str
    variant: str
    metric: str
    unit: str
    role: str
    verdict: str
    change: float | None
    change_low: float | None
    change_high: float | None
    baseline: float | None
    value: float
    needed_runs: int
    """More of them until such a point is judged; 0: it is."""
    regression_id: int | None
    explanation: str


def verdict_of(series: SeriesRow, row: JudgementRow, names: Mapping[int, str]) -> SeriesVerdict:
    said = row.judgement
    return SeriesVerdict(
        series_id=series.id,
        benchmark=series.benchmark,
        variant=series.variant_key,
        metric=series.metric,
        unit=series.unit,
        role=series.role,
        verdict=said.verdict.value,
        change=said.change,
        change_low=said.change_low,
        change_high=said.change_high,
        baseline=said.baseline,
        value=said.value,
        needed_runs=said.needed_runs,
        regression_id=row.regression_id,
        explanation=explanation(said, series.metric, series.unit, names),
    )


def explanation(said: Judgement, metric: str, unit: str, names: Mapping[int, str]) -> str:
    """Why a point is judged as it is, for people."""
    if said.numbers.get("not_positive"):
        return f"{metric} is {said.value:g} {unit} here: not judged, as a change is a ratio and needs values above 0."
    return explain(said, metric, unit, names)
