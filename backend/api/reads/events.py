"""Live pages: server-sent events, with what a page missed while it was away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import StreamingResponse

from backend.api.bodies import Slug
from backend.api.dependencies import Config, LiveHub, Reader, Transaction, may_still_read
from backend.api.metrics import Metrics
from backend.services.base.errors import Unavailable
from backend.services.base.live import Hub, Wanted
from backend.services.base.projects import find_project
from backend.store.base.live import EventRow

router = APIRouter(tags=["live"])

MAX_STREAMS = 500
RECONNECT_MS = 2000
HEARTBEAT = b": still here\n\n"


def wanted(
    c: Transaction,
    _: Reader,
    project: Annotated[Slug | None, Query()] = None,
    run: Annotated[str | None, Query(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{7,63}$")] = None,
) -> Wanted:
    return Wanted(project_id=None if project is None else find_project(c, project).id, run_id=run)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events"}},
)
async def events(
    request: Request,
    wanted: Annotated[Wanted, Depends(wanted, scope="function")],
    config: Config,
    hub: LiveHub,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**63 - 1)] = None,
    after: Annotated[
        int | None, Query(ge=0, le=2**63 - 1, description="begin after this event: the newest when the page was made")
    ] = None,
) -> Any:
    """Changes as they happen: `run`, `queue`, `commits`, `worker`, `regression`; with `run=`, also `log`."""
    if hub.open_streams >= MAX_STREAMS:
        raise Unavailable(f"{MAX_STREAMS} event streams are open already")
    return StreamingResponse(
        _told(
            hub,
            wanted,
            after if last_event_id is None else last_event_id,
            config.sse_heartbeat_s,
            lambda: may_still_read(request, config),
            request.app.state.metrics,
        ),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _told(
    hub: Hub,
    wanted: Wanted,
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


def encoded(event: EventRow) -> bytes:
    """One event as it goes over the wire. JSON has no raw line breaks, so one data line is enough."""
    data = orjson.dumps({"at": event.at, **event.payload})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), data)
