"""Is it the machine? What the canaries, the environment and the neighbours say of a commit that looks slower.

The base is what the default branch measured last before the commit, on the same testbed. Nothing is decided here: a
person who reads "slower" wants to see what was held steady, and what was not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from backend.regression.cause.machines import NOT_COMPARED, TIME_SUFFIXES
from backend.services.reports.notices import Difference, differences

CLEAR = 4.0  # standard deviations of its own noise, from which a canary has moved
LEAST_NOISE = 0.0025


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryMove:
    """A fixed workload that no commit can change; `change` is of cost, against the base."""

    name: str
    change: float
    noise: float

    @property
    def moved(self) -> bool:
        return abs(self.change) > CLEAR * max(self.noise, LEAST_NOISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """None: nothing is known of it."""

    canaries: tuple[CanaryMove, ...] = ()
    environment: tuple[Difference, ...] | None = None
    throttle: tuple[str, ...] = ()
    unmoved: int = 0
    """Other judged series of the same runs that did not move."""
    moved: int = 0

    @property
    def is_steady(self) -> bool:
        """Whether all that is known says that it is not the machine; with nothing known it is not."""
        known = bool(self.canaries) or self.environment is not None
        return known and not (any(it.moved for it in self.canaries) or self.environment or self.throttle)


def steadiness(
    base: Sequence[Mapping[str, Any]], head: Sequence[Mapping[str, Any]], *, unmoved: int, moved: int
) -> Steadiness:
    """Compare machine and environment of both sides from their run documents (`tidemark.run/1`), newest first."""
    return Steadiness(
        canaries=tuple(_canaries(base, head)),
        environment=_environment(base, head),
        throttle=tuple(sorted(_throttle(head) - _throttle(base))),
        unmoved=unmoved,
        moved=moved,
    )


def _canaries(base: Sequence[Mapping[str, Any]], head: Sequence[Mapping[str, Any]]) -> list[CanaryMove]:
    """Each canary of the head against the same worker's on the base; within the run where the base has none."""
    moves = []
    for name in sorted({str(reading["name"]) for run in head for reading in run.get("canary") or ()}):
        readings = [
            (run.get("worker"), reading)
            for run in head
            for reading in run.get("canary") or ()
            if reading["name"] == name and _level(reading) is not None
        ]
        if not readings:
            continue
        workers = {worker for worker, _ in readings}
        usual = [
            level
            for run in base
            if run.get("worker") in workers
            for reading in run.get("canary") or ()
            if reading["name"] == name and (level := _level(reading)) is not None
        ]
        noise = max(float(reading.get("own_noise") or 0.0) for _, reading in readings)
        if usual:
            ratio = median(_level(reading) or 0.0 for _, reading in readings) / median(usual)
            noise = max(noise, 1.4826 * median(abs(value / median(usual) - 1) for value in usual))
        else:
            ratio = median(_drift(reading) for _, reading in readings)
        change = ratio - 1 if name.endswith(TIME_SUFFIXES) else 1 / ratio - 1
        moves.append(CanaryMove(name=name, change=change, noise=noise))
    return moves


def _level(reading: Mapping[str, Any]) -> float | None:
    told = [float(reading[side]) for side in ("before", "after") if (reading.get(side) or 0) > 0]
    return sum(told) / len(told) if told else None


def _drift(reading: Mapping[str, Any]) -> float:
    before, after = reading.get("before") or 0.0, reading.get("after") or 0.0
    return float(after / before) if before > 0 and after > 0 else 1.0


def _environment(base: Sequence[Mapping[str, Any]], head: Sequence[Mapping[str, Any]]) -> tuple[Difference, ...] | None:
    """Environment differences, where both sides state theirs; of the same worker's runs where there are some."""
    told = [run for run in head if run.get("environment")]
    if not told:
        return None
    known = [run for run in base if run.get("environment")]
    same = [run for run in known if run.get("worker") == told[0].get("worker")] or known
    if not same:
        return None
    before, after = (
        {name: value for name, value in run["environment"].items() if name not in NOT_COMPARED}
        for run in (same[0], told[0])
    )
    return differences(before, after)


def _throttle(runs: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    reasons = [(run.get("telemetry") or {}).get("throttle") for run in runs]
    return frozenset(str(reason) for told in reasons if isinstance(told, list) for reason in told)
