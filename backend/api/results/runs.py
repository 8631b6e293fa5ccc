"""Runs: delivered, read, watched, cancelled."""

import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy import Connection

from backend.api import dependencies, shapes
from backend.api.answers import Page, StateAnswer, StoredRunEvent
from backend.api.bodies import RunId
from backend.api.dependencies import Config, Deliver, Now, RawBody, Reader, Transaction, Writer
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.results.downloads import FormatName, attachment, exported
from backend.services.base.access import Principal
from backend.services.ingest import delivery
from backend.services.ingest import record as ingest
from backend.services.ingest.record import Recorded
from backend.services.queue import dispatch
from backend.services.queue import events as run_events
from backend.services.reports import exports, run_view
from backend.services.reports.run_view import RunView

router = APIRouter(tags=["runs"])

LONGEST_LEASE: Final = 200
_RUN_ID: Final = re.compile(shapes.RUN_ID)
RUN_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A run (`tidemark.run/1`)",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RunDocument"}}},
    }
}


async def put(
    run_id: RunId,
    body: RawBody,
    deliver: Deliver,
    now: Now,
    tidemark_lease: Annotated[str | None, Header(max_length=LONGEST_LEASE)] = None,
) -> Response:
    """Deliver a run. The answer holds every verdict. 409: something else was delivered under this id."""

    def record(c: Connection, caller: Principal) -> Json:
        recorded = delivery.deliver_run(c, run_id, body, lease=tidemark_lease, principal=caller, now=now)
        return Json(recorded, status_code=201 if recorded.created else 200)

    return await deliver(record)


class _Straight(APIRoute):
    """The route of `put`, called straight where the request is as it should be; else FastAPI says what it is not.

    FastAPI's way from a request to arguments takes a tenth of the CPU of a small result.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        usual = super().get_route_handler()

        async def handle(request: Request) -> Response:
            run_id, lease = request.path_params["run_id"], request.headers.get("tidemark-lease")
            if _RUN_ID.fullmatch(run_id) is None or len(lease or "") > LONGEST_LEASE:
                return await usual(request)
            now = await dependencies.now()
            deliver = await dependencies.delivery(request, await dependencies.config(request), now)
            return await put(run_id, await dependencies.raw_body(request), deliver, now, lease)

        return handle


router.add_api_route(
    "/runs/{run_id}",
    put,
    methods=["PUT"],
    response_model=None,
    responses={
        **answer(Recorded, "The same run was delivered before"),
        **answer(Recorded, "Stored and judged", status=201),
    },
    openapi_extra=RUN_BODY,
    route_class_override=_Straight,
)


@router.get(
    "/runs/{run_id}", response_model=None, responses=exported(RunView, "The run; in the format that was asked for")
)
def get(run_id: RunId, c: Transaction, _: Reader, format: FormatName = None) -> Any:
    """Everything of a run: its place, state, results with verdicts, environment; or what it delivered, in a format
    for other tools: run.json, mllog, v3, csv, parquet."""
    if format is None:
        return Json(run_view.load_run(c, run_id))
    return attachment(exports.export_run(ingest.get_document(c, run_id), exports.run_format(format)))


@router.get("/runs/{run_id}/document", response_model=dict[str, Any])
def document(run_id: RunId, c: Transaction, _: Reader) -> Any:
    """The run as it was delivered (`tidemark.run/1`)."""
    return Json(ingest.get_document(c, run_id))


@router.get("/runs/{run_id}/events", response_model=Page[StoredRunEvent])
def events(run_id: RunId, c: Transaction, _: Reader, after: Annotated[int, Query(ge=0, le=2**62)] = 0) -> Any:
    """Steps, progress and log lines, oldest first; `next` is the `after` of the following page."""
    items = run_events.events_of(c, run_id, after)
    full = len(items) == run_events.PAGE
    return Json({"items": items, "next": str(items[-1]["id"]) if full else None})


@router.post("/runs/{run_id}/cancel", response_model=StateAnswer)
def cancel(run_id: RunId, c: Transaction, config: Config, now: Now, caller: Writer) -> Any:
    """Take a run back: at once while it waits, at its worker's next heartbeat while it runs."""
    return Json({"run_id": run_id, "state": dispatch.cancel_run(c, run_id, caller, now)})
