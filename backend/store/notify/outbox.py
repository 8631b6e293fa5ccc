"""Messages to people: put here with the events that no rule has seen, sent by the housekeeping loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.base.projects import project_of
from backend.store.tables.notify import notify_message, notify_rule, unseen_event


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenEvent:
    id: int
    regression_id: int
    project_id: int
    kind: str
    times_over: int
    """How often the regression had ended before: one that comes back is reported again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    id: int
    rule_id: int
    key: str
    kind: str
    regression_id: int | None
    event: str | None
    state: str
    wanted_at: datetime
    send_after: datetime | None
    attempts: int
    error: str | None
    sent_at: datetime | None


MESSAGES = select(*(notify_message.c[name] for name in MessageRow.__dataclass_fields__))

_UNSEEN = text(
    """SELECT v.id, v.regression_id, g.project_id, v.kind,
         (SELECT count(*) FROM regression_event e
          WHERE e.regression_id = g.id AND e.id < v.id AND e.kind IN ('fixed', 'withdrawn')) AS times_over
       FROM unseen_event u JOIN regression_event v ON v.id = u.event_id JOIN regression g ON g.id = v.regression_id
       ORDER BY v.id LIMIT :limit"""
)


def unseen(c: Connection, limit: int) -> list[UnseenEvent]:
    """Events of regressions that were not yet matched with the rules, the oldest first."""
    return [UnseenEvent(**row._mapping) for row in c.execute(_UNSEEN, {"limit": limit})]


def forget(c: Connection, event_ids: Sequence[int]) -> None:
    """They have been matched with the rules."""
    c.execute(delete(unseen_event).where(unseen_event.c.event_id.in_(event_ids)))


def want(
    c: Connection,
    rule_id: int,
    key: str,
    kind: str,
    *,
    now: datetime,
    about: UnseenEvent | None = None,
) -> int | None:
    """Have a message sent, `about` an event of a regression or not; its number. None: this rule had it before."""
    values = {
        "rule_id": rule_id,
        "project_id": project_of(notify_rule, rule_id),
        "key": key,
        "kind": kind,
        "regression_id": None if about is None else about.regression_id,
        "event": None if about is None else about.kind,
        "wanted_at": now,
    }
    statement = upsert(notify_message).values(values).on_conflict_do_nothing(constraint="uq_notify_message_key")
    made: int | None = c.execute(statement.returning(notify_message.c.id)).scalar_one_or_none()
    return made


def due(c: Connection, now: datetime, limit: int) -> list[MessageRow]:
    """Messages that are to be sent now, the longest waiting first."""
    statement = MESSAGES.where(
        notify_message.c.state == "waiting",
        or_(notify_message.c.send_after.is_(None), notify_message.c.send_after <= now),
    )
    rows = c.execute(statement.order_by(notify_message.c.wanted_at, notify_message.c.id).limit(limit))
    return [MessageRow(**row._mapping) for row in rows]


def claim(c: Connection, ids: Sequence[int]) -> list[int]:
    """Mark messages as being sent; returns those that were still waiting. Nobody else sends these."""
    statement = (
        update(notify_message)
        .where(notify_message.c.id.in_(ids), notify_message.c.state == "waiting")
        .values(state="sending", error=None, send_after=None, attempts=notify_message.c.attempts + 1)
        .returning(notify_message.c.id)
    )
    return list(c.execute(statement).scalars())


def set_state(
    c: Connection,
    ids: Sequence[int],
    state: str,
    *,
    error: str | None = None,
    send_after: datetime | None = None,
    sent_at: datetime | None = None,
) -> None:
    c.execute(
        update(notify_message)
        .where(notify_message.c.id.in_(ids))
        .values(
            state=state,
            error=None if error is None else error[:2000],
            send_after=send_after,
            sent_at=sent_at,
        )
    )


def interrupted(c: Connection, error: str) -> int:
    """Mark messages that were being sent when the sender stopped: whether they went is not known. Returns how many."""
    statement = update(notify_message).where(notify_message.c.state == "sending")
    return c.execute(statement.values(state="unknown", error=error)).rowcount


def listed(c: Connection, project_id: int, limit: int) -> list[MessageRow]:
    """Messages of a project, newest first."""
    of_project = select(notify_rule.c.id).where(notify_rule.c.project_id == project_id)
    statement = MESSAGES.where(notify_message.c.rule_id.in_(of_project))
    rows = c.execute(statement.order_by(notify_message.c.id.desc()).limit(limit))
    return [MessageRow(**row._mapping) for row in rows]


def tests_since(c: Connection, rule_id: int, since: datetime) -> int:
    """How many tests of a rule were requested since then."""
    wanted = select(func.count()).where(
        notify_message.c.rule_id == rule_id, notify_message.c.kind == "test", notify_message.c.wanted_at >= since
    )
    return int(c.execute(wanted).scalar_one())


def prune(c: Connection, before: datetime) -> int:
    """Delete old tests and digests. Messages about a regression are kept with it, and never sent again."""
    old = delete(notify_message).where(notify_message.c.kind != "event", notify_message.c.wanted_at < before)
    return c.execute(old).rowcount
