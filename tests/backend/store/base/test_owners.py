"""Whose a thing is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from backend.services.base import projects
from backend.store.base import owners


@pytest.mark.parametrize("key", ["", "x", "-1", "1.0", "99999999999999999999", "²"])
def test_what_is_no_number_is_nobody_s(connection: Connection, key: str) -> None:
    assert owners.owner_of(connection, "series", key) is None


def test_private_projects_are_seen_by_those_who_have_a_part_in_them(connection: Connection) -> None:
    now = datetime.now(UTC)
    shown = projects.save_project(connection, "a/b", now=now).id
    assert not owners.is_any_hidden(connection, [])
    secret = projects.save_project(connection, "c/d", private=True, now=now).id
    assert owners.owner_of(connection, "project", "c/d") == owners.project_by_id(connection, secret) == (secret, True)
    assert owners.is_any_hidden(connection, [shown]) and not owners.is_any_hidden(connection, [secret])
    assert owners.visible(connection, open=True, seen=[secret]) == {shown, secret}
    assert owners.visible(connection, open=False, seen=[secret]) == {secret}
