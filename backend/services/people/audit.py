"""The audit trail: who decided, changed or let in what. Nothing in it is ever changed or removed."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from backend.services.base.principal import Principal
from backend.services.base.tables import cell
from backend.store.base import audit as store
from backend.store.base.audit import AuditFilter, AuditRow

MOST = 1000


class Did(StrEnum):
    """The kinds of action that are recorded. `regression.` is followed by a person's decision."""

    SIGNED_IN = "sign-in"
    SIGNED_OUT = "sign-out"
    SIGNED_OUT_ALL = "sign-out.everybody"
    MADE_TOKEN = "token.create"
    REVOKED_TOKEN = "token.revoke"
    SET_ROLE = "member.set"
    REMOVED_ROLE = "member.remove"
    SAVED_PROJECT = "project.save"
    REMOVED_PROJECT = "project.remove"
    CHANGED_POLICY = "policy.change"
    APPROVED_FORK = "fork.approve"
    SET_WORKER_STATE = "worker.state"
    CHANGED_NOTIFICATIONS = "notification.change"
    DECIDED = "regression."


def record(
    c: Connection,
    by: Principal,
    did: Did | str,
    subject: str = "",
    *,
    now: datetime,
    project: str | None = None,
    **detail: Any,
) -> None:
    """Note in the trail what was done in this transaction. `detail`: what else is worth knowing, never a secret."""
    known = {name: value for name, value in detail.items() if value is not None}
    store.add(
        c,
        at=now,
        actor=by.identity,
        via=by.via.value,
        project=project,
        action=str(did),
        subject=_storable(subject),
        detail=json.loads(_storable(json.dumps(known, default=str, ensure_ascii=False))),
    )


def _storable(text: str) -> str:
    return text.replace("\x00", "\ufffd").replace("\\u0000", "\\ufffd").encode("utf-8", "replace").decode()


def trail(c: Connection, wanted: AuditFilter, limit: int) -> list[AuditRow]:
    """The newest first, at most `limit`."""
    return store.read(c, wanted, min(limit, MOST))


def whole_trail(c: Connection, wanted: AuditFilter) -> Iterator[AuditRow]:
    """All of it, the newest first."""
    return store.read_all(c, wanted)


def as_csv(rows: Iterable[AuditRow]) -> str:
    """A table with a line of names; what a cell of a spreadsheet would take for a formula is kept as text."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([field.name for field in fields(AuditRow)])
    for row in rows:
        known = asdict(row)
        known |= {"at": row.at.isoformat(), "detail": json.dumps(row.detail, ensure_ascii=False, sort_keys=True)}
        writer.writerow([cell(value) for value in known.values()])
    return out.getvalue()


def as_json_lines(rows: Iterable[AuditRow]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps({**asdict(row), "at": row.at.isoformat()}, ensure_ascii=False) + "\n" for row in rows)
