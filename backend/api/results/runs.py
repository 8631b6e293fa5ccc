"""Runs: delivered, read, watched, cancelled."""

from typing import Annotated, Any, Final

from fastapi import Header, Query, Request, Response
from sqlalchemy import Connection

from backend.api.answers import ListPage, StateAnswer, StoredRunEvent
from backend.api.bodies import RunId
from backend.api.dependencies import Config, Deliver, Now, RawBody, Reader, Submitter, Transaction
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.results.downloads import FormatName, attachment, exported
from backend.api.turns import Turn
from backend.routing import Router
from backend.services.base.principal import Principal
from backend.services.ingest import delivery
from backend.services.ingest import record as ingest
from backend.services.ingest.answer import Recorded
from backend.services.queue import dispatch
from backend.services.queue import events as run_events
from backend.services.reports import exports
from backend.services.runs import view as run_view
from backend.services.runs.view import RunView

router = Router(tags=["runs"])

LONGEST_LEASE: Final = 200
RUN_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A run (`tidemark.run/1`)",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RunDocument"}}},
    }
}


@router.put(
    "/runs/{run_id}",
    response_model=None,
    responses={
        **answer(Recorded, "The same run was delivered before"),
        **answer(Recorded, "Stored and judged", status=201),
    },
    openapi_extra=RUN_BODY,
)
async def put(
    run_id: RunId,
    body: RawBody,
    deliver: Deliver,
    now: Now,
    tidemark_lease: Annotated[str | None, Header(max_length=LONGEST_LEASE)] = None,
) -> Response:
    """Deliver a run. The answer contains every verdict. 409: different content was delivered under this id."""

    def record(c: Connection, caller: Principal, turn: Turn) -> Json:
        recorded = delivery.deliver_run(
            c, run_id, body, lease=tidemark_lease, principal=caller, now=now, judged=turn.end
        )
        return Json(recorded, status_code=201 if recorded.created else 200)

    return await deliver(len(body), record)


@router.get("/runs/{run_id}", response_model=None, responses=exported(RunView, "The run, in the requested format"))
def get(request: Request, run_id: RunId, c: Transaction, _: Reader, format: FormatName = None) -> Any:
    """Everything about a run: its commit, state, results with verdicts, and environment; or what it delivered, in a
    format for other tools: run.json, mllog, v3, csv, parquet.
    """
    if format is None:
        return Json(run_view.load_run(c, run_id))
    wanted = exports.run_format(format)
    document = ingest.get_document(c, run_id)
    return attachment(request, exports.export_run(document, ingest.received_at(c, run_id), wanted))


@router.get("/runs/{run_id}/document", response_model=dict[str, Any])
def document(run_id: RunId, c: Transaction, _: Reader) -> Any:
    """The run as it was delivered (`tidemark.run/1`)."""
    return Json(ingest.get_document(c, run_id))


@router.get("/runs/{run_id}/events", response_model=ListPage[StoredRunEvent])
def events(run_id: RunId, c: Transaction, _: Reader, after: Annotated[int, Query(ge=0, le=2**62)] = 0) -> Any:
    """Steps, progress and log lines, oldest first; `next` is the `after` of the next page."""
    items = run_events.events_of(c, run_id, after)
    full = len(items) == run_events.PAGE
    return Json({"items": items, "next": str(items[-1]["id"]) if full else None})


@router.post("/runs/{run_id}/cancel", response_model=StateAnswer)
def cancel(run_id: RunId, c: Transaction, config: Config, now: Now, caller: Submitter) -> Any:
    """Cancel a run: immediately while it is queued, at its worker's next heartbeat while it runs."""
    return Json({"run_id": run_id, "state": dispatch.cancel_run(c, run_id, caller, now)})
