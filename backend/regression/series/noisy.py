"""One noisy series on its way through its points: entered as log cost, seen by its detector, and judged.

What a detector says of nearly every run is nothing; such runs are watched together with those of other series
(`backend/regression/detector/watch.py`), so a series offers the runs that it expects to be quiet, takes those that
were, and steps over the one that was not by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.regression.detector.density import middle
from backend.regression.detector.memory import Change
from backend.regression.detector.smoothing import restart
from backend.regression.detector.watch import Watched, runs_until_refit
from backend.regression.detector.workers import (
    RELEARN_RUNS,
    WorkerOffset,
    after_change,
    calibrate,
    find,
    put,
    relearn,
    seldom_return,
)
from backend.regression.policy import Policy
from backend.regression.series import verdicts
from backend.regression.series.limits import Limits, limits_of
from backend.regression.series.run_numbers import RunNumbers
from backend.regression.series.state import Record, SeriesState, Suspect
from backend.regression.series.suspects import followed, is_near_any, runs_returning
from backend.regression.terms import ChangePoint, ChangeState, Judgement, PointLike

REPLICATED_RUNS = 2
"""From so many runs of several processes on, the spread between processes is known."""


@dataclass(slots=True, eq=False)
class SeenRun:
    """A point as the detector is to see it."""

    point: PointLike
    value: float
    x: float
    """Log cost without the worker's offset."""
    offset: float
    within: float
    within_runs: int


class NoisySeries:
    """Judges the points of one series in order; the state that it was made from is left as it is."""

    def __init__(self, state: SeriesState, points: Sequence[PointLike], numbers: RunNumbers, policy: Policy) -> None:
        self.judgements: list[Judgement] = []
        self._kind = state.kind
        self._policy = policy.after_false_alarms(state.record.disproved)
        self._points = points
        self._values, self._costs, self._stored = numbers.medians, numbers.costs, numbers.stored
        self._processes, self._variances = numbers.processes, numbers.variances
        self._at = 0
        self._ahead: list[SeenRun] = []
        """Runs that are entered, but not judged: those of the points from `_at` on."""
        self._offsets: dict[str, float] = {}
        """Of workers of which this series learns nothing at present."""
        self._last_position, self._count = state.last_position, state.points
        self._detector = state.detector.snapshot()
        self._counter, self._disproved = state.counter, state.disproved
        self._suspect, self._returning, self._smooth = state.suspect, state.returning, state.smooth
        self._within, self._within_runs = state.within, state.within_runs
        self._workers, self._record, self._limits = state.workers, state.record, state.limits

    @property
    def is_through(self) -> bool:
        return self._at == len(self._points)

    def state(self) -> SeriesState:
        """The state to store after the points judged so far."""
        return SeriesState(
            kind=self._kind,
            last_position=self._last_position,
            points=self._count,
            detector=self._detector,
            counter=self._counter,
            suspect=self._suspect,
            returning=self._returning,
            disproved=self._disproved,
            smooth=self._smooth,
            within=self._within,
            within_runs=self._within_runs,
            workers=self._workers,
            record=self._record,
            limits=self._limits,
        )

    # ---- quiet runs, watched with those of other series

    def offer(self) -> Watched | None:
        """The next runs that the detector may only watch; none, where the next point must be stepped over."""
        most = min(runs_until_refit(self._detector, self._policy), len(self._points) - self._at)
        self._enter_up_to(most)
        ahead = self._ahead[: max(most, 0)]
        if not ahead:
            return None
        x, places = np.array([run.x for run in ahead]), np.array([run.point.position for run in ahead])
        return self._detector, x, places, self._policy

    def take(self, quiet: int) -> None:
        """Judge the first of the runs offered, which were quiet: the detector has moved on over them."""
        if quiet == 0:
            return
        detector, limits = self._detector, self._known_limits()
        assert limits is not None
        runs, self._ahead = self._ahead[:quiet], self._ahead[quiet:]
        self._note_spread(runs[-1])
        before = len(detector.segment) - quiet
        last_good = int(detector.places[before - 1])
        for number, run in enumerate(runs, before + 1):
            self._conclude(run, None, runs=number, limits=limits, before=limits, last_good=last_good)
            last_good = run.point.position

    # ---- any run

    def step(self) -> None:
        """Judge the next point by itself."""
        point = self._points[self._at]
        run = self._ahead.pop(0) if self._ahead else self._enter()
        if run is None:
            return
        detector = self._detector
        before = self._known_limits() if detector.settled(self._policy) else None
        last_good = int(detector.places[-1]) if len(detector.places) else None
        self._note_spread(run)
        changes = detector.feed(np.array([run.x]), np.array([point.position]), self._policy)
        accepted = changes[-1] if changes else None
        if accepted is not None and _was_disproved(accepted, self._disproved):
            detector.forget(accepted.onset)
            accepted = replace(accepted, past_threshold=False)
        self._conclude(
            run, accepted, runs=len(detector.segment), limits=self._known_limits(), before=before, last_good=last_good
        )
        self._learn_offsets(run, accepted)

    def _note_spread(self, run: SeenRun) -> None:
        self._within, self._within_runs = run.within, run.within_runs
        self._detector.replicated = run.within_runs >= REPLICATED_RUNS
        self._detector.assumed_noise = assumed_noise(run.within, run.within_runs, len(run.point.values), self._policy)

    def _conclude(
        self,
        run: SeenRun,
        accepted: Change | None,
        *,
        runs: int,
        limits: Limits | None,
        before: Limits | None,
        last_good: int | None,
    ) -> None:
        """What is said of the run, now that the detector has seen it. `runs`: of its level, with this one. `limits`:
        as they are now, `before`: as they were, if there was a baseline."""
        detector, point, policy = self._detector, run.point, self._policy
        noise = limits.model.scale if limits is not None else max(detector.assumed_noise, 1e-6)
        if accepted is not None or runs <= 1:
            self._smooth = restart(detector.segment[-12:], noise)
        else:
            self._smooth = self._smooth.take(run.x, noise)
        earlier = self._suspect
        events = self._follow_suspect(run.x, point.position, before, last_good, accepted)
        self._returning = runs_returning(self._returning, run.x, limits)
        if accepted is not None:
            events = (*events, *verdicts.events_with(accepted, earlier, self._kind.direction))
        if limits is None or not (limits.opened or runs >= detector.least(policy)):
            judgement = verdicts.too_young(self._kind, run, detector, self._smooth, policy, events)
        else:
            judgement = verdicts.of_run(
                self._kind,
                run,
                self._smooth,
                limits,
                runs=runs,
                accepted=accepted,
                suspect=self._suspect,
                returning=self._returning,
                events=events,
            )
        if events:
            self._record = _keep_record(self._record, events)
        self._judged(judgement)

    def _judged(self, judgement: Judgement) -> None:
        self.judgements.append(judgement)
        self._last_position = judgement.position
        self._count += 1
        self._at += 1

    def _known_limits(self) -> Limits | None:
        detector = self._detector
        if detector.model is None:
            return None
        if self._limits is None or not self._limits.hold(detector, self._policy):
            self._limits = limits_of(detector.model, detector, self._policy)
        return self._limits

    # ---- entering

    def _enter(self) -> SeenRun | None:
        """The next run as the detector is to see it; None where it is only shown, while its worker is being
        calibrated."""
        point = self._points[self._at]
        offset = self._settled_offset(point.worker)
        if offset is not None:
            return self._entered(offset)
        worker = find(self._workers, point.worker)
        if worker is None and not self._workers:
            worker = WorkerOffset(point.worker, ready=True)
            self._workers = (worker,)
        if worker is not None and worker.ready:
            return self._entered(worker.offset)
        check_order(point, self._last_position)
        self._calibrate(worker or WorkerOffset(point.worker), point)
        return None

    def _entered(self, offset: float) -> SeenRun:
        """The next run, of which none is entered yet, without this offset of its worker."""
        number, point = self._at, self._points[self._at]
        check_order(point, self._last_position)
        within, runs = self._within, self._within_runs
        if self._processes[number] > 1:
            within, runs = with_variance(within, runs, self._variances[number])
        return SeenRun(point, self._values[number], self._seen(number, offset), offset, within, runs)

    def _enter_up_to(self, most: int) -> None:
        """Enter more of the next runs until there are so many, or one is of a worker that has no settled offset."""
        ahead, points = self._ahead, self._points
        if ahead:
            last = ahead[-1]
            position, within, runs = last.point.position, last.within, last.within_runs
        else:
            position, within, runs = self._last_position, self._within, self._within_runs
        worker, offset = None, None
        for number in range(self._at + len(ahead), self._at + most):
            point = points[number]
            if point.worker != worker:
                worker = point.worker
                offset = self._settled_offset(worker)
            if offset is None:
                return
            if point.position <= position:
                check_order(point, position)
            position = point.position
            if self._processes[number] > 1:
                within, runs = with_variance(within, runs, self._variances[number])
            x = self._stored[number] if offset == 0.0 else self._seen(number, offset)
            ahead.append(SeenRun(point, self._values[number], x, offset, within, runs))

    def _seen(self, number: int, offset: float) -> float:
        """The log cost of a run without this offset, as it is stored."""
        return float(np.float32(self._costs[number] - offset)) if offset else self._stored[number]

    def _settled_offset(self, name: str) -> float | None:
        """The offset of a worker of which this series learns nothing at present; None: it may."""
        found = self._offsets.get(name)
        if found is None:
            worker = find(self._workers, name)
            if worker is None:
                return 0.0 if self._workers and seldom_return(self._workers) else None
            if not worker.ready or (len(self._workers) > 1 and len(worker.residuals) < RELEARN_RUNS):
                return None
            found = self._offsets[name] = worker.offset
        return found

    def _calibrate(self, worker: WorkerOffset, point: PointLike) -> None:
        detector = self._detector
        level = middle(detector.segment) if detector.model is None else detector.model.level
        away, value = self._costs[self._at] - level, self._values[self._at]
        self._workers = put(self._workers, calibrate(worker, away, self._policy.calibration_runs))
        self._offsets = {}
        self._judged(
            verdicts.calibrating(self._kind, point, value, detector, self._smooth, self._workers, self._policy)
        )

    def _learn_offsets(self, run: SeenRun, accepted: Change | None) -> None:
        """Learn the workers' offsets from a run that was stepped over; runs entered ahead may have others now."""
        model = self._detector.model
        if accepted is not None:
            self._workers = after_change(self._workers)
        elif len(self._workers) > 1 and model is not None:
            self._workers = relearn(self._workers, run.point.worker, run.x - model.level)
        if len(self._workers) > 1:
            self._offsets, self._ahead = {}, []

    # ---- suspects, and the end of a regression

    def _follow_suspect(
        self, x: float, place: int, before: Limits | None, last_good: int | None, accepted: Change | None
    ) -> tuple[ChangePoint, ...]:
        """Follow the newest runs while they look worse; the events this run adds to the suspect's story."""
        old = self._suspect
        if accepted is not None:
            proved = accepted.past_threshold and accepted.size > 0
            return self._end_suspect(None if proved else old, place)
        if before is None:
            return self._end_suspect(old, place)
        if old is None and is_near_any(place, self._disproved):
            return ()
        assert last_good is not None
        new = followed(old, x, place, last_good, before, self._policy)
        if new is None:
            return self._end_suspect(old, place)
        self._suspect = new
        return () if old else (verdicts.suspect_event(new, ChangeState.SUSPECT, place, self._kind.direction),)

    def _end_suspect(self, old: Suspect | None, place: int) -> tuple[ChangePoint, ...]:
        """No suspect any more; one that nothing proved is withdrawn."""
        self._suspect = None
        if old is None:
            return ()
        return (verdicts.suspect_event(old, ChangeState.WITHDRAWN, place, self._kind.direction),)


def check_order(point: PointLike, last_position: int) -> None:
    """Raise ValueError where a point does not follow the last one."""
    if point.position <= last_position:
        raise ValueError(
            f"position {point.position} is not after {last_position}: re-judge the series with judge_history"
        )


def with_variance(within: float, runs: int, variance: float) -> tuple[float, int]:
    """The usual spread with one more run, whose processes have this variance; and of how many runs it is."""
    runs = runs + 1 if runs < 50 else 50
    square = within * within
    return math.sqrt(square + (variance - square) / runs), runs


def assumed_noise(within: float, runs: int, processes: int, policy: Policy) -> float:
    """The noise between runs that is assumed until the series shows its own."""
    if runs < REPLICATED_RUNS:
        return policy.prior_noise
    return math.sqrt(within * within / processes + (0.5 * policy.prior_noise) ** 2)


def _was_disproved(change: Change, disproved: tuple[int, ...]) -> bool:
    return change.size > 0 and any(change.first - 2 <= onset <= change.last + 2 for onset in disproved)


def _keep_record(record: Record, events: Sequence[ChangePoint]) -> Record:
    for event in events:
        if event.state is ChangeState.CONFIRMED and event.past_threshold:
            if event.magnitude > 0:
                record = replace(record, confirmed=record.confirmed + 1)
            else:
                record = replace(record, improvements=record.improvements + 1)
        elif event.state is ChangeState.WITHDRAWN:
            record = replace(record, withdrawn=record.withdrawn + 1)
        elif event.state is ChangeState.FIXED:
            record = replace(record, fixed=record.fixed + 1)
    return record
