"""Rules as their administrators see them."""

import pytest
from sqlalchemy import Connection

from backend.services.base import projects
from backend.services.base.errors import Conflict, Forbidden, NotFound
from backend.services.base.principal import MemberRole
from backend.services.notify import rules
from tests.backend.people_of_tests import ROOT, only
from tests.backend.store.notify.test_outbox import ADDRESS
from tests.backend.store.notify.test_rules import NOW


def test_a_rule_of_another_project_is_not_found_and_a_triager_makes_none(connection: Connection) -> None:
    mine, other = (projects.save_project(connection, slug, now=NOW).id for slug in ("a/b", "c/d"))
    rule = rules.add(connection, ROOT, "a/b", {"name": "us", "address": ADDRESS}, NOW).id
    with pytest.raises(NotFound):
        rules.remove(connection, only(MemberRole.ADMIN, other), "c/d", rule, NOW)
    with pytest.raises(Forbidden):
        rules.remove(connection, only(MemberRole.TRIAGER, mine), "a/b", rule, NOW)


def test_tests_are_limited(connection: Connection) -> None:
    projects.save_project(connection, "a/b", now=NOW)
    rule = rules.add(connection, ROOT, "a/b", {"name": "us", "address": ADDRESS}, NOW).id
    connection.exec_driver_sql(
        "INSERT INTO notify_message (rule_id, project_id, key, kind, wanted_at) "
        f"SELECT id, project_id, n::text, 'test', '{NOW.isoformat()}' "
        f"FROM notify_rule, generate_series(1, {rules.MOST_TESTS_AN_HOUR}) n WHERE id = {rule}"
    )
    with pytest.raises(Conflict, match="tests are sent per hour"):
        rules.test(connection, ROOT, "a/b", rule, NOW)
