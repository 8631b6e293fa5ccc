"""An accelerator as timing sees it: a queue that work is put on, events in that queue, a cache to flush."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

FLUSH_BYTES = 256 * 1024 * 1024
"""Written before a call whose input must come from memory: several times the largest cache of an accelerator."""


class Device(Protocol):
    """An accelerator, as timing uses it. Work is queued; only `synchronize` waits for it."""

    def now(self) -> float:
        """Seconds by the host's clock."""
        ...

    def record(self) -> Any:
        """Puts an event on the queue."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Between two events that have passed."""
        ...

    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        ...

    def sleep(self, cycles: int) -> None:
        """Puts idle time on the queue, so that the host can get ahead."""
        ...

    def flush(self) -> None:
        """Puts a write on the queue that leaves nothing useful in the cache."""
        ...

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """Captures the calls as one unit; the result queues all of them at the cost of one launch."""
        ...


class CudaDevice:
    """The current CUDA (or ROCm) device, through torch."""

    def __init__(self) -> None:
        self._cache: torch.Tensor | None = None

    def now(self) -> float:
        return time.perf_counter()

    def record(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1000

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def sleep(self, cycles: int) -> None:
        torch.cuda._sleep(cycles)

    def flush(self) -> None:
        if self._cache is None:
            self._cache = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._cache.zero_()

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for call in calls:
                call()
        return captured.replay
