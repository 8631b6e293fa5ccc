"""The judge: what is to be said of one new point of a series, and what to remember for the next.

`judge` is a pure function of the stored state, the point and the policy; a history judged at once is the same as one
judged point by point, because it is judged point by point.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from backend.regression.cost import log_cost, typical
from backend.regression.detector.codec import pack_detector, unpack_detector
from backend.regression.detector.density import middle
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Change
from backend.regression.detector.smoothing import Smooth, restart
from backend.regression.detector.watch import feed_quiet
from backend.regression.detector.workers import WorkerOffset, after_change, calibrate, find, put, relearn, seldom_return
from backend.regression.policy import Policy
from backend.regression.series import verdicts
from backend.regression.series.exact import Counter, ExactOpened, exact_change
from backend.regression.terms import ChangePoint, ChangeState, Direction, Judgement, Point, Role, SeriesKind

STATE_VERSION = 1
REPLICATED_RUNS = 2
"""From so many runs of several processes on, the spread between processes is known."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Newest runs that look worse, not yet sustained."""

    onset: int
    last_good: int
    runs: int
    baseline: float
    """Log cost before it."""
    worst: float


@dataclass(frozen=True, slots=True)
class OpenRegression:
    """A confirmed regression of a series that has not ended."""

    onset_position: int
    last_good_position: int | None
    magnitude: float


@dataclass(frozen=True, slots=True)
class Record:
    """The detector's own record in this series."""

    confirmed: int = 0
    withdrawn: int = 0
    fixed: int = 0
    improvements: int = 0
    disproved: int = 0
    """Confirmed regressions that a session or a person found to be none: false alarms."""


@dataclass(frozen=True, slots=True, eq=False)
class SeriesState:
    """Everything the judge remembers of one series: a few kB."""

    kind: SeriesKind
    last_position: int = -1
    points: int = 0
    detector: Detector = field(default_factory=Detector)
    counter: Counter = field(default_factory=Counter)
    suspect: Suspect | None = None
    returning: int = 0
    """Runs in a row that look as before an open regression."""
    disproved: tuple[int, ...] = ()
    """Onsets that sessions showed not to be the code's doing."""
    smooth: Smooth = field(default_factory=Smooth)
    within: float = 0.0
    """Usual relative standard deviation between processes of one run."""
    within_runs: int = 0
    workers: tuple[WorkerOffset, ...] = ()
    record: Record = field(default_factory=Record)

    @classmethod
    def new(cls, kind: SeriesKind) -> SeriesState:
        """The state of a series without points."""
        return cls(kind)

    @property
    def open_regressions(self) -> tuple[OpenRegression, ...]:
        """Confirmed and not ended, oldest first."""
        if self.kind.exact:
            return tuple(
                OpenRegression(o.onset, o.last_good, exact_change(o.before, o.after, self.kind.direction))
                for o in self.counter.opened
            )
        return tuple(OpenRegression(o.onset, o.last_good, math.expm1(o.after - o.before)) for o in self.detector.opened)

    def to_json(self) -> dict[str, Any]:
        """JSON-safe values that `from_json` reads."""
        c, s = self.counter, self.suspect
        return {
            "version": STATE_VERSION,
            "kind": [self.kind.direction.value, self.kind.role.value, self.kind.exact],
            "last_position": self.last_position,
            "points": self.points,
            "detector": None if self.kind.exact else pack_detector(self.detector),
            "counter": [
                c.value,
                c.held,
                c.last,
                c.anchor,
                list(c.earlier),
                [[o.onset, o.last_good, o.before, o.after] for o in c.opened],
            ],
            "suspect": None if s is None else [s.onset, s.last_good, s.runs, s.baseline, s.worst],
            "returning": self.returning,
            "disproved": list(self.disproved),
            "smooth": [self.smooth.level, self.smooth.runs],
            "within": [self.within, self.within_runs],
            "workers": [[w.name, w.offset, list(w.residuals), w.ready] for w in self.workers],
            "record": [
                self.record.confirmed,
                self.record.withdrawn,
                self.record.fixed,
                self.record.improvements,
                self.record.disproved,
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SeriesState:
        """The state that `to_json` wrote."""
        if data.get("version") != STATE_VERSION:
            raise ValueError(
                f"series state of version {data.get('version')!r}; {STATE_VERSION} is read, re-judge the series"
            )
        c, s = data["counter"], data["suspect"]
        return cls(
            kind=SeriesKind(Direction(data["kind"][0]), Role(data["kind"][1]), data["kind"][2]),
            last_position=data["last_position"],
            points=data["points"],
            detector=Detector() if data["detector"] is None else unpack_detector(data["detector"]),
            counter=Counter(c[0], c[1], c[2], c[3], tuple(c[4]), tuple(ExactOpened(*o) for o in c[5])),
            suspect=None if s is None else Suspect(*s),
            returning=data["returning"],
            disproved=tuple(data["disproved"]),
            smooth=Smooth(*data["smooth"]),
            within=data["within"][0],
            within_runs=data["within"][1],
            workers=tuple(WorkerOffset(w[0], w[1], tuple(w[2]), w[3]) for w in data["workers"]),
            record=Record(*data["record"]),
        )


def judge(state: SeriesState, point: Point, policy: Policy) -> tuple[Judgement, SeriesState]:
    """Judge one new point; the state returned is the one to store."""
    _check(state, point)
    if state.kind.exact:
        return _judge_exact(state, point, policy)
    return _judge_noisy(state, point, policy)


def judge_many(items: Sequence[tuple[SeriesState, Point, Policy]]) -> list[tuple[Judgement, SeriesState]]:
    """Judge one new point of each of many series: exactly what `judge` says of each, in a fraction of the time.

    Nearly every run is one that nobody would look at twice; those are watched together, as columns of numbers.
    """
    judged: list[tuple[Judgement, SeriesState] | None] = []
    entered: list[tuple[int, _Entered]] = []
    for number, (state, point, policy) in enumerate(items):
        _check(state, point)
        if state.kind.exact:
            judged.append(_judge_exact(state, point, policy))
            continue
        found = _enter(state, point, policy)
        if isinstance(found, _Entered):
            entered.append((number, found))
            judged.append(None)
        else:
            judged.append(found)
    quiet = feed_quiet([(e.detector, e.x, e.point.position, e.policy) for _, e in entered])
    for (number, run), was_quiet in zip(entered, quiet, strict=True):
        change: Change | None = None
        if not was_quiet:
            changes = run.detector.feed(np.array([run.x]), np.array([run.point.position]), run.policy)
            change = changes[-1] if changes else None
        judged[number] = _conclude(run, change)
    return [found for found in judged if found is not None]


def _check(state: SeriesState, point: Point) -> None:
    if point.position <= state.last_position:
        raise ValueError(
            f"position {point.position} is not after {state.last_position}: re-judge the series with judge_history"
        )
    if not point.values:
        raise ValueError(f"point at position {point.position} has no values")


def judge_history(
    points: Iterable[Point], kind: SeriesKind, policy: Policy, state: SeriesState | None = None
) -> tuple[list[Judgement], SeriesState]:
    """Judge points in order, from a state or from nothing: how a series is re-judged when a point arrived late."""
    state = state or SeriesState.new(kind)
    judged = []
    for point in points:
        judgement, state = judge(state, point, policy)
        judged.append(judgement)
    return judged, state


def judge_all(points: Iterable[Point], kind: SeriesKind, policy: Policy) -> list[Judgement]:
    """Every judgement of a history."""
    return judge_history(points, kind, policy)[0]


# ---- exact counters


def _judge_exact(state: SeriesState, point: Point, policy: Policy) -> tuple[Judgement, SeriesState]:
    value = statistics.median_low(point.values)
    before = state.counter
    counter, change = before.take(value, point.position, state.kind.direction, policy)
    judgement = verdicts.of_counter(state.kind, point, value, before, counter, change, policy)
    record = state.record
    if change is not None:
        record = replace(
            record,
            confirmed=record.confirmed + (change.told and change.change > 0),
            fixed=record.fixed + len(change.fixed),
            improvements=record.improvements + (change.told and change.change < 0),
        )
    return judgement, _advance(state, point, counter=counter, record=record)


# ---- noisy series


@dataclass(slots=True, eq=False)
class _Entered:
    """A run of a noisy series on its way to the detector: what is known of it before that has seen it."""

    state: SeriesState
    point: Point
    policy: Policy
    value: float
    x: float
    offset: float
    detector: Detector
    """A snapshot, to be fed."""
    within: float
    within_runs: int
    workers: tuple[WorkerOffset, ...]


def _judge_noisy(state: SeriesState, point: Point, policy: Policy) -> tuple[Judgement, SeriesState]:
    entered = _enter(state, point, policy)
    if not isinstance(entered, _Entered):
        return entered
    changes = entered.detector.feed(np.array([entered.x]), np.array([point.position]), entered.policy)
    return _conclude(entered, changes[-1] if changes else None)


def _enter(state: SeriesState, point: Point, policy: Policy) -> _Entered | tuple[Judgement, SeriesState]:
    """The run as the detector is to see it; or already judged, while its worker is being calibrated."""
    policy = policy.after_false_alarms(state.record.disproved)
    direction = state.kind.direction
    raw = [log_cost(v, direction) for v in point.values]
    value = _median(point.values)
    within, within_runs = learn_within(state.within, state.within_runs, raw)
    x = typical(raw)
    workers, offset, ready = _offset(state, point.worker, x, policy)
    if not ready:
        judgement = verdicts.calibrating(state.kind, point, value, state.detector, state.smooth, workers, policy)
        return judgement, _advance(state, point, workers=workers)
    detector = state.detector.snapshot()
    detector.replicated = within_runs >= REPLICATED_RUNS
    detector.assumed_noise = assumed_noise(within, within_runs, len(raw), policy)
    return _Entered(
        state=state,
        point=point,
        policy=policy,
        value=value,
        x=float(np.float32(x - offset)),
        offset=offset,
        detector=detector,
        within=within,
        within_runs=within_runs,
        workers=workers,
    )


def _conclude(entered: _Entered, accepted: Change | None) -> tuple[Judgement, SeriesState]:
    """What is said of the run, now that the detector has seen it."""
    state, point, policy, x = entered.state, entered.point, entered.policy, entered.x
    before, detector = state.detector, entered.detector
    if accepted is not None and _was_disproved(accepted, state.disproved):
        detector.forget(accepted.onset)
        accepted = replace(accepted, told=False)
    noise = detector.model.scale if detector.model else max(detector.assumed_noise, 1e-6)
    if accepted is not None or len(detector.segment) <= 1:
        smooth = restart(detector.segment[-12:], noise)
    else:
        smooth = state.smooth.take(x, noise)
    suspect, suspect_events = _suspect(state, x, point, before, accepted, policy)
    returning = _returning(state, x, detector)
    judgement = verdicts.of_run(
        verdicts.Facts(
            kind=state.kind,
            point=point,
            value=entered.value,
            x=x,
            offset=entered.offset,
            detector=detector,
            accepted=accepted,
            suspect_onset=None if suspect is None else suspect.onset,
            suspect_runs=0 if suspect is None else suspect.runs,
            earlier_suspect=None if state.suspect is None else state.suspect.onset,
            returning=returning,
            smooth=smooth,
            events=suspect_events,
            policy=policy,
        )
    )
    after = SeriesState(
        kind=state.kind,
        last_position=point.position,
        points=state.points + 1,
        detector=detector,
        counter=state.counter,
        suspect=suspect,
        returning=returning,
        disproved=state.disproved,
        smooth=smooth,
        within=entered.within,
        within_runs=entered.within_runs,
        workers=_relearnt(entered, accepted),
        record=_keep_record(state.record, judgement.events) if judgement.events else state.record,
    )
    return judgement, after


def _advance(state: SeriesState, point: Point, **changed: Any) -> SeriesState:
    return replace(state, last_position=point.position, points=state.points + 1, **changed)


def _median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def learn_within(within: float, runs: int, raw: Sequence[float]) -> tuple[float, int]:
    """The usual spread between processes, which stands in for the noise while the series is young."""
    n = len(raw)
    if n < 2:
        return within, runs
    mean = sum(raw) / n
    variance = sum([(v - mean) ** 2 for v in raw]) / (n - 1)
    runs = min(runs + 1, 50)
    return math.sqrt(within**2 + (variance - within**2) / runs), runs


def assumed_noise(within: float, runs: int, processes: int, policy: Policy) -> float:
    """The noise between runs that is assumed until the series shows its own."""
    if runs < REPLICATED_RUNS:
        return policy.prior_noise
    return math.sqrt(within**2 / processes + (0.5 * policy.prior_noise) ** 2)


def _offset(state: SeriesState, name: str, x: float, policy: Policy) -> tuple[tuple[WorkerOffset, ...], float, bool]:
    """The offset of this worker, and whether it has been learnt."""
    worker = find(state.workers, name)
    if worker is None and not state.workers:
        worker = WorkerOffset(name, ready=True)
        return put(state.workers, worker), worker.offset, True
    if worker is None and seldom_return(state.workers):
        return state.workers, 0.0, True
    worker = worker or WorkerOffset(name)
    if worker.ready:
        return state.workers, worker.offset, True
    detector = state.detector
    level = middle(detector.segment) if detector.model is None else detector.model.level
    return put(state.workers, calibrate(worker, x - level, policy.calibration_runs)), 0.0, False


def _relearnt(entered: _Entered, accepted: Change | None) -> tuple[WorkerOffset, ...]:
    """The workers' offsets after this run."""
    model = entered.detector.model
    if accepted is not None:
        return after_change(entered.workers)
    if len(entered.workers) < 2 or model is None:
        return entered.workers
    return relearn(entered.workers, entered.point.worker, entered.x - model.level)


def _was_disproved(change: Change, disproved: tuple[int, ...]) -> bool:
    return change.size > 0 and any(change.first - 2 <= onset <= change.last + 2 for onset in disproved)


def _suspect(
    state: SeriesState,
    x: float,
    point: Point,
    before: Detector,
    accepted: Change | None,
    policy: Policy,
) -> tuple[Suspect | None, tuple[ChangePoint, ...]]:
    """Follow the newest runs while they look worse; the events this run adds to the suspect's story."""
    old = state.suspect
    model = before.model
    if accepted is not None:
        proved = accepted.told and accepted.size > 0
        return _end_suspect(None if proved else old, point, state)
    if model is None or not before.settled(policy):
        return _end_suspect(old, point, state)
    level = model.level if old is None else old.baseline
    worse = x - level > max(math.log1p(policy.min_change), model.band(policy.alpha)[1])
    if old is None:
        if not worse or any(abs(point.position - onset) <= 2 for onset in state.disproved):
            return None, ()
        new = Suspect(point.position, int(before.places[-1]), 1, level, x)
        return new, (verdicts.suspect_event(new, ChangeState.SUSPECT, point.position, state.kind.direction),)
    undecided = x - level > 0.5 * (old.worst - level) and old.runs < 4 * policy.sustained_runs
    if worse or undecided:
        return replace(old, runs=old.runs + 1, worst=max(old.worst, x)), ()
    return _end_suspect(old, point, state)


def _end_suspect(
    old: Suspect | None, point: Point, state: SeriesState
) -> tuple[Suspect | None, tuple[ChangePoint, ...]]:
    """No suspect any more; one that nothing proved is withdrawn."""
    if old is None:
        return None, ()
    return None, (verdicts.suspect_event(old, ChangeState.WITHDRAWN, point.position, state.kind.direction),)


def _returning(state: SeriesState, x: float, detector: Detector) -> int:
    """How many runs in a row look as before the open regression, while it has not been closed."""
    if not detector.opened or detector.model is None:
        return 0
    last = detector.opened[-1]
    gap = detector.model.level - last.before
    back = gap > 4 * detector.model.scale and x - last.before < 0.4 * gap
    return state.returning + 1 if back else 0


def _keep_record(record: Record, events: Sequence[ChangePoint]) -> Record:
    for event in events:
        told = event.past_gate
        if event.state is ChangeState.CONFIRMED and told:
            if event.magnitude > 0:
                record = replace(record, confirmed=record.confirmed + 1)
            else:
                record = replace(record, improvements=record.improvements + 1)
        elif event.state is ChangeState.WITHDRAWN:
            record = replace(record, withdrawn=record.withdrawn + 1)
        elif event.state is ChangeState.FIXED:
            record = replace(record, fixed=record.fixed + 1)
    return record
