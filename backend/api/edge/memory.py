"""Gives memory back to the system after a flood of requests."""

from __future__ import annotations

import asyncio
import ctypes
import gc

from starlette.concurrency import run_in_threadpool

from backend.api.admission import Lanes

QUIET_S = 5.0
M_ARENA_MAX = -8


def settle_memory() -> None:
    """For a process that does nothing but serve: what it is made of stays, and need not be searched for garbage, now
    (there is next to none) or later.

    A delivery, or a history that is judged again, makes tens of thousands of objects and no cycles. With the usual
    thresholds the collector went through all of them, and through every module, several times for each. The threads
    share two heaps: one each would keep what was free in forty of them.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    _glibc("mallopt", M_ARENA_MAX, 2)


def give_back() -> None:
    """Return free memory to the system, which would not happen by itself."""
    gc.collect()
    _glibc("malloc_trim", 0)


async def give_back_when_quiet(lanes: Lanes) -> None:
    """For ever: once after each time in which requests were done."""
    done = lanes.moved_at
    while True:
        await asyncio.sleep(QUIET_S)
        if lanes.moved_at != done and lanes.quiet_s >= QUIET_S:
            done = lanes.moved_at
            await run_in_threadpool(give_back)


def _glibc(name: str, *arguments: int) -> None:
    """A call of glibc's; other libraries have none of them, and do without."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
