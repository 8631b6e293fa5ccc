"""A run is delivered: parse it, check that its sender may deliver it, record it, and let the queue continue."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Connection

from backend.contract import parse_run
from backend.contract_weight import check_weight
from backend.services.base.errors import BadRequest
from backend.services.base.principal import Principal
from backend.services.ingest.answer import Recorded
from backend.services.ingest.claims import check_claims, check_project
from backend.services.ingest.record import record_run
from backend.store.base import live as live_store
from backend.store.base import wire

LONG_NUMBER = b":" + b"0" * 19
"""A whole number of so many digits, in the shape of a body: where a value may begin, and digits."""
_SHAPE = bytes.maketrans(b"123456789 \t\n\r,[-", b"000000000:::::::")


def deliver_run(
    c: Connection,
    run_id: str,
    body: bytes,
    *,
    lease: str | None,
    principal: Principal,
    now: datetime,
    judged: Callable[[], None],
) -> Recorded:
    """Record the run in this body, and commit; the response contains every verdict. Calls `judged` when the
    database has everything that it is to store."""
    document = decoded(body)
    run = parse_run(body if document is None else document)
    if run.id != run_id:
        raise BadRequest.field("id", run.id, f"the id in the address, {run_id}")
    check_project(c, run.project, principal)
    check_claims(c, run, principal)
    recorded = record_run(
        c,
        run,
        body,
        now=now,
        principal=principal,
        lease=lease,
        document=document,
        finish=partial(wire.commit, sent=judged),
    )
    if not recorded.created:
        live_store.notify_work(c)  # as recording does: who delivers is idle now, and the next run should reach it
    return recorded


def decoded(body: bytes) -> dict[str, Any] | None:
    """The object in a body; None: it is none, of which `parse_run` says why."""
    check_weight(body)
    if LONG_NUMBER in body.translate(_SHAPE):  # orjson makes a float of a whole number that the contract refuses
        return None
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
