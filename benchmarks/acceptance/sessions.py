"""Interleaved sessions of one code against itself: honest ones must raise nothing, slowed ones must be found.

A session is ABBA in fresh processes; its change is the quotient of the arms' medians less one. Whether a change counts
is told by how much honest sessions differ: the spread of the other ones, and a chance of one in a thousand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

from benchmarks import measurements, registry
from benchmarks.acceptance.plan import Sessions
from benchmarks.experiments import environment_of, job_of
from benchmarks.interleave import abba
from benchmarks.launch import Launcher
from benchmarks.registry import Selected
from benchmarks.spec import Preset, Status
from benchmarks.summary import ALPHA


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session as it was measured: process values of both arms in the order they ran."""

    slow_down: float
    base: tuple[float, ...]
    head: tuple[float, ...]
    metric: str

    @property
    def change(self) -> float:
        """Head over base, less one."""
        return median(self.head) / median(self.base) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What all sessions together say."""

    honest: int
    raised: int
    slowed: int
    found: int
    spread: float | None
    """Of the changes of honest sessions around zero, as a fraction."""


def student(degrees: int, chance: float) -> float:
    """The quantile that a t-distributed value exceeds on either side with this chance; a series in 1/degrees."""
    z = NormalDist().inv_cdf(1 - chance / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def raises(change: float, others: Sequence[float]) -> bool:
    """Whether a change is further from zero than these honest changes allow by chance."""
    if len(others) < 2:
        return False
    spread = math.sqrt(sum(other * other for other in others) / len(others))
    return abs(change) > student(len(others), ALPHA) * spread


def judged(sessions: Sequence[Session]) -> Verdicts:
    """Honest sessions are held against the other honest ones, slowed ones against all of them."""
    honest = [session.change for session in sessions if not session.slow_down]
    slowed = [session.change for session in sessions if session.slow_down]
    raised = sum(raises(change, honest[:n] + honest[n + 1 :]) for n, change in enumerate(honest))
    found = sum(change > 0 and raises(change, honest) for change in slowed)
    spread = math.sqrt(sum(change * change for change in honest) / len(honest)) if len(honest) > 1 else None
    return Verdicts(honest=len(honest), raised=raised, slowed=len(slowed), found=found, spread=spread)


def rate_below(sessions: int, confidence: float = 0.95) -> float:
    """What none in so many sessions says of the rate of false alarms: below this, with this confidence."""
    return float(1 - (1 - confidence) ** (1 / sessions))


def measure(
    wanted: Sessions,
    one_session: Callable[[float], Session | str],
    kept: Path,
    time_left_s: Callable[[], float],
    tell: Callable[[str], None],
) -> list[Session]:
    """Measures what is missing of the wanted sessions, honest and slowed in turn, and keeps each at once.

    `one_session` measures one that is slowed by so much, or says why it could not.
    """
    done, longest = load(kept), 0.0
    kinds = [slow for _ in range(wanted.count) for slow in (0.0, wanted.injected)]
    for kind in (0.0, wanted.injected):
        have = sum(session.slow_down == kind for session in done)
        for _ in range(have):
            kinds.remove(kind)
    for number, kind in enumerate(kinds):
        before = time_left_s()
        if before < max(20.0, 1.2 * longest):
            break
        session = one_session(kind)
        longest = max(longest, before - time_left_s())
        if isinstance(session, str):
            tell(f"session ended: {session}")
            break
        done.append(session)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([asdict(one) for one in done]))
        tell(f"session {number + 1} of {len(kinds)}: {'slowed' if kind else 'honest'}, {session.change:+.2%}")
    return done


def load(kept: Path) -> list[Session]:
    """The sessions measured so far."""
    if not kept.is_file():
        return []
    raw: list[dict[str, Any]] = json.loads(kept.read_text())
    return [Session(**{**one, "base": tuple(one["base"]), "head": tuple(one["head"])}) for one in raw]


def of_benchmark(wanted: Sessions, preset: Preset) -> Callable[[float], Session | str]:
    """Measures sessions on the wanted benchmark, at its full size on a GPU."""
    selected = registry.select(registry.find(wanted.benchmark), preset, {})[0]
    launcher = Launcher()
    return lambda slow_down: _session(selected, slow_down, wanted.rounds, launcher)


def _session(selected: Selected, slow_down: float, rounds: int, launcher: Launcher) -> Session | str:
    values: dict[str, list[float]] = {"base": [], "head": []}
    config, metric = selected.case.config, ""
    for turn in abba(rounds):
        extra = {"slow_down": slow_down} if slow_down and turn.arm == "head" else {}
        preset = "cpu" if config.get("device", "cpu") == "cpu" else "smoke"
        job = job_of(selected, config, ["time"], preset=preset, process=turn.number, extra=extra)
        report: Mapping[str, Any] = launcher.run(job, selected.case.timeout_s, environment_of(config)).report
        if report["status"] != Status.OK:
            return f"{report['status']}: {report['error']}"
        first = measurements.of_reports([report])[0]
        metric = first["metric"]
        values[turn.arm].append(first["value"])
    return Session(slow_down=slow_down, base=tuple(values["base"]), head=tuple(values["head"]), metric=metric)
