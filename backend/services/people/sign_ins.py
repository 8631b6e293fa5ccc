"""The browsers that are signed in: everybody sees and ends their own; who administers the service, all."""

from datetime import datetime

from sqlalchemy import Connection

from backend.services.base import access
from backend.services.base.principal import Principal, Scope
from backend.services.people import audit
from backend.services.people.audit import Did
from backend.store.base.access import SignedInRow


def listed(c: Connection, by: Principal, now: datetime, *, mine: bool = False) -> list[SignedInRow]:
    """The newest first."""
    return access.list_sign_ins(c, now, _whose(by, mine))


def end(c: Connection, by: Principal, sign_in_id: str, now: datetime) -> None:
    """Sign one browser out."""
    access.end_sign_in(c, sign_in_id, _whose(by, False))
    audit.record(c, by, Did.SIGNED_OUT, sign_in_id, now=now)


def end_all(c: Connection, by: Principal, now: datetime, *, mine: bool = False) -> None:
    """Sign out every browser of one's own, or everybody's."""
    whose = _whose(by, mine)
    access.sign_out_everywhere(c, whose)
    did = Did.SIGNED_OUT_ALL if whose is None else Did.SIGNED_OUT
    audit.record(c, by, did, "everywhere", now=now)


def _whose(by: Principal, mine: bool) -> int | None:
    """The account whose browsers these are; None: everybody's."""
    if by.account_id is not None and (mine or not by.may(Scope.ADMIN)):
        return by.account_id
    by.require_everywhere(Scope.ADMIN)
    return None
