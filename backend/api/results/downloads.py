"""Responses that are files: the same route gives JSON by default and another format on request."""

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from backend.api.admission import Lanes
from backend.api.described import schema_of
from backend.api.shapes import PLAIN
from backend.services.base.tables import PARQUET_TYPE
from backend.services.reports.exports import Exported

FormatName = Annotated[str | None, Query(max_length=20, pattern=PLAIN, description="another format than the usual one")]
TEXT = {"schema": {"type": "string"}}


def attachment(request: Request, file: Exported) -> Response:
    """The file, with a name to save it under."""
    lanes: Lanes = request.app.state.lanes
    headers = {"Content-Disposition": f'attachment; filename="{file.file_name}"'}
    return StreamingResponse(lanes.reading.in_turns(iter(file.parts)), media_type=file.media_type, headers=headers)


def exported(kind: Any, description: str) -> dict[int | str, dict[str, Any]]:
    """The `responses=` entry of a route that answers with `kind`, or with it in another format."""
    content = {
        "application/json": {"schema": {"anyOf": [schema_of(kind), {"type": "object"}, {"type": "array"}]}},
        "text/csv": TEXT,
        "text/plain": TEXT,
        PARQUET_TYPE: {"schema": {"type": "string", "format": "binary"}},
    }
    return {200: {"description": description, "content": content}}
