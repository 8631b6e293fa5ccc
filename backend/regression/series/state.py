"""The judge's state of one series between two of its points, and how it is stored."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from backend.records import record
from backend.regression.detector.codec import pack_detector, unpack_detector
from backend.regression.detector.detector import Detector
from backend.regression.detector.smoothing import Smooth
from backend.regression.detector.workers import WorkerOffset
from backend.regression.series.exact import Counter, ExactOpened, exact_change
from backend.regression.series.limits import Limits
from backend.regression.terms import Direction, Role, SeriesKind

STATE_VERSION = 1


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


@record(eq=False)
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
    """Onsets that sessions showed not to be caused by code."""
    smooth: Smooth = field(default_factory=Smooth)
    within: float = 0.0
    """Usual relative standard deviation between processes of one run."""
    within_runs: int = 0
    workers: tuple[WorkerOffset, ...] = ()
    record: Record = field(default_factory=Record)
    limits: Limits | None = None
    """Of the last run, to go on with while they hold; not stored."""

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
