"""Everything about one run: how it went, where it ran, what it measured, what was judged, and what came before it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.services.base.errors import BadRequest, NotFound
from backend.services.base.records import shared_fields
from backend.services.base.scope import storable
from backend.services.reports.notices import Difference, differences
from backend.store.judging import judgements
from backend.store.runs import view as store
from backend.store.runs.view import Artifact, EventRow, NeighbourRow, ResultRow, RunRow

LOG_BATCHES = 50
LOG_LINES = 1_000
PHASE_SUFFIX = "_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A step in the life of a run: requested, leased, running (with its step), delivered, given up …"""

    at: datetime
    attempt: int
    state: str
    step: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An earlier attempt that came to nothing."""

    attempt: int
    worker: str | None
    ended_at: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    at: datetime
    attempt: int
    stream: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Lines oldest first. `first` and `last` are event ids: ask for older ones before `first`, newer after `last`."""

    lines: tuple[LogLine, ...] = ()
    first: int | None = None
    last: int | None = None
    more: bool = False  # older lines than these are stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The nearest good run of the suite at an earlier commit, and how its environment differed."""

    run_id: str
    sha: str
    worker: str | None
    environment: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetric:
    """One metric of a result with what was judged. `before`: the previous run's value. Changes are cost fractions."""

    metric: str
    unit: str
    direction: str
    role: str
    exact: bool
    value: float
    processes: tuple[float, ...]
    samples: int | None  # how many there were, over all processes
    converged: bool | None
    formula: str | None
    series_id: int | None
    before: float | None
    verdict: str | None = None
    reason: str | None = None
    red: bool = False
    onset: bool = False
    change: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    regression_id: int | None = None
    pooled_runs: int = 1  # runs of this commit of which the verdict is: the processes of all are one point


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPhase:
    """A part of a step, beside what it was in the previous run."""

    name: str
    unit: str
    value: float
    before: float | None
    share: float | None  # of the sum of all phases of this result in this unit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One variant: what came of it, and what it measured."""

    index: int
    benchmark: str
    variant: Mapping[str, Any]
    variant_key: str
    preset: str
    mode: str | None
    backend: str | None
    world_size: int | None
    status: str
    error: str | None
    correctness: Mapping[str, Any]
    measurements: tuple[RunMetric, ...]
    phases: tuple[RunPhase, ...]
    roofline: Mapping[str, Any]
    diagnosis: Mapping[str, Any]
    artifacts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    id: str
    project: str
    testbed: str
    suite: str
    suite_version: str | None
    sha: str
    parents: tuple[str, ...]
    message: str
    author: str
    committed_at: datetime | None
    branch: str | None
    waits_for_commit: bool
    """The repository, as last read, does not have its commit on the default branch: no board shows this run yet."""
    gone_branch: str | None
    """Its branch, if the repository, as last read, does not have it, or its pull request is closed: on no board."""
    pull_request: int | None
    position: int | None
    state: str
    status: str | None
    kind: str
    priority: int
    error: str | None
    log_tail: str | None
    attempt: int
    attempts: tuple[Attempt, ...]
    requested_by: str
    requested_at: datetime
    leased_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    received_at: datetime | None
    duration_s: float | None
    worker: str | None
    worker_seen_at: datetime | None
    protection: str | None
    cancel_requested: bool
    progress: Mapping[str, Any]
    spec: Mapping[str, Any]
    code_under_test: Mapping[str, Any]
    session: Mapping[str, Any]
    environment: Mapping[str, Any]
    telemetry: Mapping[str, Any]
    ceilings: Mapping[str, Any]
    canary: tuple[Mapping[str, Any], ...]
    previous: Previous | None
    timeline: tuple[Event, ...]
    log: LogPage
    results: tuple[RunResult, ...]
    artifacts: tuple[Artifact, ...]
    verdicts: Mapping[str, int]  # how many metrics were judged how
    statuses: Mapping[str, int]  # how many results ended how


def load_run(c: Connection, run_id: str) -> RunView:
    """The page of one run, whatever state it is in."""
    run = store.load_run(c, storable(run_id))
    if run is None:
        raise NotFound.of("run", run_id)
    document = store.document(c, run_id)
    previous = store.previous_run(c, run_id)
    results = _results(c, run, document, previous)
    judged = [metric.verdict for result in results for metric in result.measurements if metric.verdict is not None]
    return RunView(
        **{
            **shared_fields(run, RunView),
            "parents": tuple(run.parents),
            "attempts": tuple(_attempt(item) for item in run.attempts),
            "worker": run.worker or document.get("worker"),
            "progress": run.progress or {},
            "environment": run.environment or {},
        },
        duration_s=_seconds(run.started_at, run.finished_at),
        code_under_test=document.get("code_under_test") or {},
        session=document.get("session") or {},
        telemetry=document.get("telemetry") or {},
        ceilings=document.get("ceilings") or {},
        canary=tuple(document.get("canary") or ()),
        previous=None if previous is None else _previous(run, previous),
        timeline=_timeline(run, store.events(c, run_id)),
        log=load_log(c, run_id),
        results=results,
        artifacts=tuple(store.artifacts(c, run_id)),
        verdicts=_counts(judged),
        statuses=_counts([result.status for result in results]),
    )


def load_log(c: Connection, run_id: str, *, before: int | None = None, after: int | None = None) -> LogPage:
    """A page of log lines: the newest, those before an event, or those after one."""
    if before is not None and after is not None:
        raise BadRequest.field("after", after, "one of before and after")
    if after is not None:
        batches: Sequence[EventRow] = store.log_after(c, run_id, after, LOG_BATCHES)
    else:
        batches = _newest(store.newest_log(c, run_id, LOG_BATCHES, store.NEWEST if before is None else before))
    return LogPage(
        lines=tuple(
            LogLine(at=batch.at, attempt=batch.attempt, stream=batch.detail.get("stream", "stdout"), text=line)
            for batch in batches
            for line in batch.detail.get("lines", ())
        ),
        first=batches[0].id if batches else None,
        last=batches[-1].id if batches else None,
        more=bool(batches) and bool(store.newest_log(c, run_id, 1, batches[0].id)),
    )


def _newest(batches: Sequence[EventRow]) -> Sequence[EventRow]:
    """The newest batches that make up a page of lines."""
    lines = 0
    for index in range(len(batches) - 1, -1, -1):
        lines += len(batches[index].detail.get("lines", ()))
        if lines >= LOG_LINES:
            return batches[index:]
    return batches


def _attempt(item: Mapping[str, Any]) -> Attempt:
    return Attempt(
        attempt=item.get("attempt", 0),
        worker=item.get("worker"),
        ended_at=item.get("ended_at"),
        reason=item.get("reason"),
    )


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start is not None and end is not None else None


def _counts(words: Sequence[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}


def _previous(run: RunRow, row: NeighbourRow) -> Previous:
    same = run.environment_id == row.environment_id or run.environment is None or row.environment is None
    return Previous(
        run_id=row.id,
        sha=row.sha,
        worker=row.worker,
        environment=() if same else differences(row.environment or {}, run.environment or {}),
    )


def _timeline(run: RunRow, events: Sequence[EventRow]) -> tuple[Event, ...]:
    """The run's events in order: those of its row, and every step that the worker sent."""
    told = [
        Event(
            at=event.at,
            attempt=event.attempt,
            state=event.detail.get("state", run.state),
            step=event.detail.get("step"),
            note=event.detail.get("note") or event.detail.get("reason"),
        )
        for event in events
    ]
    known = [Event(at=run.requested_at, attempt=1, state="queued", note=run.requested_by or None)]
    if run.leased_at is not None:
        known.append(Event(at=run.leased_at, attempt=run.attempt, state="leased", note=run.worker))
    if run.received_at is not None:
        known.append(Event(at=run.received_at, attempt=run.attempt, state=run.state, note=run.error))
    return tuple(sorted([*known, *told], key=lambda event: event.at))


def _results(
    c: Connection, run: RunRow, document: Mapping[str, Any], previous: NeighbourRow | None
) -> tuple[RunResult, ...]:
    rows = store.results(c, run.id)
    if not rows:
        return ()
    measured = store.measured(c, run.id, run.measured_at) if run.measured_at is not None else []
    series = {(row.result_index, row.measurement_index): row.series_id for row in measured}
    before = _values_before(c, previous)
    judged = {row.series_id: row for row in judgements.about_run(c, run.id)}
    delivered = document.get("results") or []
    told = [delivered[row.number] if row.number < len(delivered) else {} for row in rows]
    return tuple(_result(row, said, series, before, judged) for row, said in zip(rows, told, strict=True))


def _values_before(c: Connection, previous: NeighbourRow | None) -> dict[int, float]:
    if previous is None or previous.measured_at is None:
        return {}
    return {row.series_id: row.value for row in store.measured(c, previous.id, previous.measured_at)}


def _result(
    row: ResultRow,
    said: Mapping[str, Any],
    series: Mapping[tuple[int, int], int],
    before: Mapping[int, float],
    judged: Mapping[int, Any],
) -> RunResult:
    metrics = []
    for number, measurement in enumerate(said.get("measurements") or ()):
        series_id = series.get((row.number, number))
        metrics.append(
            _measured(
                measurement,
                series_id,
                None if series_id is None else before.get(series_id),
                None if series_id is None else judged.get(series_id),
            )
        )
    return RunResult(
        index=row.number,
        benchmark=row.benchmark,
        variant=row.variant,
        variant_key=row.variant_key,
        preset=row.preset,
        mode=said.get("mode"),
        backend=said.get("backend"),
        world_size=said.get("world_size"),
        status=row.status,
        error=row.error,
        correctness=said.get("correctness") or {},
        measurements=tuple(metric for metric in metrics if metric.role != "phase"),
        phases=_phases([metric for metric in metrics if metric.role == "phase"]),
        roofline=said.get("roofline") or {},
        diagnosis=said.get("diagnosis") or {},
        artifacts=said.get("artifacts") or {},
    )


def _measured(said: Mapping[str, Any], series_id: int | None, before: float | None, judged: Any | None) -> RunMetric:
    samples = said.get("sample_counts")
    measured = RunMetric(
        metric=said["metric"],
        unit=said["unit"],
        direction=said["direction"],
        role=said["role"],
        exact=said.get("exact", False),
        value=said["value"],
        processes=tuple(said.get("processes") or ()),
        samples=int(sum(samples)) if samples else None,
        converged=said.get("converged"),
        formula=said.get("formula"),
        series_id=series_id,
        before=before,
    )
    if judged is None:
        return measured
    return replace(
        measured,
        verdict=judged.verdict,
        reason=judged.reason,
        red=judged.red,
        onset=judged.onset,
        change=judged.change,
        low=judged.change_low,
        high=judged.change_high,
        baseline=judged.baseline,
        regression_id=judged.regression_id,
        pooled_runs=len(judged.detail.get("runs", ())) or 1,
    )


def _phases(metrics: Sequence[RunMetric]) -> tuple[RunPhase, ...]:
    totals: defaultdict[str, float] = defaultdict(float)
    for metric in metrics:
        totals[metric.unit] += metric.value
    return tuple(
        RunPhase(
            name=metric.metric.removesuffix(PHASE_SUFFIX),
            unit=metric.unit,
            value=metric.value,
            before=metric.before,
            share=metric.value / totals[metric.unit] if totals[metric.unit] > 0 else None,
        )
        for metric in metrics
    )
