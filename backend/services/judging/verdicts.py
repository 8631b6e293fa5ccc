"""What is said of points: the verdict of each for its reader, and what later runs make clear of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.regression.series.explain import explain
from backend.regression.terms import ChangeDirection, ChangeKind, ChangeState, Judgement, Reason, Verdict
from backend.services.alarms.alarms import News, Told
from backend.store.judging.judgements import JudgementRow, Restatement
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


def restatements(stories: Sequence[News], told: Told) -> list[Restatement]:
    """What the news makes clear about earlier points: where a regression began, and where there is none (any more)."""
    changes = [change for item in stories for change in _restated_by(item, told)]
    return [change for change in changes if change.first <= change.last]


def _restated_by(item: News, told: Told) -> list[Restatement]:
    """What one event says of the points before the one it was seen at."""
    event, series_id = item.event, item.series.id
    onset, before = event.onset_position, event.detected_position - 1
    change = None
    match event.state:
        case _ if not event.past_gate:
            pass  # a small change moves the baseline and nothing else
        case ChangeState.CONFIRMED if event.direction is ChangeDirection.IMPROVEMENT:
            change = Restatement(
                series_id=series_id,
                first=onset,
                last=before,
                verdict=Verdict.IMPROVEMENT,
                reason=Reason.SUSTAINED_IMPROVEMENT,
                onset_position=onset,
                regression_id=None,
                instead_of=(Verdict.UNCHANGED,),
            )
        case ChangeState.CONFIRMED:
            change = Restatement(
                series_id=series_id,
                first=onset,
                # Of a drift only where it began is marked: the commits after it were not that much slower yet.
                last=min(onset, before) if event.kind is ChangeKind.DRIFT else before,
                verdict=Verdict.SUSPECT if told.held_back(series_id, onset) else Verdict.REGRESSION,
                reason=Reason.STILL_WORSE,
                onset_position=onset,
                regression_id=told.regression_of(series_id, onset),
                instead_of=(Verdict.SUSPECT, Verdict.UNCHANGED, Verdict.REGRESSION, Verdict.IMPROVEMENT),
            )
        case ChangeState.RELOCATED if event.previous_onset_position is not None:
            change = _quiet(series_id, event.previous_onset_position, onset - 1, event.previous_onset_position, None)
        case ChangeState.WITHDRAWN:
            change = _quiet(series_id, onset, before, onset, None)
        case ChangeState.FIXED:
            change = _quiet(series_id, event.range_end, before, onset, Reason.RETURNED)
    return [] if change is None else [change]


def _quiet(series_id: int, first: int, last: int, since: int, reason: Reason | None) -> Restatement:
    return Restatement(
        series_id=series_id,
        first=first,
        last=last,
        verdict=Verdict.UNCHANGED,
        reason=reason,
        onset_position=None,
        regression_id=None,
        instead_of=(Verdict.SUSPECT, Verdict.REGRESSION, Verdict.UNCHANGED),
        since=since,
    )
