"""Interleaved sessions of one code against itself, slowed down in half of the processes: all of them must be found.

A session is ABBA in fresh processes; its change is the ratio of the arms' medians minus one. The same processes show
how large a change can be by chance: four neighbouring ones of one arm ran the same code, so each way to divide them
two and two is a session in which nothing changed. The three ways are independent contrasts of four values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

from benchmarks import registry
from benchmarks.acceptance.plan import Sessions
from benchmarks.analysis import measurements
from benchmarks.analysis.summary import ALPHA
from benchmarks.running.experiments import environment_of, job_of
from benchmarks.running.interleave import abba
from benchmarks.running.launch import Launcher
from benchmarks.spec import Preset, Status

WANTED = 20
"""Sessions of each kind that the target speaks of."""
WAYS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
"""To divide four processes of one code two and two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredArms:
    """One session as it was measured: process values of both arms in the order they ran."""

    slow_down: float
    base: tuple[float, ...]
    head: tuple[float, ...]
    metric: str
    call: int = 0
    """The call that measured it: two calls may have had two machines."""

    @property
    def change(self) -> float:
        """Head over base, less one."""
        return median(self.head) / median(self.base) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Results of all sessions together."""

    honest: int
    """Sessions in which nothing changed, by permuting processes of one arm."""
    raised: int
    slowed: int
    found: int
    processes: int
    spread: float | None
    """Of the changes of honest sessions around zero, as a fraction."""

    @property
    def in_words(self) -> str:
        """The results in plain words: what was shown, and what was not."""
        if not self.honest:
            return (
                f"{self.slowed} slowed sessions were measured and none is judged: no two of them ran one after the "
                "other in the same call, so nothing says what chance does"
            )
        said = (
            f"{self.found} of {self.slowed} slowed sessions were found; of {self.honest} sessions in which nothing "
            f"changed, made by permuting the same {self.processes} processes, {self.raised} raised something"
        )
        if self.slowed >= WANTED:
            return said
        return (
            f"{said}. {WANTED} of {WANTED} is not shown: {self.slowed} sessions were slowed, and permutations are no "
            "sessions of their own"
        )


def student(degrees: int, chance: float) -> float:
    """The quantile that a t-distributed value exceeds on either side with this chance; a series in 1/degrees."""
    z = NormalDist().inv_cdf(1 - chance / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def raises(change: float, honest: Sequence[float]) -> bool:
    """Whether a change is further from zero than honest ones allow by a chance of one in a thousand."""
    spread = _spread(honest)
    return spread is not None and abs(change) > student(len(honest), ALPHA) * spread


def _spread(honest: Sequence[float]) -> float | None:
    return math.sqrt(sum(one * one for one in honest) / len(honest)) if len(honest) >= len(WAYS) else None


def permuted(sessions: Sequence[MeasuredArms]) -> list[tuple[float, ...]]:
    """Changes of the sessions in which nothing changed, a group of three for every four processes of one arm.

    Two neighbouring sessions of one call give four processes of each arm.
    """
    return [
        tuple(_divided(four, first, second) for first, second in WAYS)
        for one, next_one in _neighbours(sessions)
        for four in (one.base + next_one.base, one.head + next_one.head)
    ]


def _neighbours(sessions: Sequence[MeasuredArms]) -> Iterator[tuple[MeasuredArms, MeasuredArms]]:
    for call in dict.fromkeys(session.call for session in sessions):
        of_call = [session for session in sessions if session.call == call]
        yield from zip(of_call[::2], of_call[1::2], strict=False)


def _divided(four: Sequence[float], first: Sequence[int], second: Sequence[int]) -> float:
    return median(four[n] for n in second) / median(four[n] for n in first) - 1


def judged(sessions: Sequence[MeasuredArms]) -> Verdicts:
    """Each slowed session against all honest ones; each honest one against those of other processes."""
    groups = permuted(sessions)
    honest = [change for group in groups for change in group]
    raised = 0
    for group in groups:
        others = [change for other in groups if other is not group for change in other]
        raised += sum(raises(change, others) for change in group)
    slowed = [session.change for session in sessions if session.slow_down]
    return Verdicts(
        honest=len(honest),
        raised=raised,
        slowed=len(slowed),
        found=sum(change > 0 and raises(change, honest) for change in slowed),
        processes=sum(len(session.base) + len(session.head) for session in sessions),
        spread=_spread(honest),
    )


def measure(
    wanted: Sessions,
    one_session: Callable[[], MeasuredArms | str],
    kept: Path,
    time_left_s: Callable[[], float],
    tell: Callable[[str], None],
    keep: Callable[[], None],
) -> str | None:
    """Measures what is missing of the wanted sessions and keeps each at once; returns why one could not be.

    `keep` is called when `kept` has one more, so that a call that is killed loses the session it was in and no other.

    A session is begun only where all of it fits: one whose processes ran in two calls would compare two machines.
    """
    done, longest = load(kept), 0.0
    while len(done) < wanted.count:
        before = time_left_s()
        if before < 1.2 * (longest or wanted.expected_s):
            tell(f"sessions: no time for a further one; {len(done)} of {wanted.count} are measured")
            return None
        session = one_session()
        longest = max(longest, before - time_left_s())
        if isinstance(session, str):
            return session
        done.append(session)
        kept.write_text(json.dumps([asdict(one) for one in done], indent=1))
        keep()
        tell(f"session {len(done)} of {wanted.count}: {session.change:+.2%}, slowed by {session.slow_down:.0%}")
    return None


def load(kept: Path) -> list[MeasuredArms]:
    """The sessions measured so far."""
    if not kept.is_file():
        return []
    raw: list[dict[str, Any]] = json.loads(kept.read_text())
    return [MeasuredArms(**{**one, "base": tuple(one["base"]), "head": tuple(one["head"])}) for one in raw]


def of_case(wanted: Sessions, call: int, time_left_s: Callable[[], float]) -> Callable[[], MeasuredArms | str]:
    """Measures sessions on the wanted case in this call; a process that would outlast its call is ended with it."""
    (selected,), _ = registry.choose([wanted.case], wanted.preset, {})
    launcher, config = Launcher(), selected.case.config

    def one() -> MeasuredArms | str:
        values: dict[str, list[float]] = {"base": [], "head": []}
        metric = ""
        for turn in abba(1):
            extra = {"slow_down": wanted.injected} if turn.arm == "head" else {}
            preset = Preset.CPU if wanted.preset is Preset.CPU else Preset.SMOKE
            job = job_of(selected, config, ["time"], preset=preset, extra=extra) | {"process": turn.number}
            limit_s = min(selected.case.timeout_s, max(1.0, time_left_s()))
            outcome = launcher.run(job, limit_s, environment_of(config))
            report: Mapping[str, Any] = outcome.report
            if report["status"] != Status.OK:
                return f"{report['status']}: {report['error']}\n{outcome.output_tail}"
            first = measurements.of_reports([report])[0]
            metric = first["metric"]
            values[turn.arm].append(first["value"])
        head = tuple(values["head"])
        return MeasuredArms(slow_down=wanted.injected, base=tuple(values["base"]), head=head, metric=metric, call=call)

    return one
