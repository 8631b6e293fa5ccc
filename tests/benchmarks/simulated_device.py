"""An accelerator in arithmetic: a queue with a host in front of it, a cache, events, graphs. No time passes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

LAUNCH_S = 4e-6
SLEEP_CYCLES_PER_S = 1.4e9
CACHE_BYTES = 50 * 2**20


class SimulatedDevice:
    """`harness.device.Device` by a model: work is queued at a cost to the host, and runs when its turn comes."""

    def __init__(self, *, clock_error: float = 0.0) -> None:
        self.host_s = self.idle_at_s = 0.0
        self.synchronized = self.launches = 0
        self.clock_error = clock_error
        self.log: list[str] = []
        self._cached: OrderedDict[object, int] = OrderedDict()
        self._capturing: list[Callable[[], float]] | None = None

    def work(self, seconds: float, *, buffer: object = None, size: int = 0) -> None:
        """A kernel of `seconds`; one that finds its buffer in the cache takes a third."""

        def run() -> float:
            return seconds / 3 if buffer is not None and self._touch(buffer, size) else seconds

        if self._capturing is not None:
            self._capturing.append(run)
            return
        self.log.append("work")
        self._launch(run())

    def _launch(self, seconds: float) -> None:
        self.launches += 1
        self.host_s += LAUNCH_S
        self.idle_at_s = max(self.idle_at_s, self.host_s) + seconds

    def _touch(self, buffer: object, size: int) -> bool:
        found = buffer in self._cached
        self._cached[buffer] = size
        self._cached.move_to_end(buffer)
        while sum(self._cached.values()) > CACHE_BYTES:
            self._cached.popitem(last=False)
        return found

    def now(self) -> float:
        return self.host_s

    def record(self) -> float:
        self.log.append("event")
        self.host_s += LAUNCH_S / 4
        return max(self.idle_at_s, self.host_s)

    def seconds(self, start: float, end: float) -> float:
        return (end - start) * (1 + self.clock_error)

    def synchronize(self) -> None:
        self.synchronized += 1
        self.host_s = max(self.host_s, self.idle_at_s)

    def sleep(self, cycles: int) -> None:
        self.log.append("sleep")
        self._launch(cycles / SLEEP_CYCLES_PER_S)

    def flush(self) -> None:
        self.log.append("flush")
        self._cached.clear()
        self._launch(60e-6)

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        self._capturing = []
        for call in calls:
            call()
        captured, self._capturing = self._capturing, None

        def replay() -> None:
            self.log.append("replay")
            self._launch(sum(run() for run in captured))

        return replay
