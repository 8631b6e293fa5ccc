"""Artifacts of a run: stored as they come, downloaded as they are."""

from typing import Annotated, Any

from fastapi import Header, Path
from starlette.responses import FileResponse

from backend.api.bodies import RunId
from backend.api.dependencies import Config, Deliverer, Now, RawBody, Reader, Transaction
from backend.api.responses import Json
from backend.routing import Router
from backend.services.base import artifacts
from backend.services.base.artifacts import Stored

router = Router(tags=["runs"])
ArtifactName = Annotated[str, Path(min_length=1, max_length=200)]
BYTES: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.put(
    "/runs/{run_id}/artifacts/{name}",
    response_model=Stored,
    responses={201: {"model": Stored, "description": "Stored; 200 when the same bytes were there"}},
    openapi_extra=BYTES,
)
def put(
    run_id: RunId,
    name: ArtifactName,
    body: RawBody,
    c: Transaction,
    config: Config,
    now: Now,
    caller: Deliverer,
    tidemark_lease: Annotated[str | None, Header(max_length=200)] = None,
) -> Any:
    """Store a file of this run. Files are never overwritten: different content under the same name is refused."""
    stored = artifacts.store_artifact(
        c, run_id, name, body, lease=tidemark_lease, config=config, principal=caller, now=now
    )
    return Json(stored, status_code=201 if stored.created else 200)


@router.get(
    "/runs/{run_id}/artifacts/{name}",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "The file"}},
)
def get(run_id: RunId, name: ArtifactName, c: Transaction, config: Config, _: Reader) -> Any:
    """Download a file of this run."""
    row, path = artifacts.find_artifact(c, run_id, name, config)
    return FileResponse(path, media_type=row.content_type, filename=name, content_disposition_type="attachment")
