"""What people are told: who, of what, once; over real mail and HTTP on the loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from backend import contract
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.ingest.record import record_run
from backend.services.notify import rules
from backend.services.notify.sender import AT_A_TIME, MOST_ATTEMPTS, NotifySender
from tests.backend.api.conftest import COMMITS, run_document
from tests.backend.people_of_tests import ROOT
from tests.backend.services.notify.people import Webhook, mailbox, webhook

PROJECT = "demo/tinygpt"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class House:
    """A project whose step gets slower at the tenth commit, and a sender whose clock the test moves."""

    def __init__(self, engine: Engine, config: ServiceConfig) -> None:
        self.engine, self.config, self.now = engine, replace(config, private_hosts=("127.0.0.1",)), NOW
        with engine.begin() as c:
            projects.save_project(c, PROJECT, now=NOW)

    def rule(self, address: str, **wanted: Any) -> int:
        with self.engine.begin() as c:
            return rules.add(c, ROOT, PROJECT, {"name": "us", "address": address, **wanted}, NOW).id

    def deliver(self) -> None:
        for position in range(COMMITS):
            with self.engine.begin() as c:
                document = run_document(position)
                record_run(c, contract.parse_run(document), json.dumps(document).encode(), now=NOW)

    def send(self, later: timedelta = timedelta()) -> int:
        self.now += later
        return NotifySender(self.engine, self.config).send_due(lambda: self.now)

    def messages(self) -> list[Any]:
        with self.engine.begin() as c:
            return list(rules.notifications(c, ROOT, PROJECT).messages)

    def states(self) -> list[str]:
        return [message.state for message in self.messages()]


@pytest.fixture
def house(database: str, tmp_path: Path) -> Iterator[House]:
    engine = create_engine(database)
    yield House(engine, ServiceConfig(database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path))
    engine.dispose()


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as played:
        yield played


def test_a_confirmed_regression_is_told_once(house: House, hook: Webhook) -> None:
    house.rule(hook.address)
    house.deliver()
    assert house.send() == 1
    assert house.send() == 0
    (told,) = hook.got
    assert told["title"].startswith("Regression: gpt.train rung=r03: step_ms costs")
    assert "+19.7 % (slower)" in told["message"] and "/regressions/1" in told["message"]
    with house.engine.begin() as c:  # the same event, seen again
        c.execute(text("INSERT INTO unseen_event SELECT id, project_id FROM regression_event WHERE kind = 'confirmed'"))
    assert house.send() == 0 and house.states() == ["sent"]


def test_a_mail_has_html_and_text_that_lead_to_the_page(house: House) -> None:
    with mailbox() as (box, address):
        house.rule(address)
        house.deliver()
        assert house.send() == 1, house.messages()
        (letter,) = box.letters
    parts = {
        part.get_content_type(): part.get_payload(decode=True).decode()
        for part in letter.walk()
        if not part.is_multipart()
    }
    assert set(parts) == {"text/plain", "text/html"}
    for body in parts.values():
        assert "gpt.train" in body and "http://127.0.0.1:8000/regressions/1" in body


def test_what_cannot_be_told_keeps_nothing_else_from_being_told(house: House, hook: Webhook) -> None:
    broken = house.rule(hook.address)
    with house.engine.begin() as c:
        c.execute(text("UPDATE notify_rule SET suites = ARRAY[NULL]::text[] WHERE id = :id"), {"id": broken})
    house.deliver()
    assert house.send() == 0
    with house.engine.begin() as c:
        assert c.scalar(text("SELECT count(*) FROM unseen_event")) == 0
        rules.remove(c, ROOT, PROJECT, broken, NOW)
        rules.test(c, ROOT, PROJECT, rules.add(c, ROOT, PROJECT, {"name": "b", "address": hook.address}, NOW).id, NOW)
    assert house.send() == 1


def test_an_address_that_is_slow_to_answer_delays_no_other(house: House, hook: Webhook) -> None:
    other_was_told, meanwhile = threading.Event(), []
    with webhook() as quick:
        quick.before_answer = other_was_told.set
        hook.before_answer = lambda: meanwhile.append(other_was_told.wait(20))
        house.rule(hook.address)
        house.rule(quick.address)
        house.deliver()
        assert house.send() == 2 and house.states() == ["sent", "sent"]
    assert meanwhile == [True]


def test_addresses_that_failed_before_keep_no_other_waiting_however_many_they_are(house: House, hook: Webhook) -> None:
    other_was_told, meanwhile = threading.Event(), []
    with webhook() as quick:
        quick.before_answer = other_was_told.set
        hook.before_answer = lambda: meanwhile.append(other_was_told.wait(20))
        failed = [house.rule(hook.address) for _ in range(AT_A_TIME)]
        house.rule(quick.address)
        house.deliver()
        NotifySender(house.engine, house.config)._hear(house.now)
        with house.engine.begin() as c:
            c.execute(text("UPDATE notify_message SET attempts = 1 WHERE rule_id = ANY(:failed)"), {"failed": failed})
        house.send()
    assert meanwhile == [True] * AT_A_TIME


def test_what_another_process_sends_meanwhile_is_not_sent_twice(house: House, hook: Webhook) -> None:
    for _ in range(2):
        house.rule(hook.address)
    house.deliver()
    others = [house.send]
    hook.before_answer = lambda: others.pop()() if others else None
    house.send()
    assert len(hook.got) == 2


def test_who_is_killed_between_sending_and_marking_does_not_send_again(house: House, hook: Webhook) -> None:
    house.rule(hook.address)
    house.deliver()
    code = (
        "import sys, datetime, pathlib; from sqlalchemy import create_engine\n"
        "from backend.services.base.config import ServiceConfig\n"
        "from backend.services.notify.sender import NotifySender\n"
        "config = ServiceConfig(database_url=sys.argv[1], redis_url='', data_dir=pathlib.Path(sys.argv[2]),\n"
        "                       private_hosts=('127.0.0.1',))\n"
        "now = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)\n"
        "NotifySender(create_engine(config.database_url), config).send_due(lambda: now)\n"
    )
    url = house.engine.url.render_as_string(hide_password=False)
    child = subprocess.Popen([sys.executable, "-c", code, url, str(house.config.data_dir)])
    hook.before_answer = lambda: os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    assert len(hook.got) == 1 and house.states() == ["sending"]
    assert house.send() == 0
    (message,) = house.messages()
    assert message.state == "unknown" and "not sent again" in message.error
    assert len(hook.got) == 1


def test_what_is_refused_is_tried_again_later_and_at_last_given_up(house: House, hook: Webhook) -> None:
    house.rule(hook.address)
    house.deliver()
    hook.status = 503
    assert house.send() == 1
    (message,) = house.messages()
    assert message.state == "waiting" and "a-secret-path" not in message.error
    assert house.send() == 0, "not before its pause is over"
    hook.status = 200
    assert house.send(timedelta(seconds=2)) == 1 and house.states() == ["sent"]
    with house.engine.begin() as c:
        c.execute(text("UPDATE notify_message SET state = 'waiting', attempts = :most"), {"most": MOST_ATTEMPTS - 1})
    hook.status = 503
    house.send(timedelta(hours=1))
    assert house.states() == ["gave_up"]


def test_nothing_is_sent_to_this_machine_unless_an_operator_allows_it(house: House, hook: Webhook) -> None:
    house.config = replace(house.config, private_hosts=())
    house.rule(hook.address)
    house.deliver()
    house.send()
    (message,) = house.messages()
    assert hook.got == [] and message.state == "gave_up" and "not public" in message.error


def test_quiet_hours_hold_a_message_back_until_they_end(house: House, hook: Webhook) -> None:
    house.rule(hook.address, quiet_from="12:00", quiet_until="14:30", time_zone="Europe/Berlin")  # it is 13:00 there
    house.deliver()
    assert house.send() == 0 and hook.got == []
    assert house.send(timedelta(minutes=89)) == 0
    assert house.send(timedelta(minutes=2)) == 1


@pytest.mark.parametrize(
    "wanted",
    [{"causes": ["hardware"]}, {"suites": ["moe*"]}, {"min_change": 0.5}, {"states": ["fixed"]}, {"owners": ["@ada"]}],
    ids=str,
)
def test_a_rule_that_is_about_something_else_tells_nothing(house: House, hook: Webhook, wanted: Any) -> None:
    house.rule(hook.address, **wanted)
    house.deliver()
    assert house.send() == 0 and hook.got == []


def test_a_digest_tells_once_a_day_what_regressed(house: House, hook: Webhook) -> None:
    house.rule(hook.address, digest="daily")
    house.deliver()
    assert house.send() == 0, "eight o'clock of its first day was before it was made"
    assert house.send(timedelta(hours=21)) == 1
    assert house.send(timedelta(hours=1)) == 0
    (told,) = hook.got
    assert "**Regressed**" in told["message"] and "R-1 gpt.train" in told["message"]
    assert house.send(timedelta(days=1)) == 1
    assert "**Still bad**" in hook.got[1]["message"]


def test_a_test_is_tried_once_and_says_what_went_wrong(house: House, hook: Webhook) -> None:
    rule = house.rule(hook.address)
    hook.status = 403
    with house.engine.begin() as c:
        rules.test(c, ROOT, PROJECT, rule, NOW)
    house.send()
    (message,) = house.messages()
    assert (message.kind, message.state, len(hook.got)) == ("test", "gave_up", 1)
    assert message.error and "a-secret-path" not in message.error
