"""The host clock: what an interval cost this thread, without the neighbours' time slices.

On a shared machine the wall clock includes the time other processes ran. The kernel records the thread's own CPU
time and its time in the run queue; so an interval costs its CPU time if the thread never slept in it, else
its wall time minus the queueing (a sleep, a lock, a worker thread or a disk is our cost and stays in).
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

_NS = 1e-9
_MOST_READINGS = 8  # of one instant, on a machine so busy that each reading is interrupted


@dataclass(frozen=True, slots=True)
class Instant:
    """One reading of the clock, in seconds; `sleeps` counts voluntary context switches."""

    wall: float
    cpu: float
    queued: float
    sleeps: int

    def until(self, later: Instant) -> float:
        """Seconds that the interval from here to `later` cost this thread."""
        if later.sleeps == self.sleeps:
            return later.cpu - self.cpu
        unqueued = (later.wall - self.wall) - (later.queued - self.queued)
        return max(unqueued, later.cpu - self.cpu)


class HostClock:
    """Reads instants for the calling thread. Where the kernel keeps no such accounts, an instant is plain wall time."""

    def __init__(self) -> None:
        try:
            self._schedstat: int | None = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._schedstat = None
        self.name = "thread_cpu_or_unqueued_wall" if self._schedstat is not None else "wall"

    def now(self) -> Instant:
        """This instant."""
        if self._schedstat is None:
            wall = time.perf_counter()
            return Instant(wall, wall, 0.0, 0)
        queued = _queued(self._schedstat)
        for _ in range(_MOST_READINGS):
            wall, cpu = time.perf_counter(), time.thread_time()
            before, queued = queued, _queued(self._schedstat)
            if queued == before:  # nobody ran between: wall and queued are of one instant
                break
        return Instant(wall, cpu, queued, resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw)

    def close(self) -> None:
        """Gives the kernel file back."""
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None


def _queued(schedstat: int) -> float:
    """Seconds that the thread of this file has stood in the run queue."""
    return int(os.pread(schedstat, 80, 0).split(b" ", 2)[1]) * _NS
