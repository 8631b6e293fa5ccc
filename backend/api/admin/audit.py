"""The audit trail: read and exported by who administers the project, or the service."""

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import Response

from backend.api.bodies import Slug
from backend.api.dependencies import ProjectAdmin, Transaction
from backend.api.described import schema_of
from backend.api.responses import Json
from backend.api.shapes import PLAIN, ZonedMoment
from backend.routing import Router
from backend.services.people import audit
from backend.services.triage.views import Page
from backend.store.base.audit import AuditFilter, AuditRow

router = Router(tags=["audit"])

Word = Annotated[str | None, Query(max_length=200, pattern=PLAIN)]


@router.get(
    "/audit",
    response_model=None,
    responses={
        200: {
            "description": "The newest first",
            "content": {
                "application/json": {"schema": schema_of(Page[AuditRow])},
                "application/jsonl": {"schema": {"type": "string"}},
                "text/csv": {"schema": {"type": "string"}},
            },
        }
    },
)
def trail(
    c: Transaction,
    _: ProjectAdmin,
    project: Annotated[Slug | None, Query()] = None,
    actor: Word = None,
    action: Annotated[str | None, Query(max_length=200, pattern=PLAIN, description="or how it begins: token.")] = None,
    since: ZonedMoment | None = None,
    until: ZonedMoment | None = None,
    format: Literal["json", "jsonl", "csv"] = "json",
    limit: Annotated[int, Query(ge=1, le=audit.MOST)] = 100,
    cursor: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Any:
    """Who triaged, changed a policy, created a token, approved a fork, changed members or removed a project. `csv` and
    `jsonl` contain everything that matches the filters.
    """
    wanted = AuditFilter(
        projects=None if project is None else (project,),
        actor=actor,
        action=action,
        since=since,
        until=until,
        before=cursor,
    )
    if format == "csv":
        return Response(audit.as_csv(audit.whole_trail(c, wanted)), media_type="text/csv; charset=utf-8", headers=SAVED)
    if format == "jsonl":
        return Response(audit.as_json_lines(audit.whole_trail(c, wanted)), media_type="application/jsonl")
    rows = audit.trail(c, wanted, limit)
    return Json({"items": rows, "next": str(rows[-1].id) if len(rows) == limit else None})


SAVED = {"Content-Disposition": 'attachment; filename="tidemark-audit.csv"'}
