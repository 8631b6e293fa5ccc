"""Live pages: events written in the transaction that causes them, received by LISTEN, sent to every open stream.

`publish` is called by whatever changes something. The `Hub` lives in the API process: one connection listens, each open
page has a queue. A page that reconnects names the last event it saw and gets what it missed. If a server dies between
a commit and its notification, nobody is notified of the event: the hub looks for such events every few seconds.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import Connection, make_url
from sqlalchemy.exc import SQLAlchemyError

from backend.services.base.reads import MAX_LAG_S, Reads
from backend.store.base import live as store
from backend.store.base.live import LiveEventRow

log = logging.getLogger("tidemark.live")

REMEMBERED = 2000  # events kept in the order they were heard, for pages that reconnect
REPLICA_AGAIN_S = 0.02
QUEUE_LENGTH = 1000  # a page further behind is cut off; it reconnects and catches up
GATHER_S = 0.01  # so long after an event the next ones are waited for: a delivery often has two
REST_S = 0.1  # then so long nothing is read: what comes meanwhile is read together
SWEEP_S = 5.0  # a page hears so late of an event that nobody gave notice of
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
# Sent only to the page of that run: lines of its log would drown everything else.
RUN_ONLY = frozenset({"log"})


def publish(c: Connection, kind: str, project_id: int | None, payload: dict[str, Any]) -> int:
    """Tell live pages: `kind` (run, log, commits, worker, regression) and what they need to know."""
    return store.insert_event(c, kind, project_id, payload)


def newest_event(c: Connection) -> int:
    """The newest event's number; a page created now requests the events after it."""
    return store.newest_event(c)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Filter of one page's events. None: everything."""

    project_id: int | None = None
    run_id: str | None = None

    def matches(self, event: LiveEventRow) -> bool:
        of_run = event.payload.get("run_id")
        if event.kind in RUN_ONLY and (self.run_id is None or of_run != self.run_id):
            return False
        if self.run_id is not None and of_run != self.run_id:
            return False
        return self.project_id is None or event.project_id in (None, self.project_id)


class PageStream:
    """One open page. Iterating ends when the hub closes or the page fell too far behind."""

    def __init__(self, wanted: Subscription) -> None:
        self.wanted = wanted
        self._queue: asyncio.Queue[LiveEventRow | None] = asyncio.Queue()
        self._begun_with: frozenset[int] = frozenset()
        """Events that the page had from the first: they may be heard of once more."""

    def offer(self, event: LiveEventRow) -> bool:
        """False: the page is too far behind."""
        if self.wanted.matches(event) and event.id not in self._begun_with:
            if self._queue.qsize() >= QUEUE_LENGTH:
                return False
            self._queue.put_nowait(event)
        return True

    def begin_with(self, last_seen: int, missed: list[LiveEventRow]) -> None:
        """Put what the page missed after event `last_seen` before what was offered since the stream was opened."""
        offered = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        for event in missed:
            self.offer(event)
        self._begun_with = frozenset({last_seen, *(event.id for event in missed)})
        for later in offered:
            if later is None or later.id not in self._begun_with:
                self._queue.put_nowait(later)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def next(self, timeout_s: float) -> LiveEventRow | None:
        """The next event. None: the stream is over. TimeoutError: nothing happened for so long."""
        return await asyncio.wait_for(self._queue.get(), timeout_s)


class Hub:
    """Receives every event of the database and sends it to the open streams, once the database that pages read from has
    it: a page that is notified of a result and requests it must find it."""

    def __init__(self, reads: Reads, *, listen_at: str | None = None) -> None:
        self._reads = reads
        self._listen_at = make_url(listen_at or reads.primary.url)
        self._streams: set[PageStream] = set()
        self._heard: dict[int, LiveEventRow | None] = {}
        """The last ones in the order they were heard; None: nobody listened, so it was not read."""
        self._newest: int | None = None
        """None: nobody has looked yet."""
        self._swept = self._sweep_from = 0
        """The newest event at the last sweep, and at the one before: from there on the next sweep looks."""
        self._task: asyncio.Task[None] | None = None
        self.closed = False

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def start(self) -> None:
        self.closed = False
        self._task = asyncio.create_task(self._listen_for_ever(), name="tidemark-live")

    def end_streams(self) -> None:
        """End every open stream, and each one opened from now on: the service is going down."""
        self.closed = True
        for stream in self._streams:
            stream.end()

    async def stop(self) -> None:
        self.end_streams()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    @contextlib.asynccontextmanager
    async def stream(self, wanted: Subscription, last_seen: int | None) -> AsyncIterator[PageStream]:
        """A stream that begins with what came after event `last_seen`."""
        stream = PageStream(wanted)
        self._streams.add(stream)  # before what it missed is read: what happens meanwhile comes after that
        try:
            if self._newest is None:
                with contextlib.suppress(SQLAlchemyError):  # the database is away, and what it has will come then
                    self._begin_after(await asyncio.to_thread(self._read_newest))
            if last_seen is not None:
                stream.begin_with(last_seen, await self._missed(last_seen))
            if self.closed:
                stream.end()
            yield stream
        finally:
            self._streams.discard(stream)

    async def _missed(self, last_seen: int) -> list[LiveEventRow]:
        if last_seen not in self._heard:
            return await asyncio.to_thread(self._read_after, last_seen)
        # In the order heard: ids follow the order of insertion, and transactions may commit in another.
        heard = list(self._heard)
        after = {event_id: self._heard[event_id] for event_id in heard[heard.index(last_seen) + 1 :]}
        unread = [event_id for event_id, event in after.items() if event is None]
        after.update({event.id: event for event in await asyncio.to_thread(self._read, unread)} if unread else {})
        return [event for event in after.values() if event is not None]

    def _read_after(self, event_id: int) -> list[LiveEventRow]:
        with self._reads.connect(may_lag=False) as c:
            events = store.events_after(c, event_id, REMEMBERED)
        return events if self._reads.replica is None else self._read([event.id for event in events])

    def _read(self, ids: list[int]) -> list[LiveEventRow]:
        by_id = self._read_where_pages_are(ids)
        return [by_id[event_id] for event_id in ids if event_id in by_id]

    def _read_where_pages_are(self, ids: list[int]) -> dict[int, LiveEventRow]:
        """By number; a replica is waited for, as long as one may lag."""
        until = time.monotonic() + MAX_LAG_S
        while True:
            with self._reads.connect(may_lag=time.monotonic() < until) as c:
                found = {event.id: event for event in store.events_by_id(c, ids)}
                if len(found) == len(ids) or c.engine is self._reads.primary:
                    return found
            time.sleep(REPLICA_AGAIN_S)

    def _read_newest(self) -> int:
        with self._reads.connect(may_lag=False) as c:
            return store.newest_event(c)

    async def _listen_for_ever(self) -> None:
        failures = 0
        while True:
            try:
                async with await self._connect() as connection:
                    await connection.execute(f"LISTEN {store.CHANNEL}")
                    await self._catch_up()
                    failures = 0
                    clock = asyncio.get_running_loop().time
                    sweep_at = clock() + SWEEP_S
                    while True:
                        await self._hear(connection, max(0.0, sweep_at - clock()))
                        if clock() >= sweep_at:
                            await self._sweep()
                            sweep_at = clock() + SWEEP_S
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # Whatever it was, live pages must come back by themselves when the database does.
                wait_s = RETRY_S[min(failures, len(RETRY_S) - 1)]
                failures += 1
                log.warning("the event stream lost the database, trying again in %s s: %s", wait_s, error)
                await asyncio.sleep(wait_s)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        url = self._listen_at.set(drivername="postgresql")
        return await psycopg.AsyncConnection.connect(
            url.render_as_string(hide_password=False),
            autocommit=True,
            connect_timeout=5,
            application_name="tidemark live",
        )

    async def _catch_up(self) -> None:
        """Publish events committed while nobody listened."""
        if self._newest is None:
            self._begin_after(await asyncio.to_thread(self._read_newest))
            return
        self._hand_out(await asyncio.to_thread(self._read_after, self._newest))

    def _begin_after(self, newest: int) -> None:
        """What came before is old. A page may be open before anybody listens: it says where that is."""
        if self._newest is None:
            self._newest = self._swept = self._sweep_from = newest

    async def _sweep(self) -> None:
        """Publish what was committed without notice since the last sweep but one: ids follow the order of insertion,
        so an event may be committed after those that follow it."""
        ids = await asyncio.to_thread(self._ids_after, self._sweep_from)
        unheard = [event_id for event_id in ids if event_id not in self._heard]
        self._sweep_from, self._swept = self._swept, max([self._newest or 0, *ids])
        if unheard:
            self._hand_out(await asyncio.to_thread(self._read, unheard))

    def _ids_after(self, event_id: int) -> list[int]:
        with self._reads.connect(may_lag=False) as c:
            return store.ids_after(c, event_id, REMEMBERED)

    async def _hear(self, connection: psycopg.AsyncConnection[Any], timeout_s: float) -> None:
        ids = [int(told.payload) async for told in connection.notifies(timeout=timeout_s, stop_after=1)]
        if ids:
            await asyncio.sleep(GATHER_S)
            ids += [int(told.payload) async for told in connection.notifies(timeout=0)]
        if not self._streams:
            for event_id in ids:  # while results pour in and no page is open, reading each would be work for nobody
                self._remember(event_id, None)
        elif ids:
            self._hand_out(await asyncio.to_thread(self._read, ids))
        if ids:
            await asyncio.sleep(REST_S)

    def _hand_out(self, events: list[LiveEventRow]) -> None:
        for event in events:
            if event.id in self._heard:
                continue
            self._remember(event.id, event)
            for stream in [stream for stream in self._streams if not stream.offer(event)]:
                stream.end()
                self._streams.discard(stream)

    def _remember(self, event_id: int, event: LiveEventRow | None) -> None:
        if len(self._heard) >= REMEMBERED:
            del self._heard[next(iter(self._heard))]
        self._heard[event_id] = event
        self._newest = max(self._newest or 0, event_id)
