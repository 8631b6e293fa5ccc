"""Messages as rows."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from backend.services.base import projects
from backend.services.notify import rules as service
from backend.store.notify import outbox, rules
from tests.backend.people_of_tests import ROOT

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ADDRESS = "jsons://ada:secret@example.org/hidden"


def test_a_rule_is_told_of_one_thing_once(connection: Connection) -> None:
    project = projects.save_project(connection, "a/b", now=NOW).id
    rule = service.add(connection, ROOT, "a/b", {"name": "us", "address": ADDRESS}, NOW).id
    first = outbox.want(connection, rule, "R-1 fixed 0", "event", now=NOW)
    assert first is not None and outbox.want(connection, rule, "R-1 fixed 0", "event", now=NOW) is None
    assert outbox.claim(connection, [first]) == [first] and outbox.claim(connection, [first]) == []
    outbox.set_state(connection, [first], "waiting", send_after=NOW + timedelta(hours=1))
    assert outbox.due(connection, NOW, 9) == []
    (row,) = outbox.due(connection, NOW + timedelta(hours=1), 9)
    assert row.attempts == 1
    outbox.set_state(connection, [first], "sending")
    assert outbox.interrupted(connection, "stopped") == 1
    assert [row.state for row in outbox.listed(connection, project, 9)] == ["unknown"]
    assert "secret" not in repr(rules.find(connection, rule))


def test_what_was_told_of_a_regression_is_kept_for_ever_and_tests_are_not(connection: Connection) -> None:
    projects.save_project(connection, "a/b", now=NOW)
    rule = service.add(connection, ROOT, "a/b", {"name": "us", "address": ADDRESS}, NOW).id
    for kind in ("event", "test", "digest"):
        outbox.want(connection, rule, kind, kind, now=NOW)
    assert outbox.tests_since(connection, rule, NOW) == 1
    assert outbox.prune(connection, NOW + timedelta(days=1)) == 2
