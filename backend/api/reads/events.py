"""Live pages: server-sent events, with what a page missed while it was away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Depends, Header, Query, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from backend.api.bodies import Slug
from backend.api.dependencies import Config, LiveHub, Reader, Transaction, may_still_read
from backend.api.edge.rates import address_of
from backend.api.metrics import Metrics
from backend.routing import Router
from backend.services.base.live import Hub, Subscription
from backend.services.base.projects import find_project
from backend.store.base.live import LiveEventRow

router = Router(tags=["live"])

RECONNECT_MS = 2000
HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True)
class Listener:
    """Who opens a stream, and what of."""

    wanted: Subscription
    token_id: int | None


class EventStream(StreamingResponse):
    """Answers as long as it has a place; the place is given back however the stream ends."""

    def __init__(self, content: AsyncIterator[bytes], place: AbstractContextManager[None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


def listener(
    c: Transaction,
    reader: Reader,
    project: Annotated[Slug | None, Query()] = None,
    run: Annotated[str | None, Query(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{7,63}$")] = None,
) -> Listener:
    wanted = Subscription(project_id=None if project is None else find_project(c, project).id, run_id=run)
    return Listener(wanted, reader.token_id)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events"}},
)
async def events(
    request: Request,
    listener: Annotated[Listener, Depends(listener, scope="function")],
    config: Config,
    hub: LiveHub,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**63 - 1)] = None,
    after: Annotated[
        int | None, Query(ge=0, le=2**63 - 1, description="begin after this event: the newest when the page was made")
    ] = None,
) -> Any:
    """Changes as they happen: `run`, `queue`, `commits`, `worker`, `regression`; with `run=`, also `log`."""
    return EventStream(
        _told(
            hub,
            listener.wanted,
            after if last_event_id is None else last_event_id,
            config.sse_heartbeat_s,
            lambda: may_still_read(request, config),
            request.app.state.metrics,
        ),
        request.app.state.stream_places.place(address_of(request.scope), listener.token_id),
    )


async def _told(
    hub: Hub,
    wanted: Subscription,
    after: int | None,
    heartbeat_s: float,
    may_read: Callable[[], Awaitable[bool]],
    metrics: Metrics,
) -> AsyncIterator[bytes]:
    with metrics.open_stream():
        async with hub.stream(wanted, after) as stream:
            yield f": connected\nretry: {RECONNECT_MS}\n\n".encode()
            clock = asyncio.get_running_loop().time
            asked_at = clock()
            while True:
                # A stream lives for hours: who opened it must still be allowed to, however busy the stream is.
                if clock() - asked_at >= heartbeat_s:
                    if not await may_read():
                        return
                    asked_at = clock()
                try:
                    event = await stream.next(heartbeat_s)
                except TimeoutError:
                    yield HEARTBEAT
                    continue
                if event is None:
                    return
                yield encoded(event)


def encoded(event: LiveEventRow) -> bytes:
    """One event as it goes over the wire. JSON has no raw line breaks, so one data line is enough."""
    data = orjson.dumps({"at": event.at, **event.payload})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), data)
