"""Foreign result files, uploaded: `POST /import/{format}`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from starlette.datastructures import UploadFile

from backend.api.dependencies import Deliverer, Now, RawBody, Transaction, commit_piece
from backend.api.described import answer
from backend.api.responses import Json
from backend.api.shapes import PLAIN
from backend.importers import Context
from backend.routing import Router
from backend.services.base.errors import BadRequest
from backend.services.ingest import imports
from backend.services.ingest.imports import ImportAnswer

router = Router(tags=["import"])

MULTIPART = "multipart/form-data"
FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file as it is, or as the field `file` of a form whose other fields may state the options",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that was sent, and the other fields of the form it came in."""

    name: str
    data: bytes
    fields: Mapping[str, tuple[str, ...]]


async def upload(request: Request, body: RawBody) -> Upload:
    if not request.headers.get("content-type", "").lower().startswith(MULTIPART):
        return Upload("", body, {})
    async with request.form() as form:
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        if len(files) != 1:
            raise BadRequest.field("file", f"{len(files)} files", "one file; send one request for each")
        fields = {name: tuple(str(value) for value in form.getlist(name)) for name in form if name != "file"}
        return Upload(files[0].filename or "", await files[0].read(), fields)


Word = Annotated[str | None, Query(max_length=255, pattern=PLAIN)]
Words = Annotated[list[str], Query(max_length=200)]
CommitId = Annotated[str | None, Query(max_length=64, description="a full commit id, for files that name none")]


def stated(
    upload: Annotated[Upload, Depends(upload)],
    project: Word = None,
    testbed: Word = None,
    suite: Word = None,
    commit: CommitId = None,
    branch: Word = None,
    worker: Word = None,
    at: Annotated[str | None, Query(max_length=40, description="when it was measured (RFC 3339)")] = None,
    stated_wins: Annotated[bool, Query(description="do not believe the file's own commit and branch")] = False,
    direction: Annotated[
        Words, Query(description="NAME=lower or NAME=higher; NAME, of a metric or benchmark, may hold * and ?")
    ] = [],  # noqa: B006
    column: Annotated[Words, Query(description="CSV: NAME=PART")] = [],  # noqa: B006
    variant: Annotated[Words, Query(description="KEY=VALUE, a parameter that every result gets")] = [],  # noqa: B006
) -> Context:
    """The import context given in the query or the form."""
    sent = {name: values[0] for name, values in upload.fields.items() if values}
    slug = project or sent.get("project")
    if not slug:
        raise BadRequest.field("project", slug, "the project the results belong to, such as owner/name")
    ways = _pairs("direction", (*upload.fields.get("direction", ()), *direction))
    wrong = next((way for way in ways.values() if way not in ("lower", "higher")), None)
    if wrong is not None:
        raise BadRequest.field("direction", wrong, ("lower", "higher"))
    return Context(
        project=slug,
        testbed=testbed or sent.get("testbed"),
        suite=suite or sent.get("suite"),
        commit=commit or sent.get("commit"),
        branch=branch or sent.get("branch"),
        worker=worker or sent.get("worker"),
        at=at or sent.get("at"),
        stated_wins=stated_wins or sent.get("stated_wins") == "true",
        directions=ways,
        columns=_pairs("column", (*upload.fields.get("column", ()), *column)),
        variant=_pairs("variant", (*upload.fields.get("variant", ()), *variant), cut_first=True),
    )


def _pairs(field: str, given: tuple[str, ...], *, cut_first: bool = False) -> dict[str, str]:
    """NAME=VALUE; of several `=` the last one counts, or the first where a value may hold more."""
    pairs = {}
    for text in given:
        name, sign, value = text.partition("=") if cut_first else text.rpartition("=")
        if not sign or not name or not value:
            raise BadRequest.field(field, text, "NAME=VALUE")
        pairs[name] = value
    return pairs


@router.post(
    "/import/{format}",
    response_model=None,
    responses=answer(ImportAnswer, "What the file held, and what became of each run"),
    openapi_extra=FILE_BODY,
)
def post(
    format: Annotated[str, Path(max_length=50, pattern=PLAIN, description="its name, or `auto`")],
    caller: Deliverer,  # first: nothing of a stranger's file is read
    upload: Annotated[Upload, Depends(upload)],
    context: Annotated[Context, Depends(stated)],
    c: Transaction,
    now: Now,
    file: Annotated[str | None, Query(max_length=255, pattern=PLAIN, description="the file's name")] = None,
    dry_run: bool = False,
) -> Any:
    """Store the runs of another tool's result file, part by part: what is stored stays, even if the caller does not
    wait for the answer. Importing the same file again stores nothing twice, and continues where it stopped.
    """
    name = file or upload.name.replace("\x00", "")[:255] or "the file"
    answered = imports.import_file(
        c,
        imports.ForeignFile(name=name, data=upload.data, context=context, format_name=format),
        dry_run=dry_run,
        principal=caller,
        now=now,
        between=commit_piece,
    )
    return Json(answered)
