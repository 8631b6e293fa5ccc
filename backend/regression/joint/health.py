"""The health of one worker, run by run: canaries, throttling, clocks, load, and how many series moved with them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from backend.regression.joint.terms import JointRun

CANARY_MOVED = 0.03
"""Log cost: a canary that moved less says nothing."""
CANARY_SIGMAS = 4.0
CANARY_FAR = 0.095
"""Further than a passing dip goes."""
SERIES_MOVED = 0.3
"""Share of the series a machine can move that are slower now, above what is usual lately."""
CLOCK_DROP = 0.96
BUSY_LOAD = 5.5
VERY_BUSY_LOAD = 8.0
ENOUGH = 2.0
"""Points of evidence in one run, or in two runs in a row, that make a machine the cause."""
CERTAIN = 1.5
"""Points of the signals alone, from which slower series confirm them; milder ones come by chance once in 100 runs."""
MILD_IN_A_ROW = 3
"""Runs with mild signals, as no chance brings them."""
KEPT = 30
FEWEST = 4
UNKNOWN_NOISE = 0.015


class Degraded(enum.StrEnum):
    SLOW = "slow"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class HealthSignals:
    """Health signals of one run's machine: points of evidence, and the same in words."""

    points: float
    kind: Degraded
    sentences: tuple[str, ...] = ()
    moved: float = 0.0
    """How far the canary that moved most did (log cost)."""
    slowed: bool = False
    """The series noticed too."""
    alone: float = 0.0
    """Points of the signals themselves: slower series may be the code's."""


class Diagnosis(enum.StrEnum):
    """The diagnosis from the health signals of a worker's newest runs."""

    NONE = "none"
    MACHINE = "machine"
    MACHINE_OR_CODE = "machine or code"
    """The signals are mild and the series are slower: only a session can decide what caused that."""


def diagnose(signals: Sequence[HealthSignals]) -> Diagnosis:
    """Weigh the signals of runs in a row, the newest last; each has a point at least."""
    newest, certain = signals[-1], any(seen.alone >= CERTAIN for seen in signals)
    if newest.alone >= ENOUGH or (newest.alone >= CERTAIN and newest.slowed):
        return Diagnosis.MACHINE
    if len(signals) >= MILD_IN_A_ROW or (len(signals) == 2 and certain):
        return Diagnosis.MACHINE
    if len(signals) == 2 and any(seen.slowed for seen in signals):
        return Diagnosis.MACHINE_OR_CODE
    return Diagnosis.NONE


@dataclass(slots=True)
class CanaryNoise:
    """How far each canary strays on healthy workers: learnt over all of them."""

    seen: dict[str, list[float]] = field(default_factory=dict)
    known: dict[str, float] = field(default_factory=dict)

    def of(self, name: str) -> float:
        return self.known.get(name, UNKNOWN_NOISE)

    def learn(self, name: str, moved: float) -> None:
        strayed = self.seen.setdefault(name, [])
        strayed.append(abs(moved))
        del strayed[:-200]
        if len(strayed) >= 10 and len(strayed) % 5 == 0:
            self.known[name] = max(0.002, 1.4826 * median(strayed))


@dataclass(slots=True)
class Health:
    """Usual readings of one worker."""

    noise: CanaryNoise
    canary: dict[str, list[float]] = field(default_factory=dict)
    clocks: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    slower: list[float] = field(default_factory=list)

    def usual(self, name: str) -> float | None:
        known = self.canary.get(name, [])
        return median(known) if len(known) >= FEWEST else None

    def new_environment(self, run: JointRun) -> None:
        """Software may move a canary a little: what it shows from now on is usual. A big move stays a symptom."""
        for name, value in run.canary.items():
            usual = self.usual(name)
            if usual is not None and abs(value - usual) < CANARY_FAR:
                moved = value - usual
                self.canary[name] = [old + moved for old in self.canary[name]][-3:] + [value] * 2

    def examine(self, run: JointRun, slower: float) -> HealthSignals:
        """HealthSignals of a run. `slower`: share of the series a machine can move that are slower than expected."""
        points, chance, sentences, kind, furthest = 0.0, 0.0, [], Degraded.SLOW, 0.0
        for name, value in run.canary.items():
            usual = self.usual(name)
            if usual is None:
                continue
            moved, noise = value - usual, self.noise.of(name)
            furthest = max(furthest, moved)
            if moved < max(CANARY_MOVED, CANARY_SIGMAS * noise):
                continue
            points = max(points, 2.0 if moved >= max(CANARY_FAR, 6 * noise) else 1.0)
            sentences.append(f"Canary {name} moved by {100 * moved:+.1f} % (its noise is {100 * noise:.1f} %).")
        if run.throttle:
            points += 1.5
            sentences.append(f"The accelerator was throttled: {', '.join(sorted(run.throttle))}.")
        elif run.clock_mhz is not None and self.clocks and run.clock_mhz < CLOCK_DROP * median(self.clocks):
            points += 1.5
            sentences.append(f"Its clock was {run.clock_mhz:.0f} MHz, usually {median(self.clocks):.0f} MHz.")
        usual_load = median(self.loads) if self.loads else 0.0
        if run.load is not None and self.loads and run.load > usual_load + BUSY_LOAD - 1.6:
            kind = Degraded.BUSY
            very = run.load > usual_load + VERY_BUSY_LOAD - 1.6
            points += 2.0 if very else 1.5
            chance += 0.0 if very else 0.5
            sentences.append(f"The load was {run.load:.1f}, usually {usual_load:.1f}.")
        if run.foreign_processes:
            points += 0.5
            sentences.append(f"{run.foreign_processes} foreign processes shared the accelerator.")
        alone = points - chance
        slowed = slower >= self.usually_slower() + SERIES_MOVED
        if points and slowed:
            points += 1.0
            sentences.append(f"{100 * slower:.0f} % of the series a machine can move were slower.")
        return HealthSignals(points, kind, tuple(sentences), furthest, slowed, alone)

    def usually_slower(self) -> float:
        """Share of the series that is slower in healthy runs: what changed is not always known yet."""
        return median(self.slower) if self.slower else 0.0

    def learn(self, run: JointRun, slower: float = 0.0) -> None:
        """A healthy run is one more example of what is usual."""
        self.slower.append(slower)
        del self.slower[:-FEWEST]
        for name, value in run.canary.items():
            usual = self.usual(name)
            if usual is not None:
                self.noise.learn(name, value - usual)
            known = self.canary.setdefault(name, [])
            known.append(value)
            del known[:-KEPT]
        for reading, readings in ((run.clock_mhz, self.clocks), (run.load, self.loads)):
            if reading is not None:
                readings.append(reading)
                del readings[:-KEPT]
