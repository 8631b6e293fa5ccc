"""What the tables refuse."""

import pytest
from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from backend.services.base import projects
from backend.store.tables.notify import notify_rule
from tests.backend.store.notify.test_rules import NOW


def test_a_digest_is_daily_or_weekly(connection: Connection) -> None:
    project = projects.save_project(connection, "a/b", now=NOW).id
    values = {"project_id": project, "name": "x", "address": "x", "shown_address": "x", "causes": [], "states": []}
    with pytest.raises(IntegrityError, match="ck_notify_rule_digest"):
        connection.execute(insert(notify_rule).values(**values, digest="hourly"))
