"""Cause before alarm: was it the machine, its software, the method, noise, or, only if none of these, the code?"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class CauseName(enum.StrEnum):
    CODE = "code"
    ENVIRONMENT = "environment"
    HARDWARE = "hardware"
    METHOD = "method"
    NOISE = "noise"


@dataclass(frozen=True, slots=True)
class CanaryShift:
    """One canary of the worker at the onset: its cost change against what is usual there, and its usual noise."""

    name: str
    change: float
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence around the onset of a change; unknown facts are left out."""

    magnitude: float
    noise: float = 0.0
    environment_before: Mapping[str, str] | None = None
    environment_after: Mapping[str, str] | None = None
    suite_version_before: str | None = None
    suite_version_after: str | None = None
    canary: tuple[CanaryShift, ...] = ()
    throttle: tuple[str, ...] = ()
    foreign_processes: int = 0
    worker: str = ""
    other_workers_agree: bool | None = None
    """True: another worker shows the change too; False: another worker ran these commits and does not."""
    signals: tuple[str, ...] = ()
    """Of an ill machine, if its runs since the onset are proof enough (see `backend.regression.joint.window`)."""
    moved_series: int = 0
    watched_series: int = 0
    session_confirmed: bool | None = None
    """Whether an interleaved session, in which only the code differs, showed it; None: there was none."""
    docs_only: bool = False
    counter: str | None = None
    """A counter that moved with the change: no machine causes that."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause, its evidence in short sentences, and whether an alarm about code must wait."""

    cause: CauseName
    evidence: tuple[str, ...] = field(default_factory=tuple)
    suppress: bool = False


CANARY_SIGMAS = 4.0
CANARY_SHARE = 0.3
"""A canary explains a change if it moved by at least this share of it, and clearly beyond its own noise."""
MOST_SERIES = 0.6
FEWEST_SERIES = 5
"""If most series move together, that indicates the machine only if there are at least this many."""


def attribute(evidence: Evidence) -> Cause:
    """The first cause of a change that the evidence supports, strongest evidence first."""
    if evidence.session_confirmed:
        return Cause(
            CauseName.CODE, ("An interleaved session of base and head, in which only the code differs, shows it.",)
        )
    for rule in (_method, _machine, _environment, _noise):
        cause = rule(evidence)
        if cause is not None:
            return cause
    return _code(evidence)


def _method(e: Evidence) -> Cause | None:
    if (
        e.suite_version_before is None
        or e.suite_version_after is None
        or e.suite_version_before == e.suite_version_after
    ):
        return None
    text = f"The suite changed from version {e.suite_version_before} to {e.suite_version_after} at this point."
    return Cause(CauseName.METHOD, (text,), suppress=True)


def _machine(e: Evidence) -> Cause | None:
    if e.counter:
        return None
    told = [
        f"Canary {c.name} moved by {100 * c.change:+.1f} % (its noise is {100 * c.noise:.1f} %)."
        for c in e.canary
        if _canary_explains(c, e.magnitude)
    ]
    if e.throttle and e.other_workers_agree is not True:
        told.append(f"The accelerator was throttled: {', '.join(e.throttle)}.")
    if e.foreign_processes and e.other_workers_agree is not True:
        told.append(
            f"{e.foreign_processes} foreign process{'es' if e.foreign_processes > 1 else ''} shared the accelerator."
        )
    if not told and e.other_workers_agree is not True:
        told += e.signals
    share = e.moved_series / e.watched_series if e.watched_series >= FEWEST_SERIES else 0.0
    if share >= MOST_SERIES and e.other_workers_agree is False:
        told.append(f"{e.moved_series} of {e.watched_series} series of {e.worker or 'this worker'} moved together.")
    if e.other_workers_agree is False:
        told.append(f"Other workers ran these commits and do not show it, only {e.worker or 'this one'} does.")
    if not told:
        return None
    changed = _changed_packages(e)
    if changed and e.other_workers_agree is not False:
        return None
    return Cause(CauseName.HARDWARE, tuple(told), suppress=True)


def canary_moved(change: float, noise: float) -> bool:
    """Whether a canary moved clearly beyond its own noise; both as fractions."""
    return abs(change) > CANARY_SIGMAS * noise


def _canary_explains(canary: CanaryShift, magnitude: float) -> bool:
    same_way = canary.change * magnitude > 0
    return (
        same_way and canary_moved(canary.change, canary.noise) and abs(canary.change) >= CANARY_SHARE * abs(magnitude)
    )


def _changed_packages(e: Evidence) -> list[str]:
    if e.environment_before is None or e.environment_after is None:
        return []
    names = sorted({*e.environment_before, *e.environment_after} - {"hash"})
    return [n for n in names if e.environment_before.get(n) != e.environment_after.get(n)]


def _environment(e: Evidence) -> Cause | None:
    changed = _changed_packages(e)
    if not changed:
        return None
    before, after = e.environment_before or {}, e.environment_after or {}
    told = tuple(
        f"{n} changed from {before.get(n, 'nothing')} to {after.get(n, 'nothing')} at this point." for n in changed
    )
    return Cause(CauseName.ENVIRONMENT, told, suppress=True)


def _noise(e: Evidence) -> Cause | None:
    if e.session_confirmed is False:
        text = "An interleaved session of base and head, in which only the code differs, does not show it."
        return Cause(CauseName.NOISE, (text,), suppress=True)
    if e.docs_only:
        return Cause(CauseName.NOISE, ("Only documentation changed in the suspect commits.",), suppress=True)
    if not e.counter and abs(e.magnitude) < 2 * e.noise:
        text = (
            f"A change of {100 * e.magnitude:+.1f} % is less than twice the noise of the series, {100 * e.noise:.1f} %."
        )
        return Cause(CauseName.NOISE, (text,))
    return None


def _code(e: Evidence) -> Cause:
    told = []
    if e.counter:
        told.append(f"{e.counter} moved, which is counted exactly: no machine moves it.")
    if e.environment_before is not None and e.environment_after is not None:
        told.append("The environment is the same before and after.")
    if e.canary:
        told.append("No canary moved with it.")
    if e.other_workers_agree:
        told.append("Another worker shows the same change.")
    if e.watched_series:
        told.append(f"{e.moved_series} of {e.watched_series} series of {e.worker or 'the worker'} moved.")
    if not e.counter and e.noise > 0:
        told.append(f"The change of {100 * e.magnitude:+.1f} % is {abs(e.magnitude) / e.noise:.0f} times the noise.")
    return Cause(CauseName.CODE, tuple(told))
