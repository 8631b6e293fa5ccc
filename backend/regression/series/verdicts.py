"""From what the detector found to what is said: verdict, reason, limits in the metric's own unit, and events."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from backend.regression.cost import value_of
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Change, Opened
from backend.regression.detector.smoothing import Smooth
from backend.regression.detector.workers import WorkerOffset, find
from backend.regression.policy import Policy
from backend.regression.series.exact import Counter, ExactChange, exact_change
from backend.regression.series.limits import Limits
from backend.regression.terms import (
    ChangeDirection,
    ChangeKind,
    ChangePoint,
    ChangeState,
    Direction,
    Judgement,
    PointLike,
    Reason,
    Role,
    SeriesKind,
    Verdict,
)

if TYPE_CHECKING:
    from backend.regression.series.noisy import SeenRun
    from backend.regression.series.state import Suspect


def of_run(
    kind: SeriesKind,
    run: SeenRun,
    smooth: Smooth,
    limits: Limits,
    *,
    runs: int,
    accepted: Change | None,
    suspect: Suspect | None,
    returning: int,
    events: tuple[ChangePoint, ...],
) -> Judgement:
    """The judgement of one run of a noisy series that has a baseline. `runs`: of its level, with this one."""
    model, x, offset, point = limits.model, run.x, run.offset, run.point
    verdict, reason, since, onset = _verdict(limits, x, point.position, accepted, suspect, returning)
    numbers = {
        **limits.numbers,
        "runs_of_level": float(runs),
        "worker_offset": math.expm1(offset) if offset else 0.0,
        **_more_numbers(limits, verdict, accepted, suspect),
    }
    away = x - limits.level
    values = limits.values(offset, kind.direction)
    smoothed, smoothed_low, smoothed_high = _smoothed(kind, smooth, model.scale, offset)
    return Judgement(
        position=point.position,
        commit=point.commit,
        verdict=verdict,
        reason=reason,
        policy_version=limits.policy_version,
        value=run.value,
        change=math.expm1(away),
        change_low=math.expm1(away - limits.half),
        change_high=math.expm1(away + limits.half),
        baseline=values.baseline,
        band_low=values.band_low,
        band_high=values.band_high,
        anchor=values.anchor,
        anchor_change=math.expm1(x - limits.anchor),
        smoothed=smoothed,
        smoothed_low=smoothed_low,
        smoothed_high=smoothed_high,
        noise=model.scale,
        minimum_detectable_effect=limits.shown,
        n_baseline=limits.n_baseline,
        red=verdict is Verdict.REGRESSION and kind.role is Role.GATE,
        onset=onset,
        since_position=since,
        numbers=numbers,
        events=events,
    )


def _more_numbers(
    limits: Limits, verdict: Verdict, accepted: Change | None, suspect: Suspect | None
) -> dict[str, float]:
    """What is said only of a series that is too unsteady, only of a suspect, and only of an accepted change."""
    sees = limits.sees if verdict is Verdict.UNSTEADY or limits.opened else None
    more = {} if sees is None else {"sees": sees}
    if suspect is not None:
        more["suspect_runs"] = float(suspect.runs)
    return more if accepted is None else {**more, "evidence": accepted.evidence, "step": math.expm1(accepted.size)}


def _verdict(
    limits: Limits, x: float, place: int, accepted: Change | None, suspect: Suspect | None, returning: int
) -> tuple[Verdict, Reason, int | None, bool]:
    """Verdict, reason, where it began, and whether this run is its onset."""
    if limits.opened and not (accepted is not None and accepted.past_threshold and accepted.size > 0):
        reason = Reason.RETURNING if returning else Reason.STILL_WORSE
        verdict = Verdict.UNCHANGED if returning else Verdict.REGRESSION
        return verdict, reason, limits.opened[0].onset, False
    if accepted is not None:
        verdict, reason = _accepted_verdict(accepted)
        return verdict, reason, None if accepted.fixed else accepted.onset, accepted.onset == place
    if suspect is not None:
        reason = Reason.OUTSIDE_BAND_ONCE if suspect.runs == 1 else Reason.AWAITING_RUNS
        return Verdict.SUSPECT, reason, suspect.onset, suspect.runs == 1
    reason = _quiet_reason(limits, x)
    if limits.sees is not None and reason is not Reason.IMPROVEMENT_PENDING:
        return Verdict.UNSTEADY, Reason.TOO_UNSTEADY, None, False
    return Verdict.UNCHANGED, reason, None, False


def _accepted_verdict(accepted: Change) -> tuple[Verdict, Reason]:
    if accepted.past_threshold and accepted.size > 0:
        return Verdict.REGRESSION, Reason.SUSTAINED_DRIFT if accepted.drift else Reason.SUSTAINED_STEP
    if accepted.fixed:
        return Verdict.UNCHANGED, Reason.RETURNED
    if accepted.past_threshold:
        return Verdict.IMPROVEMENT, Reason.SUSTAINED_IMPROVEMENT
    return Verdict.UNCHANGED, Reason.KNOWN_MODE if accepted.known else Reason.SMALL_CHANGE


def _quiet_reason(limits: Limits, x: float) -> Reason:
    away = x - limits.level
    if away < limits.low and -away > limits.least_change:
        return Reason.IMPROVEMENT_PENDING
    if away > limits.high or away < limits.low:
        return Reason.BELOW_THRESHOLD
    return Reason.WITHIN_BAND


def too_young(
    kind: SeriesKind,
    run: SeenRun,
    detector: Detector,
    smooth: Smooth,
    policy: Policy,
    events: tuple[ChangePoint, ...],
) -> Judgement:
    """A run of a level that has no baseline yet."""
    return Judgement(
        verdict=Verdict.INSUFFICIENT,
        reason=Reason.TOO_FEW_RUNS,
        n_baseline=len(detector.segment),
        needed_runs=max(1, detector.least(policy) - len(detector.segment)),
        events=events,
        **_common(run.point, run.value, _smoothed(kind, smooth, detector.assumed_noise, run.offset), policy),
    )


def _common(
    point: PointLike, value: float, smoothed_within: tuple[float, float, float], policy: Policy
) -> dict[str, Any]:
    smoothed, low, high = smoothed_within
    return {
        "position": point.position,
        "commit": point.commit,
        "policy_version": policy.version,
        "value": value,
        "smoothed": smoothed,
        "smoothed_low": low,
        "smoothed_high": high,
    }


def _smoothed(kind: SeriesKind, smooth: Smooth, noise: float, offset: float) -> tuple[float, float, float]:
    """The smoothed value and the ends of its band."""
    half, centre = smooth.half_width(noise), smooth.level + offset
    if kind.direction is Direction.LOWER:
        return math.exp(centre), math.exp(centre - half), math.exp(centre + half)
    return math.exp(-centre), math.exp(-centre - half), math.exp(half - centre)


def calibrating(
    kind: SeriesKind,
    point: PointLike,
    value: float,
    detector: Detector,
    smooth: Smooth,
    workers: tuple[WorkerOffset, ...],
    policy: Policy,
) -> Judgement:
    """A run of a worker that is still being calibrated: shown, not judged."""
    worker = find(workers, point.worker)
    done = policy.calibration_runs if worker is None or worker.ready else len(worker.residuals)
    return Judgement(
        verdict=Verdict.INSUFFICIENT,
        reason=Reason.CALIBRATING_WORKER,
        n_baseline=len(detector.segment),
        needed_runs=max(0, policy.calibration_runs - done),
        **_common(point, value, _smoothed(kind, smooth, 0.0, 0.0), policy),
    )


# ---- events


def events_with(change: Change, suspect: Suspect | None, direction: Direction) -> tuple[ChangePoint, ...]:
    """The change points that an accepted change ended and began, and where its suspect was thought to begin."""
    moved = change.past_threshold and change.size > 0 and suspect is not None and suspect.onset != change.onset
    if not moved or suspect is None:
        return events_of(change, direction)
    return _event(change, ChangeState.RELOCATED, direction, previous=suspect.onset), *events_of(change, direction)


def events_of(change: Change, direction: Direction) -> tuple[ChangePoint, ...]:
    """The change point that an accepted change ended, and the one it began."""
    ended = tuple(
        _ended(o, ChangeState.FIXED, change.detected, (change.first, change.onset), change.after, direction)
        for o in change.fixed
    )
    return (*ended, _event(change, ChangeState.CONFIRMED, direction))


def _event(change: Change, state: ChangeState, direction: Direction, previous: int | None = None) -> ChangePoint:
    return ChangePoint(
        kind=ChangeKind.DRIFT if change.drift else ChangeKind.STEP,
        direction=ChangeDirection.REGRESSION if change.size > 0 else ChangeDirection.IMPROVEMENT,
        state=state,
        onset_position=change.onset,
        last_good_position=change.last_good,
        range_start=change.first,
        range_end=change.last,
        magnitude=math.expm1(change.size),
        past_threshold=change.past_threshold,
        detected_position=change.detected,
        baseline=value_of(change.before, direction),
        level=value_of(change.after, direction),
        previous_onset_position=previous,
    )


def _ended(
    ended: Opened, state: ChangeState, detected: int, within: tuple[int, int], after: float, direction: Direction
) -> ChangePoint:
    return ChangePoint(
        kind=ChangeKind.DRIFT if ended.drift else ChangeKind.STEP,
        direction=ChangeDirection.REGRESSION,
        state=state,
        onset_position=ended.onset,
        last_good_position=ended.last_good,
        range_start=within[0],
        range_end=within[1],
        magnitude=math.expm1(ended.after - ended.before),
        past_threshold=True,
        detected_position=detected,
        baseline=value_of(ended.before, direction),
        level=value_of(after, direction),
    )


def withdrawn_event(ended: Opened, detected: int, direction: Direction) -> ChangePoint:
    """A confirmed regression that a session disproved."""
    return _ended(ended, ChangeState.WITHDRAWN, detected, (ended.onset, ended.onset), ended.after, direction)


def confirmed_event(change: Change, direction: Direction) -> ChangePoint:
    """The event of a change that a session proved."""
    return _event(change, ChangeState.CONFIRMED, direction)


def suspect_event(suspect: Suspect, state: ChangeState, detected: int, direction: Direction) -> ChangePoint:
    """A suspect appeared, or went away by itself."""
    return ChangePoint(
        kind=ChangeKind.STEP,
        direction=ChangeDirection.REGRESSION,
        state=state,
        onset_position=suspect.onset,
        last_good_position=suspect.last_good,
        range_start=suspect.onset,
        range_end=suspect.onset,
        magnitude=math.expm1(suspect.worst - suspect.baseline),
        past_threshold=True,
        detected_position=detected,
        baseline=value_of(suspect.baseline, direction),
        level=value_of(suspect.worst, direction),
    )


# ---- exact counters


def of_counter(
    kind: SeriesKind,
    point: PointLike,
    value: float,
    counter: Counter,
    change: ExactChange | None,
    policy: Policy,
) -> Judgement:
    """The judgement of one run of an exact counter."""
    base = counter.opened[0].before if counter.opened else (change.before if change is not None else counter.value)
    assert base is not None
    verdict, reason, since = _counter_verdict(counter, change, policy)
    anchor = counter.anchor if counter.anchor is not None else base
    enough = verdict is not Verdict.INSUFFICIENT
    return Judgement(
        position=point.position,
        commit=point.commit,
        verdict=verdict,
        reason=reason,
        policy_version=policy.version,
        value=value,
        change=exact_change(base, value, kind.direction) if enough else None,
        change_low=exact_change(base, value, kind.direction) if enough else None,
        change_high=exact_change(base, value, kind.direction) if enough else None,
        baseline=base if enough else None,
        band_low=base if enough else None,
        band_high=base if enough else None,
        anchor=anchor if enough else None,
        anchor_change=exact_change(anchor, value, kind.direction) if enough else None,
        smoothed=value,
        smoothed_low=value,
        smoothed_high=value,
        noise=0.0 if enough else None,
        minimum_detectable_effect=policy.exact_min_change if enough else None,
        n_baseline=counter.held,
        needed_runs=0 if enough else max(1, policy.exact_baseline_runs - counter.held),
        red=verdict is Verdict.REGRESSION and kind.role is Role.GATE,
        onset=change is not None and enough and verdict is not Verdict.UNCHANGED,
        since_position=since,
        numbers={"exact_min_change": policy.exact_min_change, "runs_of_value": float(counter.held)},
        events=_counter_events(change, kind.direction),
    )


def _counter_verdict(
    counter: Counter, change: ExactChange | None, policy: Policy
) -> tuple[Verdict, Reason, int | None]:
    if counter.opened:
        new = change is not None and change.past_threshold and change.change > 0
        return Verdict.REGRESSION, Reason.EXACT_CHANGED if new else Reason.STILL_WORSE, counter.opened[0].onset
    young = not counter.settled(policy) and not counter.earlier if change is None else not change.judged
    if young:
        return Verdict.INSUFFICIENT, Reason.TOO_FEW_RUNS, None
    if change is None:
        return Verdict.UNCHANGED, Reason.EXACT_SAME, None
    if change.past_threshold and not change.fixed:
        return Verdict.IMPROVEMENT, Reason.EXACT_IMPROVED, change.onset
    reason = Reason.KNOWN_MODE if change.known else Reason.EXACT_BELOW_THRESHOLD
    return Verdict.UNCHANGED, Reason.RETURNED if change.fixed else reason, None


def _counter_events(change: ExactChange | None, direction: Direction) -> tuple[ChangePoint, ...]:
    if change is None or not change.judged:
        return ()

    def event(
        state: ChangeState, onset: int, last_good: int | None, base: float, level: float, past_threshold: bool
    ) -> ChangePoint:
        size = exact_change(base, level, direction)
        return ChangePoint(
            kind=ChangeKind.STEP,
            direction=ChangeDirection.REGRESSION if size > 0 else ChangeDirection.IMPROVEMENT,
            state=state,
            onset_position=onset,
            last_good_position=last_good,
            range_start=change.onset,
            range_end=change.onset,
            magnitude=size,
            past_threshold=past_threshold,
            detected_position=change.onset,
            baseline=base,
            level=level,
        )

    fixed = tuple(event(ChangeState.FIXED, o.onset, o.last_good, o.before, o.after, True) for o in change.fixed)
    own = event(
        ChangeState.CONFIRMED, change.onset, change.last_good, change.before, change.after, change.past_threshold
    )
    return (*fixed, own)
