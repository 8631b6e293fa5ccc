"""Rules as rows."""

from datetime import UTC, datetime

from sqlalchemy import Connection

from backend.services.base import projects
from backend.store.notify import rules

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_a_rule_is_of_its_project_and_goes(connection: Connection) -> None:
    mine, other = (projects.save_project(connection, slug, now=NOW).id for slug in ("a/b", "c/d"))
    values = {"name": "us", "address": "x", "shown_address": "…", "causes": ["code"], "states": ["fixed"]}
    rule = rules.add(connection, mine, values, NOW)
    rules.change(connection, rule, {"digest": "daily"})
    (found,) = rules.of_project(connection, mine)
    assert (found.project, found.digest, found.suites) == ("a/b", "daily", [])
    assert rules.of_project(connection, other) == [] and rules.with_digest(connection) == [found]
    rules.remove(connection, rule)
    assert rules.find(connection, rule) is None
