"""Asking for runs."""

from typing import Any

from backend.api.bodies import RunRequestBody
from backend.api.dependencies import Config, Now, Transaction, UnconfinedSubmitter
from backend.api.described import answer
from backend.api.responses import Json
from backend.routing import Router
from backend.services.repository.requests import AcceptedRequest, RunRequest, request_commit

router = Router(tags=["runs"])


@router.post(
    "/run-requests",
    response_model=None,
    status_code=202,
    responses=answer(AcceptedRequest, "Queued, or there", status=202),
)
def request(body: RunRequestBody, c: Transaction, config: Config, now: Now, caller: UnconfinedSubmitter) -> Any:
    """Queue the runs of a commit; runs that exist already are named instead."""
    asked = RunRequest(
        project=body.project,
        commit=body.commit,
        suites=body.suites,
        testbeds=body.testbeds,
        kind=body.kind,
        again=body.again,
    )
    return Json(request_commit(c, asked, config, caller, now), status_code=202)
