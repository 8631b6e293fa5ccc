"""How many requests are in progress at once: as many as there are database connections for them; the others queue.

A request uses at most one thread and one connection at a time. There are more threads than slots, and as many
connections, so a request that has a slot never waits for another: threads and connections cannot deadlock.
Reading and writing have separate slots, so that readers, however many, do not keep results from being delivered.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.concurrency import run_in_threadpool

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import TooMany, Unavailable

STUCK_S = 60.0
"""Requests wait and none was done for so long: whatever holds the places does not give them back."""
AGAIN_S = 1.0
HEAVY_AT_ONCE = 2
HEAVY_S = 60.0
UNNAMED_AT_ONCE = 4


class Busy(Unavailable):
    """No slot was free in time; come back later."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        # Not the same for all: who was sent away together would come back together.
        self.retry_after_s = random.randint(2, 6)


class Lane:
    """So many places, and a line before them that is neither endless nor slow."""

    def __init__(self, name: str, places: int, *, line: int, patience_s: float) -> None:
        self.name = name
        self.places = places
        self.line = line
        self.patience_s = patience_s
        self.waiting = 0
        self._moved_at = time.monotonic()
        self._free = asyncio.Semaphore(places)

    async def enter(self) -> None:
        """Wait for a place. `Busy`: the line is full, or it took too long."""
        if not self._free.locked():
            self._moved_at = time.monotonic()
            await self._free.acquire()
            return
        if self.waiting >= self.line:
            raise Busy(
                f"{self.places} requests are in progress and {self.line} wait ({self.name}); come back in a moment"
            )
        self.waiting += 1
        try:
            async with asyncio.timeout(self.patience_s):
                await self._free.acquire()
        except TimeoutError:
            raise Busy(
                f"no free place in time, {self.waiting} requests wait ({self.name}); come back in a moment"
            ) from None
        finally:
            self.waiting -= 1

    def leave(self) -> None:
        self._moved_at = time.monotonic()
        self._free.release()

    @property
    def moved_at(self) -> float:
        """When a request last began or ended, by the monotonic clock."""
        return self._moved_at

    @property
    def is_stuck(self) -> bool:
        """Whether all places have been taken for so long that they will not be given back."""
        return self._free.locked() and time.monotonic() - self._moved_at > STUCK_S

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        await self.enter()
        try:
            yield
        finally:
            self.leave()

    async def in_turns(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """A long response, part by part: each is produced in a slot, and none is held while it is read, however slowly.
        Where many are in progress it waits, because half of a file is worth nothing."""
        while True:
            try:
                await self.enter()
            except Busy:
                await asyncio.sleep(AGAIN_S)
                continue
            try:
                part = await run_in_threadpool(next, parts, None)
            finally:
                self.leave()
            if part is None:
                return
            yield part


class Lanes:
    """Those of one process."""

    def __init__(self, config: ServiceConfig) -> None:
        line, patience_s = config.waiting_requests, config.wait_s
        self.reading = Lane("reading", config.reads_at_once, line=line, patience_s=patience_s)
        self.writing = Lane("writing", config.writes_at_once, line=line, patience_s=patience_s)
        # Whoever asks for health must not stand in a line of readers.
        self.health = Lane("health", 1, line=line, patience_s=patience_s)
        # Bodies of megabytes take hundreds of megabytes to be read: they take turns.
        self.heavy = Lane("large bodies", HEAVY_AT_ONCE, line=line, patience_s=HEAVY_S)
        # Bodies whose sender is only known by what is in them.
        self.unnamed = Lane("large deliveries", UNNAMED_AT_ONCE, line=0, patience_s=patience_s)

    @property
    def moved_at(self) -> float:
        """When a request was last taken up or done."""
        return max(self.reading.moved_at, self.writing.moved_at)

    @property
    def quiet_s(self) -> float:
        """How long nothing has moved."""
        return time.monotonic() - self.moved_at

    @property
    def stuck(self) -> list[str]:
        """The lanes in which nothing moves."""
        return [lane.name for lane in (self.reading, self.writing) if lane.is_stuck]


class StreamPlaces:
    """How many live pages are open at once in one process. They last for hours, and no caller may use them all."""

    def __init__(self, config: ServiceConfig) -> None:
        self._most = config.streams
        self._most_of_address = config.streams_per_address
        self._most_of_token = config.streams_per_token
        self._open: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def place(self, address: str, token_id: int | None) -> Iterator[None]:
        """One of them; `TooMany` for who has enough, `Busy` when all are taken."""
        mine = [("address", address), *([("token", str(token_id))] if token_id is not None else [])]
        for kind, name in mine:
            most = self._most_of_address if kind == "address" else self._most_of_token
            if self._open[kind, name] >= most:
                raise TooMany(f"{most} event streams of this {kind} are open already; close some of its pages")
        if self._open["all", ""] >= self._most:
            raise Busy(f"{self._most} event streams are open already; come back in a moment")
        taken = [("all", ""), *mine]
        self._open.update(taken)
        try:
            yield
        finally:
            self._open.subtract(taken)
            self._open = +self._open
