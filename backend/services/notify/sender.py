"""Notifying people: events are matched with the rules of their project, and the resulting messages are sent, once.

A message is marked before it is sent and again when it was accepted. If the process stops in between, it stays
`unknown` and is not sent again: people who get messages twice stop reading, and the page, the feed and the digest have
the event anyway. What a service refused, or what never reached it, is retried with growing delays.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import NotFound
from backend.services.notify import digest, messages
from backend.services.notify.concerns import NOTIFIED_EVENTS, concerns, digest_due, quiet_until
from backend.services.notify.messages import NotifiedEvent, WrittenMessage
from backend.services.notify.owners import owners_of
from backend.services.notify.post import Letter, Posted, post
from backend.services.triage.detail import RegressionDetail, get_regression
from backend.store.base import projects
from backend.store.notify import outbox
from backend.store.notify import rules as rule_store
from backend.store.notify.outbox import MessageRow, UnseenEvent
from backend.store.notify.rules import NotifyRuleRow

log = logging.getLogger("tidemark.notify")

AT_ONCE = 200
AT_A_TIME = 4  # letters that are posted side by side: an address that is slow to answer keeps one place
MOST_ATTEMPTS = 8
GROWS = 4.0  # the waits after failures: 1 s, 4 s, 16 s … an hour; together longer than most outages
LONGEST_WAIT_S = 3600.0
UNWRITTEN = "it could not be written or posted, by a fault of Tidemark; the log of the service says which"
INTERRUPTED = "the service stopped while this was sent: it may have arrived, and is not sent again"


@dataclass(slots=True)
class NotifySender:
    """Receives events and sends the resulting messages. One at a time: housekeeping holds the lock."""

    engine: Engine
    config: ServiceConfig

    def send_due(self, now: Callable[[], datetime], is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Send what is due now, failed messages last; returns how many messages were sent."""
        with self.engine.begin() as c:
            outbox.interrupted(c, INTERRUPTED)
        self._hear(now())
        with self.engine.begin() as c:
            for rule in rule_store.with_digest(c):
                due = digest_due(rule, now())
                if due is not None:
                    outbox.want(c, rule.id, f"digest {due.day}", "digest", now=now())
            waiting = outbox.due(c, now(), AT_ONCE)
        with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="letter") as places:
            letters = sorted(_letters(waiting), key=lambda rows: max(row.attempts for row in rows))
            return sum(places.map(lambda rows: 0 if is_stopping() else self._try(rows, now()), letters))

    def _try(self, rows: Sequence[MessageRow], now: datetime) -> int:
        try:
            return self._send(rows, now)
        except (psycopg.Error, SQLAlchemyError):
            raise
        except Exception:
            log.exception("rule %d: a message could not be written", rows[0].rule_id)
            with self.engine.begin() as c:
                outbox.set_state(c, [row.id for row in rows], "gave_up", error=UNWRITTEN)
            return 0

    def _hear(self, now: datetime) -> None:
        """Hold the events that nobody has seen against the rules."""
        with self.engine.begin() as c:
            unseen = outbox.unseen(c, AT_ONCE)
        for event in unseen:
            try:
                with self.engine.begin() as c:
                    self._want(c, event, now)
                    outbox.forget(c, [event.id])
            except (psycopg.Error, SQLAlchemyError):
                raise  # it is tried again
            except Exception:  # a fault of ours; it keeps no others from being told
                log.exception("event %d of R-%d is sent to nobody", event.id, event.regression_id)
                with self.engine.begin() as c:
                    outbox.forget(c, [event.id])

    def _want(self, c: Connection, event: UnseenEvent, now: datetime) -> None:
        rules = rule_store.of_project(c, event.project_id) if event.kind in NOTIFIED_EVENTS else []
        detail = _detail(c, event.regression_id) if rules else None
        if detail is None:
            return
        owners = self._owners_of(c, event.project_id, detail) if any(rule.owners for rule in rules) else ()
        key = f"R-{event.regression_id} {event.kind} {event.times_over}"
        for rule in rules:
            if concerns(rule, event.kind, detail.regression, owners):
                outbox.want(c, rule.id, key, "event", now=now, about=event)

    def _owners_of(self, c: Connection, project_id: int, detail: RegressionDetail) -> tuple[str, ...]:
        project = projects.by_id(c, project_id)
        return () if project is None else owners_of(self.config, project, detail)

    def _send(self, rows: Sequence[MessageRow], now: datetime) -> int:
        ids = [row.id for row in rows]
        with self.engine.begin() as c:
            rule = rule_store.find(c, rows[0].rule_id)
            if rule is None:
                return 0
            quiet = None if rows[0].kind == "test" else quiet_until(rule, now)
            if quiet is not None:
                outbox.set_state(c, ids, "waiting", send_after=quiet)
                return 0
            claimed = outbox.claim(c, ids)
            rows = [row for row in rows if row.id in claimed]
            if not rows:  # another process told it meanwhile
                return 0
            written = self._written(c, rule, rows, now)
            if written is None:
                outbox.set_state(c, claimed, "gave_up", error="the regression is gone")
                return 0
        letter = Letter(
            address=rule.address,
            title=written.title,
            markdown=written.markdown,
            html=written.html,
            private_hosts=self.config.private_hosts,
        )
        self._mark(rows, post(letter), now)
        return 1

    def _written(
        self, c: Connection, rule: NotifyRuleRow, rows: Sequence[MessageRow], now: datetime
    ) -> WrittenMessage | None:
        url, kind = self.config.public_url, rows[0].kind
        if kind == "test":
            return messages.of_test(rule.project, rule.name, url)
        if kind == "digest":
            due = digest_due(rule, now)
            since = now - timedelta(days=1) if due is None else due.since
            found = digest.sections(c, rule.project_id, rule.project, since, url)
            return messages.of_digest(rule.project, f"{rule.digest or 'last'} digest", found, url)
        events = []
        for row in rows:
            detail = _detail(c, row.regression_id or 0)
            if detail is not None:
                events.append(NotifiedEvent(row.event or "", detail, self._owners_of(c, rule.project_id, detail)))
        if len(events) == 1:
            return messages.of_event(events[0], url)
        return messages.of_events(rule.project, events, url) if events else None

    def _mark(self, rows: Sequence[MessageRow], posted: Posted, now: datetime) -> None:
        ids, tries = [row.id for row in rows], max(row.attempts for row in rows) + 1
        with self.engine.begin() as c:
            if posted.ok:
                outbox.set_state(c, ids, "sent", sent_at=now)
            elif posted.is_unknown:
                outbox.set_state(c, ids, "unknown", error=posted.error)
            elif posted.is_refused or tries >= MOST_ATTEMPTS or rows[0].kind == "test":
                outbox.set_state(c, ids, "gave_up", error=posted.error)
            else:
                wait = timedelta(seconds=min(GROWS ** (tries - 1), LONGEST_WAIT_S))
                outbox.set_state(c, ids, "waiting", error=posted.error, send_after=now + wait)
        if not posted.ok:
            log.warning("rule %s: a message was not sent: %s", rows[0].rule_id, posted.error)


def _letters(rows: Sequence[MessageRow]) -> Iterator[list[MessageRow]]:
    """Messages that go out together: the events of one rule that wait; tests and digests each alone."""
    events: defaultdict[int, list[MessageRow]] = defaultdict(list)
    for row in rows:
        if row.kind == "event":
            events[row.rule_id].append(row)
        else:
            yield [row]
    yield from events.values()


def _detail(c: Connection, regression_id: int) -> RegressionDetail | None:
    try:
        return get_regression(c, regression_id)
    except NotFound:
        return None
