"""A run is delivered: read it, see that whoever brings it may, record it, and let the queue move on."""

from datetime import datetime

from sqlalchemy import Connection

from backend.contract import parse_run
from backend.services.base.access import Principal
from backend.services.base.errors import BadRequest, Forbidden
from backend.services.ingest.claims import check_claims
from backend.services.ingest.record import Recorded, record_run
from backend.store.base import live as live_store
from backend.store.base import projects, wire


def deliver_run(
    c: Connection, run_id: str, body: bytes, *, lease: str | None, principal: Principal, now: datetime
) -> Recorded:
    """Record the run that this body states, and commit; the answer holds every verdict."""
    run = parse_run(body)
    if run.id != run_id:
        raise BadRequest.field("id", run.id, f"the id in the address, {run_id}")
    check_project(c, run.project, principal)
    check_claims(c, run, principal)
    recorded = record_run(c, run, body, now=now, principal=principal, lease=lease, finish=wire.commit)
    if not recorded.created:
        live_store.notify_work(c)  # as recording does: who delivers is idle now, and the next run should reach it
    return recorded


def check_project(c: Connection, slug: str, principal: Principal) -> None:
    """Refuse who may write to one project only, and this is another."""
    if principal.project_id is None:
        return
    project = projects.find(c, slug)
    if project is None:
        raise Forbidden(f"token {principal.name!r} belongs to one project, and {slug} is another")
    principal.require_project(project.id)
