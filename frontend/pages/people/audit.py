"""The audit trail: who decided, changed or let in what."""

from fastapi.responses import Response

from backend.routing import Router
from backend.services.base.confine import require_all, require_of
from backend.services.base.principal import Scope
from backend.services.people import audit
from backend.store.base.audit import AuditFilter, AuditRow
from frontend.frame import Visiting
from frontend.links import link

router = Router(include_in_schema=False)

PAGE = 100
SHOWN = 200  # characters of a value


@router.get("/settings/audit")
def audit_page(visit: Visiting) -> Response:
    """Of a project, for who administers it; of everything, for who administers the service."""
    here = visit.here
    everything = here.get("all") == "1"
    project = None if everything else visit.project()
    if project is None:
        require_all(visit.c, visit.principal, Scope.ADMIN)
    else:
        require_of(visit.c, visit.principal, Scope.ADMIN, "project", project)
    cursor = here.get("cursor")
    wanted = AuditFilter(
        projects=None if project is None else (project,),
        actor=here.get("actor") or None,
        action=here.get("action") or None,
        before=int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 19 else None,
    )
    rows = audit.trail(visit.c, wanted, PAGE)
    filters = {"project": project, "actor": wanted.actor, "action": wanted.action}
    return visit.page(
        "audit.html",
        page="audit",
        title="Audit trail",
        description="Who decided, changed or approved what.",
        project=project or visit.project(),
        path="/settings/audit",
        rows=[(row, details_of(row)) for row in rows],
        next=str(rows[-1].id) if len(rows) == PAGE else None,
        everything=everything,
        may_all=visit.may(Scope.ADMIN, None),
        actor=wanted.actor or "",
        action=wanted.action or "",
        actions=[did.value for did in audit.Did],
        exports=[(name, link("/api/v1/audit", format=name, **filters)) for name in ("csv", "jsonl")],
    )


def details_of(row: AuditRow) -> list[tuple[str, str]]:
    """The other fields of an event, as names and short texts."""
    return [(name.replace("_", " "), _text(value)) for name, value in row.detail.items()]


def _text(value: object) -> str:
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
