"""What a digest says of a project in which nothing happened."""

from sqlalchemy import Connection

from backend.services.base import projects
from backend.services.notify.digest import sections
from tests.backend.store.notify.test_rules import NOW


def test_the_lists_of_a_quiet_project_are_empty(connection: Connection) -> None:
    project = projects.save_project(connection, "a/b", now=NOW).id
    found = sections(connection, project, "a/b", NOW, "http://t.example")
    assert {each.title: each.lines for each in found} == dict.fromkeys(
        ("Regressed", "Fixed", "Still bad", "Noisiest series", "Silent testbeds"), ()
    )
