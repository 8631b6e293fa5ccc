"""Phase marks: a step says where one part ends and the next begins; the marks add up to the step by construction."""

from __future__ import annotations

import itertools
from typing import Any, Protocol

from benchmarks.harness.timing.clock import HostClock, Instant
from benchmarks.harness.timing.device import Device


class Marks(Protocol):
    """Phase marks of a measured step. `enter` closes the current phase and opens the named one."""

    def enter(self, phase: str) -> None:
        """From here on, time belongs to `phase`."""
        ...


class NoMarks:
    """For steps that are not timed: warm-up, counting, checking."""

    def enter(self, phase: str) -> None:
        """Nothing is kept."""


class HostMarks:
    """Phase times of one step by the host clock, for a CPU."""

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        self._readings: list[tuple[str, Instant]] = []

    def start(self) -> None:
        """Opens the step; what precedes the first phase is `other`."""
        self._readings = [("other", self._clock.now())]

    def enter(self, phase: str) -> None:
        """From here on, time belongs to `phase`."""
        self._readings.append((phase, self._clock.now()))

    def stop(self) -> dict[str, float]:
        """Seconds per phase, in order of first appearance; their sum is the step."""
        self._readings.append(("end", self._clock.now()))
        seconds: dict[str, float] = {}
        for (phase, begin), (_, end) in itertools.pairwise(self._readings):
            seconds[phase] = seconds.get(phase, 0.0) + begin.until(end)
        return seconds


class EventMarks:
    """Phase times of one step by the device's events, read only after the whole loop: no step waits for the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._events: list[tuple[str, Any]] = []

    def enter(self, phase: str) -> None:
        """From here on, time belongs to `phase`."""
        self._events.append((phase, self._device.record()))

    def seconds(self, end: Any) -> dict[str, float]:
        """Seconds per phase; call after a synchronisation."""
        seconds: dict[str, float] = {}
        boundaries = [*self._events, ("end", end)]
        for (phase, begin), (_, after) in itertools.pairwise(boundaries):
            seconds[phase] = seconds.get(phase, 0.0) + self._device.seconds(begin, after)
        return seconds
